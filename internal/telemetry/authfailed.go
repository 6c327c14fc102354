package telemetry

// The sides at which a credential can be refused.
const (
	SideAPI         = "api"         // a caller's key
	SideSource      = "source"      // the signature of a webhook that comes in
	SideProvider    = "provider"    // our credential at a provider
	SideDestination = "destination" // our credential at a destination
)

var authFailures = Counter("auth_failures_total", "Credentials refused: a caller's key, a webhook's signature, or ours at a provider or destination.", "side", "name")

// AuthFailed counts a credential that was refused. Name is the provider's, destination's or
// source's in the configuration, "" at the API.
func AuthFailed(side, name string) { authFailures.WithLabelValues(side, name).Inc() }

// ExpectAuth begins the count of a side at 0, so that the first refusal is a rise.
func ExpectAuth(side, name string) { authFailures.WithLabelValues(side, name) }
