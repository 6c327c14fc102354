package provider

import (
	"errors"
	"fmt"
	"time"
)

// Class is what is known after a call failed; it decides what may be done next.
type Class string

// The classes. What each means for the task stands in Table and docs/failures.md.
const (
	// NotSent: the provider cannot have got the whole request. Sending again is safe; no attempt is used.
	NotSent Class = "not_sent"
	// Refused: the provider turned the request away at the gate, for now. Wait RetryAfter; no attempt is used.
	Refused Class = "refused"
	// Rejected: the provider will not take this request, however often it is sent. Final.
	Rejected Class = "rejected"
	// Unauthorized: the credential is at fault, not the task. The provider is held and the task waits.
	Unauthorized Class = "unauthorized"
	// Unknown: the request was sent, and whether it was carried out is not known. on_unknown decides.
	Unknown Class = "unknown"
	// BadOutput: a reply came and cannot be used. Retry within the attempts.
	BadOutput Class = "bad_output"
)

// Gate is what a failure asks of the provider's gate.
type Gate string

// The values of Gate.
const (
	GateNone Gate = ""     // leave it as it is
	GateCool Gate = "cool" // cooling until RetryAfter, or a backoff when that is zero
	GateHold Gate = "hold" // held until an operator or a changed credential releases it
)

// Error is one failed call. Code, Class, Permanent, Gate and Billed come from Table.
type Error struct {
	Class Class
	// Code is stable and snake_case: for programs.
	Code string
	// Message is for people, at most 1 KiB: it holds no userinfo, path or query of a URL, no key, no HTML and no
	// passage of the request's or the reply's text.
	Message string
	// Permanent is what the task's error says when this failure ends it: true when the request itself was at fault.
	Permanent bool
	Gate      Gate
	Billed    Billed
	// Status is the HTTP status, 0 when none came. ProviderCode is the provider's own code word, when it gave one.
	Status       int
	ProviderCode string
	// RetryAfter is how long the provider asked us to wait, 0 when it did not say: then a normal backoff.
	RetryAfter time.Duration
	// Phase is how far the call came; Bytes how much of the reply's body was read.
	Phase Phase
	Bytes int64
	// Partial is what had come when a stream was cut: text so far, tokens, finish signal. Nil when nothing had come.
	Partial *Response
	// Reply is the body of a reply that was whole and could not be used (class bad_output), for the attempt's record.
	Reply     []byte
	RequestID string
	Phases    Phases
	// JobOver says that the background job is over or gone: it cannot be polled again. See Poller.
	JobOver bool
	// SendsUsed is as in Response, of a service that failed.
	SendsUsed int
}

// Error says class, code and message; it is safe to log.
func (e *Error) Error() string {
	if e.Message == "" {
		return fmt.Sprintf("%s: %s", e.Class, e.Code)
	}
	return fmt.Sprintf("%s: %s: %s", e.Class, e.Code, e.Message)
}

// AttemptUsed says whether the failed call counts against the task's attempts.
func (e *Error) AttemptUsed() bool { return e.Class.AttemptUsed() }

// Sent says whether the provider may have got the whole request: only then can the call have been carried out.
func (e *Error) Sent() bool { return e.Class != NotSent && e.Phase.AtLeast(PhaseWritten) }

// AttemptUsed says whether a failure of this class counts against the task's attempts.
func (c Class) AttemptUsed() bool { return c == Rejected || c == Unknown || c == BadOutput }

// AsError returns the *Error in err. An error of another type, which no provider should return, becomes class unknown
// with code internal and without its text: what is not classed may have been sent.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return New(CodeInternal, "the provider returned an error of another type")
}
