package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/onefold-dev/onefold/internal/auth"
	"github.com/onefold-dev/onefold/internal/batch"
	"github.com/onefold-dev/onefold/internal/destination"
	"github.com/onefold-dev/onefold/internal/gate"
	"github.com/onefold-dev/onefold/internal/ingest"
	"github.com/onefold-dev/onefold/internal/review"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/submission"
	"github.com/onefold-dev/onefold/internal/submit"
	"github.com/onefold-dev/onefold/internal/tracing"
	"github.com/onefold-dev/onefold/internal/wait"
)

// Limits of one request. The longest wait and the body's size are the design's.
const (
	maxWait        = 60 * time.Second
	maxSubmit      = submission.MaxBytes
	maxAct         = submission.MaxBytes // a resolve may bring a result
	bodyTimeout    = 60 * time.Second
	readTimeout    = 5 * time.Second // of one read from the database
	headerTimeout  = 10 * time.Second
	idleTimeout    = 2 * time.Minute
	writeTimeout   = maxWait + 5*time.Minute // the longest wait, then 64 MiB over a slow line
	maxHeaderBytes = 32 << 10
)

// Config is what a Server works with. All but Ingest, Version, Traces and Stopping are required.
type Config struct {
	DB      store.DBTX // for reading
	Submit  *submit.Service
	Batches *batch.Service
	Review  *review.Service
	Auth    *auth.Auth
	Wait    *wait.Waiter
	Log     *slog.Logger
	// Gates sets holds and moves gates.
	Gates *gate.Board
	// Destinations makes, changes and tests destinations.
	Destinations *destination.Book
	// Ingest takes inbound webhooks. Nil: there are no sources.
	Ingest *ingest.Service
	// Ready says whether requests can be served now; it is asked by /readyz.
	Ready   func(context.Context) error
	Version string
	// Traces makes the spans of requests. Nil: there are none.
	Traces *tracing.Tracer
	// Stopping ends when the server is to stop: answers held back then go out.
	Stopping context.Context
}

// Server is the HTTP API as an http.Handler.
type Server struct {
	Config
	mux      *http.ServeMux
	huma     huma.API
	latency  *latencies
	ready    *readiness
	spec     []byte // openapi.yaml
	specJSON []byte
	docs     []byte
}

// New makes a Server.
func New(c Config) (*Server, error) {
	if c.DB == nil || c.Submit == nil || c.Batches == nil || c.Review == nil || c.Auth == nil || c.Wait == nil || c.Log == nil || c.Ready == nil {
		return nil, errors.New("server: DB, Submit, Batches, Review, Auth, Wait, Log and Ready are required")
	}
	if c.Stopping == nil {
		c.Stopping = context.Background()
	}
	s := &Server{Config: c, mux: http.NewServeMux(), latency: newLatencies(c.DB), ready: &readiness{ask: c.Ready}}
	s.huma = humago.New(s.mux, description(c.Version))
	s.routes()
	return s, s.document()
}

// HTTP is the http.Server around s, with the limits that hold before a handler
// runs: slow headers, too many of them, idle connections.
func (s *Server) HTTP() *http.Server {
	return &http.Server{
		Handler:           s,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		WriteTimeout:      writeTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug),
	}
}
