package batch

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/job"
	"github.com/onefold-dev/onefold/internal/kinds"
	"github.com/onefold-dev/onefold/internal/quota"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/submit"
	"github.com/onefold-dev/onefold/internal/task"
)

// Config is what a Service works with; all fields but Quotas and Opts are required.
type Config struct {
	Pool     *pgxpool.Pool
	Kinds    *kinds.Book
	Submit   *submit.Service
	Notifier *job.Notifier
	Log      *slog.Logger
	Quotas   *quota.Book // within which lines are handed over; nil: as fast as they are served
	Opts     Opts
}

// Opts tune a Service; zero values mean the defaults.
type Opts struct {
	// Backlog is how many lines of one batch wait in the queue at a time; the
	// others wait outside it. 1,000.
	Backlog int
	// Chunk is how many lines one step hands over, collects or closes. 500.
	Chunk int
	// Every is how often open batches are looked at. 250 ms.
	Every time.Duration
	// Idle is how long an upload may make no progress before what is staged of
	// it is dropped. 1 h.
	Idle time.Duration
	// Takeover is after how long without progress another upload of the same
	// file goes on with what is staged. 10 s.
	Takeover time.Duration
}

func (o *Opts) defaults() {
	if o.Backlog <= 0 {
		o.Backlog = 1000
	}
	if o.Chunk <= 0 {
		o.Chunk = 500
	}
	if o.Every <= 0 {
		o.Every = 250 * time.Millisecond
	}
	if o.Idle <= 0 {
		o.Idle = time.Hour
	}
	if o.Takeover <= 0 {
		o.Takeover = 10 * time.Second
	}
}

// Service takes files in, hands their lines over and gives their results out.
type Service struct {
	Config
	kick chan struct{} // there is a step to take
	sums sums
}

// New makes a Service. Nothing runs until Run does.
func New(c Config) *Service {
	c.Opts.defaults()
	return &Service{Config: c, kick: make(chan struct{}, 1), sums: sums{known: map[task.ID]sum{}}}
}

func (s *Service) wake() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// failed turns a database that is away into the caller's "try again"; all else
// stays internal.
func (s *Service) failed(err error) error {
	var e *api.Error
	var broken *brokenBody
	if errors.As(err, &e) || errors.As(err, &broken) || errors.Is(err, context.Canceled) || !store.Away(err) {
		return err
	}
	s.Log.Warn("database away", "error", err)
	return api.Errorf(api.CodeUnavailable, "the database cannot be reached").WithRetryAfter(2 * time.Second)
}

func notFound() error { return api.Errorf(api.CodeNotFound, "there is no such batch") }
