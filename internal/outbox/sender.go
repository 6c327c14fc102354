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

// Delivery is one try at one effect, or, with Check, one question whether an earlier try arrived.
type Delivery struct {
	ID        task.ID // of the effect: the same at every try
	CreatedAt time.Time
	Attempt   int    // counts the tries that were counted, from 1
	Traffic   string // the value of the header that tells what is calling, from where, at which try
	Method    string // "" is the type's own
	Path      string // appended to the address, with its own query
	Headers   map[string]string
	Body      []byte // exactly what is signed and sent

	// URL is the destination's address, which may carry a credential in its query.
	URL telemetry.Secret
	// Secrets sign: the present one, then the previous one while it is being rotated. Empty: nothing is signed.
	Secrets []telemetry.Secret
	// Credential logs in: the value of the header CredentialHeader, or User's password.
	Credential       telemetry.Secret
	CredentialHeader string
	User             string
	// From is who a mail is from.
	From string
	// IdempotencyHeader carries the effect's id where the type has no place of its own for it.
	IdempotencyHeader string
	// AllowPrivate lets the address be loopback or in a private range; Plaintext lets a mail go without TLS.
	AllowPrivate, Plaintext bool
	// Safe says that the same effect may arrive twice without harm.
	Safe bool
	// Check makes this a question: nothing may be changed by it, the id is no key of it, and the whole answer is wanted.
	Check bool
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
	Like       int           // the HTTP status whose rule applies, where Status is another protocol's; 0: Status itself
	RetryAfter time.Duration // with Answered; 0 where the receiver named none
	Code       string        // with the other classes
	Message    string
	Reply      []byte // at most MaxReply bytes; of a check's answer at most MaxAnswer
}

// MaxReply is how much of an answer that is no success is kept, in bytes: enough to see what the receiver minded.
// MaxAnswer is how much of any answer is read.
const (
	MaxReply  = 1024
	MaxAnswer = 16 << 10
)
