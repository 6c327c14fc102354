// Package apid decides how an API process is put together, and in which order
// it starts and stops.
package apid

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/onefold-dev/onefold/internal/auth"
	"github.com/onefold-dev/onefold/internal/batch"
	"github.com/onefold-dev/onefold/internal/boot"
	"github.com/onefold-dev/onefold/internal/destination"
	"github.com/onefold-dev/onefold/internal/fair"
	"github.com/onefold-dev/onefold/internal/gate"
	"github.com/onefold-dev/onefold/internal/ingest"
	"github.com/onefold-dev/onefold/internal/job"
	"github.com/onefold-dev/onefold/internal/outbox"
	"github.com/onefold-dev/onefold/internal/quota"
	"github.com/onefold-dev/onefold/internal/review"
	"github.com/onefold-dev/onefold/internal/server"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/submit"
	"github.com/onefold-dev/onefold/internal/telemetry"
	"github.com/onefold-dev/onefold/internal/wait"
)

// stopTime is how long requests under way may take once the process is to stop.
const stopTime = 20 * time.Second

// Run serves the API until ctx ends, then lets requests under way finish.
// listening, which may be nil, is told the address once requests are taken.
func Run(ctx context.Context, app *boot.App, listening func(addr string)) error {
	// Ends with the first part that stops, so that answers held back go out then.
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	telemetry.ExpectAuth(telemetry.SideAPI, "")
	for name := range app.Kinds.Config().Sources {
		telemetry.ExpectAuth(telemetry.SideSource, name)
	}
	notifier := job.NewNotifier(app.Pool, app.Log)
	defer notifier.Close()
	doors := destination.New(destination.Opts{Config: app.Kinds.Config(), Pool: app.Pool, Keys: app.Config.SealKeys, Log: app.Log})
	if err := doors.Refresh(ctx); err != nil {
		return err
	}
	gates, err := gate.New(ctx, gate.Opts{Pool: app.Pool, Log: app.Log, Connect: app.Direct, Also: doors.Refresh})
	if err != nil {
		return err
	}
	gate.TellUnserved(ctx, app.Pool, app.Log)
	places, err := fair.New(ctx, fair.Opts{DB: app.Pool, Log: app.Log})
	if err != nil {
		return err
	}
	quotas, err := quota.New(ctx, quota.Opts{DB: app.Pool, Log: app.Log})
	if err != nil {
		return err
	}
	effects := outbox.New(outbox.Opts{Config: app.Kinds.Config(), Fair: places, Destinations: doors})
	salt, err := store.Salt(ctx, app.Pool)
	if err != nil {
		return err
	}
	submits := submit.New(submit.Config{
		Fair: places, Salt: salt,
		Pool: app.Pool, Kinds: app.Kinds, Outbox: effects, Notifier: notifier, Log: app.Log, Gates: gates, Quotas: quotas, Traces: app.Traces,
	})
	defer submits.Close()
	webhooks := ingest.New(ingest.Config{Sources: app.Kinds.Config().Sources, Submit: submits, DB: app.Pool, Log: app.Log})
	defer webhooks.Close()
	batches := batch.New(batch.Config{Pool: app.Pool, Kinds: app.Kinds, Submit: submits, Notifier: notifier, Log: app.Log, Quotas: quotas})
	reviews := review.New(review.Config{Pool: app.Pool, Submit: submits, Outbox: effects, Notifier: notifier, Log: app.Log})
	waiter := wait.New(wait.Config{Pool: app.Pool, Connect: app.Direct, Log: app.Log})
	s, err := server.New(server.Config{
		DB: app.Pool, Submit: submits, Batches: batches, Review: reviews, Auth: auth.New(app.Pool), Wait: waiter, Log: app.Log, Ready: app.Ready, Ingest: webhooks, Gates: gates, Destinations: doors,
		Version: boot.Version, Stopping: ctx, Traces: app.Traces,
	})
	if err != nil {
		return err
	}
	admin, err := app.Admin()
	if err != nil {
		return err
	}
	secure := func(ln net.Listener) net.Listener { return ln }
	if app.Config.TLSCert != "" {
		c, err := newCertificate(app.Config.TLSCert, app.Config.TLSKey, app.Log)
		if err != nil {
			return err
		}
		secure = func(ln net.Listener) net.Listener { return tls.NewListener(ln, c.config()) }
	}
	ln, err := net.Listen("tcp", app.Config.Addr)
	if err != nil {
		return fmt.Errorf("listen for requests: %w", err)
	}
	app.Log.Info("listening", "addr", ln.Addr().String(), "version", boot.Version)
	if listening != nil {
		listening(ln.Addr().String())
	}
	return boot.Run(ctx, app.Log, admin,
		boot.Part{Name: "waiter", Run: waiter.Run},
		boot.Part{Name: "gates", Run: func(ctx context.Context) error {
			gates.Run(ctx)
			return nil
		}},
		boot.Part{Name: "places", Run: func(ctx context.Context) error {
			places.Run(ctx)
			return nil
		}},
		boot.Part{Name: "quotas", Run: func(ctx context.Context) error {
			quotas.Run(ctx)
			return nil
		}},
		boot.Part{Name: "batches", Run: batches.Run},
		boot.Part{Name: "http", Run: func(ctx context.Context) error {
			context.AfterFunc(ctx, stop)
			return serveUntil(ctx, s.HTTP(), secure(s.Listener(ln)))
		}},
	)
}

// serveUntil serves until ctx ends and the requests under way have finished, or
// have taken too long.
func serveUntil(ctx context.Context, srv *http.Server, ln net.Listener) error {
	down := make(chan error, 1)
	go func() {
		<-ctx.Done()
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
		defer cancel()
		err := srv.Shutdown(late)
		if err != nil {
			_ = srv.Close()
		}
		down <- err
	}()
	if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	if err := <-down; err != nil {
		return fmt.Errorf("requests still under way after %s were cut off", stopTime)
	}
	return nil
}
