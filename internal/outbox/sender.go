package outbox

import (
	"context"
	"time"

	"github.com/onefold-dev/onefold/internal/task"
	"github.com/onefold-dev/onefold/internal/telemetry"
)

// Sender delivers effects of one type. It sees no row and no transaction: a request goes in, a classed outcome comes
// out. One Send is one try: a sender never repeats anything by itself, and returns when ctx ends.
type Sender interface {
	Send(ctx context.Context, d Delivery) Outcome
}

// Delivery is one try at one effect.
type Delivery struct {
	ID      task.ID // of the effect: the same at every try
	Attempt int     // counts the tries that were counted, from 1
	Method  string  // "" is the type's own
	Path    string
	Headers map[string]string
	Body    []byte // exactly what is signed and sent

	// URL is the destination's address, which may carry a credential in its query.
	URL telemetry.Secret
	// Secrets sign: the present one, then the previous one while it is being rotated. Empty: nothing is signed.
	Secrets []telemetry.Secret
	// AllowPrivate lets the address be loopback or in a private range.
	AllowPrivate bool
	// Safe says that the same effect may arrive twice without harm.
	Safe bool
}

// Class is what is known after a try. What follows from it is decided by [Triage] alone.
type Class string

// The classes.
const (
	// Answered: the receiver answered; Status says what.
	Answered Class = "answered"
	// NotSent: nothing can have reached the receiver (resolve, dial, TLS, request not fully written, no credential).
	NotSent Class = "not_sent"
	// Blocked: our own rules forbid the address; nothing was sent, and nothing will be while they stand.
	Blocked Class = "blocked"
	// Unclear: sent, but no answer came (timeout, reset, malformed reply). The receiver may have acted.
	Unclear Class = "unclear"
)

// Outcome is what came of a try. Message and Code are ours and hold neither secrets nor the receiver's words; Reply is
// the beginning of what the receiver said.
type Outcome struct {
	Class      Class
	Status     int           // with Answered
	RetryAfter time.Duration // with Answered; 0 where the receiver named none
	Code       string        // with the other classes
	Message    string
	Reply      []byte // at most MaxReply bytes
}

// MaxReply is how much of an answer that is no success is kept, in bytes: enough to see what the receiver minded.
const MaxReply = 1024
