package api

import "time"

// GateState is the automatic state of a provider or a destination.
type GateState string

// The states of a gate.
const (
	GateOpen     GateState = "open"
	GateCooling  GateState = "cooling"  // closed until a time: it asked to wait, or failed too often in a row
	GateHeld     GateState = "held"     // closed until an operator releases it or its credential changes
	GateDisabled GateState = "disabled" // closed for good, until an operator releases it
)

// Stop is what a hold stops.
type Stop string

// What a hold can stop.
const (
	StopSubmits Stop = "submits" // new tasks are refused with 503; duplicates are still answered
	StopClaims  Stop = "claims"  // waiting tasks, or deliveries to a destination, are not begun
	StopRetries Stop = "retries" // what was tried before is not tried again by itself
)

// Stops lists what a hold can stop.
var Stops = []Stop{StopSubmits, StopClaims, StopRetries}

// Hold is a switch an operator sets. It concerns what has all the names given;
// at least one is.
type Hold struct {
	ID          string    `json:"id"`
	Tenant      string    `json:"tenant,omitempty"`
	Kind        string    `json:"kind,omitempty"`
	Provider    string    `json:"provider,omitempty"`
	Destination string    `json:"destination,omitempty"`
	Stops       []Stop    `json:"stops" enum:"submits,claims,retries"`
	Reason      string    `json:"reason"`
	Actor       string    `json:"actor"`
	CreatedAt   time.Time `json:"created_at"`
}

// NewHold is the body of POST /v1/holds. Without Stops it stops claims.
type NewHold struct {
	Tenant      string `json:"tenant,omitempty"`
	Kind        string `json:"kind,omitempty"`
	Provider    string `json:"provider,omitempty"`
	Destination string `json:"destination,omitempty"`
	Stops       []Stop `json:"stops,omitempty"`
	Reason      string `json:"reason"`
}

// Gate is where a provider or destination stands.
type Gate struct {
	Name  string    `json:"name"`
	State GateState `json:"state" enum:"open,cooling,held,disabled"`
	Since time.Time `json:"since"`
	// Until is when a cooling gate opens.
	Until *time.Time `json:"until,omitempty"`
	// Code and Reason say why it is not open; Actor who closed it, where it was a person.
	Code   string `json:"code,omitempty"`
	Reason string `json:"reason,omitempty"`
	Actor  string `json:"actor,omitempty"`
	// Failures is how many calls or deliveries in a row failed.
	Failures       int  `json:"failures"`
	NeedsAttention bool `json:"needs_attention"`
}

// Provider is a provider's gate with what waits behind it.
type Provider struct {
	Gate
	// Waiting counts the pending tasks, Running those a worker has.
	Waiting int64 `json:"waiting"`
	Running int64 `json:"running"`
	// Workers counts the live workers that serve it.
	Workers int `json:"workers"`
}

// GateAct is the body of a hold or release of a provider or destination.
type GateAct struct {
	Reason string `json:"reason"`
}
