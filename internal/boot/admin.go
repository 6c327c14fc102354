package boot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/onefold-dev/onefold/internal/telemetry"
)

// Admin serves /healthz, /metrics and pprof on a listener of its own, which belongs on an
// address only operators reach. Without an address it does nothing.
func (a *App) Admin() (Part, error) {
	if a.Config.AdminAddr == "" {
		return Part{Name: "admin", Run: func(ctx context.Context) error { <-ctx.Done(); return nil }}, nil
	}
	ln, err := net.Listen("tcp", a.Config.AdminAddr)
	if err != nil {
		return Part{}, fmt.Errorf("listen for admin requests: %w", err)
	}
	a.Log.Info("admin listening", "addr", ln.Addr().String())
	srv := &http.Server{Handler: adminMux(), ReadHeaderTimeout: 10 * time.Second}
	return Part{Name: "admin", Run: func(ctx context.Context) error {
		stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
		defer stop()
		if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	}}, nil
}

// adminMux leaves out pprof's cmdline: a database URL with its password may
// stand on the command line.
func adminMux() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { // for probes
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"status":"ok","version":"`+Version+`"}`)
	})
	mux.Handle("GET /metrics", telemetry.MetricsHandler()) // for Prometheus
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)       // for operators: profiles
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	return mux
}
