// Package gate decides when nothing is to be begun: at a provider or destination
// that asked for a pause or refuses our credential, where an operator stopped
// it, or where as much is under way as may be.
//
// The rows in the database are the truth. Each process keeps a copy that is at
// most a second old; a gate moves in the transaction of the outcome that says so.
package gate

import (
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
)

// Name names a gate, or what has a bound.
type Name = store.GateKey

// providers is the scope of providers' gates.
const providers = "provider"

// Provider names the gate of a provider.
func Provider(name string) Name { return Name{Scope: providers, Name: name} }

// Destination names the gate of a destination.
func Destination(name string) Name { return Name{Scope: "destination", Name: name} }

// Kind names a kind: it has no gate, but its tasks under way can be bounded.
func Kind(name string) Name { return Name{Scope: "kind", Name: name} }

// What is what an outcome says of the other side.
type What string

// What outcomes say. Cooling, holding and disabling move the gate whatever else
// the same transaction saw; Failed and Suspect count in a row.
const (
	Healthy      What = "healthy"      // it answered and did its part: what counts in a row starts anew
	Refused      What = "refused"      // 429, overloaded: cool until RetryAfter
	Unauthorized What = "unauthorized" // the credential is at fault: hold
	Quota        What = "quota"        // the account is exhausted: hold
	Suspect      What = "suspect"      // turned away without a word why: hold after three different tasks in a row
	Failed       What = "failed"       // cool after BreakerAfter in a row
	Gone         What = "gone"         // for good: disable
)

// The limits of a gate.
const (
	// BreakerAfter failures in a row close a gate for a while and mark it (design section 8).
	BreakerAfter = 5
	// SuspectsNeeded different tasks turned away in a row count as unauthorized (design section 7).
	SuspectsNeeded = 3

	coolBase  = 2 * time.Second // where nobody named a time; doubled when it closes again soon after
	coolCap   = time.Minute
	coolMost  = time.Hour // a longer Retry-After is heard again after it
	breakBase = 30 * time.Second
	breakCap  = 10 * time.Minute
	keepFew   = 8 // fingerprints of refused credentials
)

// The codes of gates that closed.
const (
	CodeRefused      = "rate_limited"
	CodeUnauthorized = "unauthorized"
	CodeQuota        = "quota_exhausted"
	CodeBreaker      = "failing"
	CodeGone         = "gone"
	CodeOperator     = "operator"
)

// Observation is what one outcome says of a gate.
type Observation struct {
	Gate       Name
	What       What
	Code       string        // "" = the usual one of What
	Reason     string        // for people, no text of a request or reply
	RetryAfter time.Duration // with Refused; 0 = it named no time
	Task       task.ID       // with Suspect
	// Credential is the fingerprint of the credential that was used, from
	// Board.Fingerprint just before; nil where there is none. What was said of a
	// credential that has been changed meanwhile moves nothing.
	Credential []byte
	// Begun is a moment before the call was sent, on the database's clock; zero
	// where it is not known. What a call says of a credential that was begun
	// before its gate was opened last, by an operator's release, moves nothing.
	Begun time.Time
}

// State is where a gate stands now.
type State struct {
	store.Gate
	// Opens is how long until a cooling gate opens; 0 unless it is cooling.
	Opens time.Duration
	// Probing says that it opened after failing in a row and nothing has gone
	// well since: better try one at a time.
	Probing bool
}

// Open says whether something may be begun.
func (s State) Open() bool { return s.State == api.GateOpen || s.State == "" }

// stateOf is a row at a moment of the database's clock: a pause that is over is
// over, whether or not anyone has written it down.
func stateOf(g store.Gate, now time.Time) State {
	s := State{Gate: g, Probing: g.Failures >= BreakerAfter}
	if g.State != api.GateCooling {
		return s
	}
	if s.Opens = g.Until.Sub(now); s.Opens > 0 {
		return s
	}
	s.State, s.Opens, s.Until, s.Code, s.Reason = api.GateOpen, 0, nil, "", ""
	return s
}
