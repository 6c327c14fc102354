// Package webhook decides how an effect travels as a Standard Webhook: one signed POST of exactly the stored bytes.
package webhook

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/onefold-dev/onefold/internal/outbox"
	"github.com/onefold-dev/onefold/internal/outbox/wire"
)

// CodeBadSecret is the code of a delivery that could not be signed.
const CodeBadSecret = "invalid_secret"

// Opts tunes a Sender. The zero value works.
type Opts = wire.Opts

// Sender delivers webhooks. It is safe for use by many goroutines.
type Sender struct{ client *wire.Client }

// New makes a Sender.
func New(o *Opts) *Sender { return &Sender{client: wire.New(o)} }

// Close drops the idle connections.
func (s *Sender) Close() { s.client.Close() }

// Send makes one POST and says what is known afterwards.
func (s *Sender) Send(ctx context.Context, d outbox.Delivery) outbox.Outcome {
	if d.Check {
		return s.client.Exchange(ctx, d.Method, d, func(http.Header) {})
	}
	d.Path = ""
	now := time.Now().Unix()
	signature, err := sign(d.Secrets, d.ID.String(), now, d.Body)
	if err != nil {
		return outbox.Outcome{Class: outbox.NotSent, Code: CodeBadSecret, Message: err.Error()}
	}
	return s.client.Exchange(ctx, http.MethodPost, d, func(h http.Header) {
		h.Set("Onefold-Attempt", strconv.Itoa(d.Attempt))
		h.Set(headerID, d.ID.String())
		h.Set(headerTimestamp, strconv.FormatInt(now, 10))
		if signature != "" {
			h.Set(headerSignature, signature)
		}
	})
}
