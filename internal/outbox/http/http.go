// Package http decides how an effect travels as a request to any HTTP API: its method, path, headers and body as they
// were rendered, the effect's id in the header that the API takes for an idempotency key.
package http

import (
	"context"
	nethttp "net/http"

	"github.com/onefold-dev/onefold/internal/outbox"
	"github.com/onefold-dev/onefold/internal/outbox/wire"
)

// Opts tunes a Sender. The zero value works.
type Opts = wire.Opts

// Sender makes requests. It is safe for use by many goroutines.
type Sender struct{ client *wire.Client }

// New makes a Sender.
func New(o *Opts) *Sender { return &Sender{client: wire.New(o)} }

// Close drops the idle connections.
func (s *Sender) Close() { s.client.Close() }

// Send makes one request and says what is known afterwards.
func (s *Sender) Send(ctx context.Context, d outbox.Delivery) outbox.Outcome {
	method := d.Method
	if method == "" {
		method = nethttp.MethodPost
	}
	return s.client.Exchange(ctx, method, d, func(h nethttp.Header) {
		if !d.Check && d.IdempotencyHeader != "" {
			h.Set(d.IdempotencyHeader, d.ID.String())
		}
	})
}
