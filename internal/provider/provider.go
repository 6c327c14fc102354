// Package provider decides what is known after a call to a model provider: how far it came, whether it may have been
// billed, and what may be done next.
//
// A provider is one folder below this one. It gets a [Request], makes exactly one send, and returns a [Response] or an
// [*Error]; it never retries, never sees a row and never sees a transaction. Every provider passes the conformance
// suite in providertest.
package provider

import (
	"context"
	"time"
)

// Provider makes one call. The error it returns is always an *Error, and a nil error comes with a non-nil Response.
//
// Call sends at most once. It returns soon after ctx ends: with class not_sent when the request cannot have reached
// the provider whole, else with class unknown.
type Provider interface {
	Call(ctx context.Context, r Request) (*Response, error)
}

// Request is one call to make.
type Request struct {
	// TaskID, Key, Tenant, Kind name the task; providers that do the work themselves (httpcall) are told them.
	TaskID string
	Key    string
	Tenant string
	Kind   string
	// Attempt counts the tries of this run from 1; Run counts the runs from 1.
	Attempt int
	Run     int
	// Number counts every try of the task over all runs, upwards; unlike Attempt it is never given back, so it tells a
	// late request from a newer one.
	Number int
	// Body is the rendered request, one JSON document. For openai it is the chat completions body as the caller
	// wants it; its fields are sent on byte for byte.
	Body []byte
	// Timeouts bound the layers of the call; a zero layer has no bound.
	Timeouts Timeouts
	// BudgetRemaining is how many sends the task (or the named budget it belongs to) has left after this one.
	BudgetRemaining int
	// Stream asks the provider to stream, so that the first token and stalls are seen. The caller gets one whole
	// Response either way.
	Stream bool
	// OnPhase, when not nil, is called as the call advances, from the goroutine that saw it; it must not block.
	// Phases come in order, each at most once.
	OnPhase func(Phase)
}

// Timeouts are the layers of one call. Connect counts from the start of the call; the others count from the real
// send (the moment a connection was there and writing began), so that neither queue wait nor dialling eats them.
type Timeouts struct {
	// Connect covers name resolution, dial and TLS.
	Connect time.Duration
	// FirstByte covers the send up to the first token of a streamed reply, or the first byte of one that is not.
	FirstByte time.Duration
	// Idle is the longest silence between tokens. Comments, pings and empty events are silence.
	Idle time.Duration
	// Total covers everything from the send to the end of the reply.
	Total time.Duration
}

// Response is a reply that is complete: it has a choice, content and a terminal signal.
type Response struct {
	// Reply is the provider's whole reply as one JSON document. A reply that was not streamed is kept byte for byte,
	// except that ill-formed Unicode becomes U+FFFD; a streamed one is put together and encoded once.
	Reply []byte
	// Text is the text of the first choice. It is valid UTF-8 and may hold U+0000.
	Text string
	// FinishReason is the provider's own word; Truncated says that it means "cut by length".
	FinishReason string
	Truncated    bool
	// Model and RequestID are what the provider says of itself.
	Model     string
	RequestID string
	Usage     Usage
	Phases    Phases
	// Bytes counts the bytes of the reply's body as they came over the wire (after HTTP framing).
	Bytes int64
	// SendsUsed is how many sends a service that did the work itself (httpcall) spent of the budget it was told,
	// besides the one send that called it.
	SendsUsed int
	// Effects are the side effects that such a service asks for with its result.
	Effects []Effect
}

// Effect is one side effect that a service asks for: a JSON object as it came, with the fields that name it read.
// Everything else about it is the business of whoever stores it.
type Effect struct {
	Name string
	Type string
	Raw  []byte
}

// Usage is what the provider says it counted. It is zero with Known false when the provider said nothing.
type Usage struct {
	Known           bool
	InputTokens     int64
	CachedTokens    int64
	OutputTokens    int64
	ReasoningTokens int64
	// TotalTokens is the provider's own sum, or input plus output when it gave none.
	TotalTokens int64
}

// Phases are the times of one call. Connect counts from the start of the call and is zero for a reused connection;
// FirstByte and Total count from the real send. A phase that was not reached is zero.
type Phases struct {
	Connect   time.Duration
	FirstByte time.Duration
	Total     time.Duration
}

// Phase is how far a call came. The order is that of the constants.
type Phase string

// The phases of a call.
const (
	PhaseNone       Phase = ""            // nothing was begun: the request was refused on our side
	PhaseResolving  Phase = "resolving"   // looking the host up
	PhaseDialing    Phase = "dialing"     // connecting
	PhaseTLS        Phase = "tls"         // shaking hands
	PhaseWriting    Phase = "writing"     // a connection is there, the request is being written: the real send
	PhaseWritten    Phase = "written"     // the whole request was handed to the kernel
	PhaseHeaders    Phase = "headers"     // the reply's status and headers came
	PhaseFirstToken Phase = "first_token" // the first token (streamed) or body byte (not streamed) came
	PhaseBody       Phase = "body"        // the terminal signal came (streamed) or the body was read (not streamed)
	PhaseDone       Phase = "done"        // the reply was read, understood and is complete
)

var phaseOrder = map[Phase]int{
	PhaseNone: 0, PhaseResolving: 1, PhaseDialing: 2, PhaseTLS: 3, PhaseWriting: 4, PhaseWritten: 5,
	PhaseHeaders: 6, PhaseFirstToken: 7, PhaseBody: 8, PhaseDone: 9,
}

// AtLeast says whether p is q or later.
func (p Phase) AtLeast(q Phase) bool { return phaseOrder[p] >= phaseOrder[q] }

// Billed says whether the provider may charge for a call.
type Billed string

// The values of Billed.
const (
	BilledYes     Billed = "yes"
	BilledNo      Billed = "no"
	BilledUnknown Billed = "unknown"
)
