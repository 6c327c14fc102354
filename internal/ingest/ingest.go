// Package ingest decides whether an inbound webhook is genuine, and which task it means: it verifies the signature over
// the raw bytes, makes the idempotency key from what was verified, and submits.
//
// Nothing of a delivery is trusted before its signature is. A refused one is counted in the audit before it is answered;
// a genuine one that came before folds onto its task like any other duplicate.
package ingest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"golang.org/x/time/rate"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/group"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/submit"
)

// Config is what a Service works with. Now may be nil for the clock of this machine.
type Config struct {
	Sources map[string]*config.Source
	Submit  *submit.Service
	DB      store.DBTX
	Log     *slog.Logger
	Now     func() time.Time
}

// Service takes the deliveries of all sources. It is safe for concurrent use.
type Service struct {
	Config
	doors    map[string]*Door
	refusals *group.Group[refusal, struct{}]
	seen     *seen
}

// New starts a service; Close ends it.
func New(c Config) *Service {
	if c.Now == nil {
		c.Now = time.Now
	}
	s := &Service{Config: c, doors: map[string]*Door{}}
	for name, src := range c.Sources {
		s.doors[name] = &Door{
			Source: src, limit: rate.NewLimiter(rate.Limit(src.Rate), src.Rate), places: make(chan struct{}, src.Concurrency),
			said: rate.NewLimiter(rate.Every(logEvery), 1),
		}
	}
	s.refusals = group.New(s.audit, nil, &group.Opts{Max: 4096, Flushers: 1, Timeout: auditTimeout})
	s.seen = newSeen(c.DB, c.Log)
	return s
}

// Close writes what is still to be counted.
func (s *Service) Close() {
	s.refusals.Close()
	s.seen.close()
}

// Door is where one source's deliveries come in.
type Door struct {
	*config.Source
	limit  *rate.Limiter
	places chan struct{}
	said   *rate.Limiter
}

// Door returns the door of a source; a nil Service has none. The error is the caller's.
func (s *Service) Door(name string) (*Door, error) {
	var d *Door
	if s != nil {
		d = s.doors[name]
	}
	if d == nil {
		return nil, api.Errorf(api.CodeNotFound, "there is no source of that name").WithFix("Use a name under sources: in onefold.yaml.")
	}
	return d, nil
}

// Admit lets one delivery in, before anything of its body is read, or refuses it with rate_limited. leave must be called
// at its end.
func (d *Door) Admit() (leave func(), err error) {
	r := d.limit.Reserve()
	if wait := r.Delay(); !r.OK() || wait > 0 {
		r.Cancel()
		return nil, api.Errorf(api.CodeRateLimited, "this source delivers faster than %d a second", d.Rate).WithRetryAfter(max(wait, time.Second))
	}
	select {
	case d.places <- struct{}{}:
		return func() { <-d.places }, nil
	default:
		return nil, api.Errorf(api.CodeRateLimited, "%d deliveries of this source are being worked on", d.Concurrency).WithRetryAfter(time.Second)
	}
}

// Delivery is one webhook as it came.
type Delivery struct {
	Header      http.Header
	Body        []byte
	RequestID   string
	TraceID     string
	Traceparent string
	// Client is the address it came from, for the audit.
	Client string
}

// Status says what a genuine delivery was.
type Status string

// The values of Status.
const (
	Accepted  Status = "accepted"  // a new task
	Reopened  Status = "reopened"  // a failed task that runs again
	Duplicate Status = "duplicate" // it had come before
	Mismatch  Status = "mismatch"  // its key had come before with another content, which stands
)

// Answer is what became of a genuine delivery.
type Answer struct {
	Status Status
	TaskID string
	State  api.State // "" for a mismatch
}

// Deliver verifies a delivery and submits its task. Errors are the caller's: invalid_signature for what is not genuine,
// and what a submit can answer. When it returns an answer the task is committed.
func (s *Service) Deliver(ctx context.Context, d *Door, in Delivery) (Answer, error) {
	v, reason := verify(d.Source, in.Header, in.Body, s.Now())
	if reason != "" {
		return Answer{}, s.refuse(ctx, d, in, reason)
	}
	s.seen.add(d.Name, v.secret)
	r, err := request(d.Source, in, v.id)
	if err != nil {
		return Answer{}, s.unusable(d, in, err)
	}
	got, err := s.Submit.Submit(ctx, r)
	var e *api.Error
	switch {
	case errors.As(err, &e) && e.Code == api.CodeKeyReused:
		return s.mismatch(ctx, d, in, e), nil
	case errors.As(err, &e) && errors.Is(e, api.ErrInvalid):
		return Answer{}, s.unusable(d, in, err)
	case err != nil:
		return Answer{}, err
	}
	a := Answer{Status: Duplicate, TaskID: got.Row.ID.String(), State: got.Row.State}
	switch {
	case got.Created:
		a.Status = Accepted
	case got.Reopened:
		a.Status = Reopened
	}
	return a, nil
}

// request is the submit that an event means.
func request(src *config.Source, in Delivery, id string) (submit.Request, error) {
	if src.Scheme == config.SchemeStripe {
		id = eventID(in.Body)
	}
	input, err := src.Input(in.Body)
	if err != nil {
		return submit.Request{}, err
	}
	key, err := src.Key(in.Body, input, id)
	if err != nil {
		return submit.Request{}, err
	}
	at, err := src.OccurredAt(in.Body)
	if err != nil {
		return submit.Request{}, err
	}
	metadata := map[string]string{"source": src.Name}
	body := append([]byte(`{"kind":`), quoted(src.Kind)...)
	body = append(append(body, `,"input":`...), input...)
	if at != nil {
		body = append(append(body, `,"occurred_at":`...), quoted(at.UTC().Format(time.RFC3339Nano))...)
	}
	meta, err := json.Marshal(metadata)
	if err != nil {
		return submit.Request{}, fmt.Errorf("encode metadata: %w", err)
	}
	body = append(append(append(body, `,"metadata":`...), meta...), '}')
	return submit.Request{
		Tenant: src.Tenant, Key: key, KeySent: true, Body: body, TraceID: in.TraceID, Traceparent: in.Traceparent, RequestID: in.RequestID, Actor: actor(src), Source: src.Name,
		Client: in.Client, UserAgent: in.Header.Get("User-Agent"),
	}, nil
}

// eventID is Stripe's own id of the event, which stands in the body that was signed.
func eventID(body []byte) string {
	var event struct {
		ID string `json:"id"`
	}
	_ = json.Unmarshal(body, &event) // what is no event has no id
	return event.ID
}

func quoted(s string) []byte {
	b, _ := json.Marshal(s) // a string always encodes
	return b
}

func actor(src *config.Source) string { return "source:" + src.Name }
