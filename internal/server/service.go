package server

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/onefold-dev/onefold/api"
)

// none are the parameters of a route that takes none.
type none struct{}

type health struct {
	Status  string `json:"status" enum:"ok,ready"`
	Version string `json:"version,omitempty"`
}

func (s *Server) health(context.Context, *exchange, *none) (*answer, error) {
	return jsonAnswer(http.StatusOK, health{Status: "ok", Version: s.Version})
}

func (s *Server) readyz(ctx context.Context, _ *exchange, _ *none) (*answer, error) {
	if s.Stopping.Err() != nil {
		return nil, api.Errorf(api.CodeUnavailable, "this process is stopping").WithRetryAfter(time.Second)
	}
	if err := s.ready.check(ctx); err != nil {
		return nil, err
	}
	return jsonAnswer(http.StatusOK, health{Status: "ready", Version: s.Version})
}

// Probes come from anywhere, so the database is asked at most once a second for
// all of them.
const (
	readyFor     = time.Second
	readyTimeout = 2 * time.Second
)

type readiness struct {
	ask func(context.Context) error

	mu    sync.Mutex
	asked time.Time
	err   error
}

func (r *readiness) check(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.asked.IsZero() && time.Since(r.asked) < readyFor {
		return r.err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyTimeout)
	defer cancel()
	r.err = r.ask(ctx)
	if r.err != nil {
		// Whatever it is, it says one thing to a load balancer; the log has it all.
		r.err = notReady(r.err)
	}
	r.asked = time.Now()
	return r.err
}

func notReady(err error) error {
	if away(err) {
		return api.Errorf(api.CodeUnavailable, "the database cannot be reached").WithRetryAfter(2 * time.Second)
	}
	return api.Errorf(api.CodeUnavailable, "requests cannot be served: the database is not as this program needs it").
		WithRetryAfter(5 * time.Second).WithFix("Read the log of this process; usually `onefold migrate` has to run.")
}
