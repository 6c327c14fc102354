// Package webhook decides whether a delivery from onefold is genuine, and whether it is new: it verifies the signature
// over the raw body, and folds deliveries of one effect by their id.
//
// A delivery whose answer was lost comes again with the same id and the same body. Where the work is a write to a
// database, fold in that write's own transaction, which is the only place that cannot be half done:
//
//	INSERT INTO deliveries (id) VALUES ($1) ON CONFLICT DO NOTHING
//
// and do the work only where that inserted a row. [Memory] is for tests, and for work that may be done again after a
// restart.
package webhook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// MaxBody is the largest delivery that is read, in bytes.
const MaxBody = 8 << 20

// The reasons to refuse a delivery.
var (
	// ErrSignature: no secret made the signature, or a header is missing. Answer 401.
	ErrSignature = errors.New("webhook: the signature is not genuine")
	// ErrTooOld: the time of sending is more than five minutes off. Answer 401, and look at the clocks.
	ErrTooOld = errors.New("webhook: the time of sending is too far off")
	// ErrTooLarge: the body has more than MaxBody bytes. Answer 413.
	ErrTooLarge = errors.New("webhook: the body is too large")
)

// Event is a genuine delivery.
type Event struct {
	// ID is the effect's id: the same each time this effect is delivered.
	ID string
	// SentAt is when this delivery was signed.
	SentAt time.Time
	// Body is what was signed, byte for byte.
	Body []byte
}

// tolerance is how far the time of sending may lie from now, both ways (Standard Webhooks).
const tolerance = 5 * time.Minute

// Verifier checks deliveries. It is safe for concurrent use.
type Verifier struct {
	secrets []*standardwebhooks.Webhook
	now     func() time.Time
}

// New makes a verifier of one or more secrets as onefold.yaml has them (whsec_...): the present one and, while it is
// being rotated, the one before. An empty secret is an error, never one that fits.
func New(secrets ...string) (*Verifier, error) {
	v := &Verifier{now: time.Now}
	if len(secrets) == 0 {
		return nil, errors.New("webhook: there is no secret")
	}
	for i, s := range secrets {
		if len(s) < len("whsec_")+16 {
			return nil, fmt.Errorf("webhook: secret %d is empty or too short", i+1)
		}
		w, err := standardwebhooks.NewWebhook(s)
		if err != nil {
			return nil, fmt.Errorf("webhook: secret %d is not base64 after whsec_", i+1)
		}
		v.secrets = append(v.secrets, w)
	}
	return v, nil
}

// Verify reads a request and returns its event. Errors: ErrSignature, ErrTooOld, ErrTooLarge, or that of reading.
func (v *Verifier) Verify(r *http.Request) (*Event, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, MaxBody+1))
	if err != nil {
		return nil, fmt.Errorf("webhook: read the body: %w", err)
	}
	if len(body) > MaxBody {
		return nil, ErrTooLarge
	}
	return v.VerifyBody(r.Header, body)
}

// VerifyBody is Verify for a body that has been read.
func (v *Verifier) VerifyBody(h http.Header, body []byte) (*Event, error) {
	for _, name := range []string{"webhook-id", "webhook-timestamp", "webhook-signature"} {
		if len(h.Values(name)) != 1 || h.Get(name) == "" {
			return nil, ErrSignature
		}
	}
	seconds, err := strconv.ParseInt(h.Get("webhook-timestamp"), 10, 64)
	if err != nil {
		return nil, ErrSignature
	}
	e := &Event{ID: h.Get("webhook-id"), SentAt: time.Unix(seconds, 0), Body: body}
	for _, w := range v.secrets {
		if w.VerifyIgnoringTimestamp(body, h) == nil {
			if v.now().Sub(e.SentAt).Abs() > tolerance {
				return nil, ErrTooOld
			}
			return e, nil
		}
	}
	return nil, ErrSignature
}

// Folder does work once for each id.
type Folder interface {
	// Once calls do unless it has succeeded for id before. An error of do is returned, and the next delivery of id
	// tries again.
	Once(ctx context.Context, id string, do func(context.Context) error) error
}

// Handler verifies each request and does the work once for each event: 204 when it is done, now or before; 401 and 413
// for what is refused; 500 when do fails, so that onefold delivers again.
func Handler(v *Verifier, f Folder, do func(context.Context, *Event) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e, err := v.Verify(r)
		switch {
		case errors.Is(err, ErrTooLarge):
			w.WriteHeader(http.StatusRequestEntityTooLarge)
		case errors.Is(err, ErrSignature), errors.Is(err, ErrTooOld):
			w.WriteHeader(http.StatusUnauthorized)
		case err != nil:
			w.WriteHeader(http.StatusBadRequest)
		default:
			if f.Once(r.Context(), e.ID, func(ctx context.Context) error { return do(ctx, e) }) != nil {
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
			w.WriteHeader(http.StatusNoContent)
		}
	})
}

// Memory folds within one process. The zero value is ready for use. It keeps every id it has seen.
type Memory struct {
	mu   sync.Mutex
	seen map[string]*once
}

type once struct {
	mu   sync.Mutex
	done bool
}

// Once implements [Folder]. Deliveries of one id wait for each other.
func (m *Memory) Once(ctx context.Context, id string, do func(context.Context) error) error {
	m.mu.Lock()
	if m.seen == nil {
		m.seen = map[string]*once{}
	}
	o := m.seen[id]
	if o == nil {
		o = &once{}
		m.seen[id] = o
	}
	m.mu.Unlock()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.done {
		return nil
	}
	if err := do(ctx); err != nil {
		return err
	}
	o.done = true
	return nil
}
