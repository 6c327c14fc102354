package boot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// Part is something that runs until its context ends, and then stops
// gracefully within its own time limit.
type Part struct {
	Name string
	Run  func(ctx context.Context) error
}

// Run runs parts until ctx ends or one of them returns, then stops the others
// and waits for all. A part that returns by itself ends the process: half a
// process must not look alive. The error joins theirs, nil after a stop that
// was asked for.
func Run(ctx context.Context, log *slog.Logger, parts ...Part) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(parts))
	var all sync.WaitGroup
	for i, p := range parts {
		all.Go(func() {
			defer cancel()
			err := p.Run(ctx)
			asked := ctx.Err() != nil
			switch {
			case err != nil && !(asked && errors.Is(err, context.Canceled)):
				errs[i] = fmt.Errorf("%s: %w", p.Name, err)
			case !asked:
				errs[i] = fmt.Errorf("%s: stopped without being asked", p.Name)
			}
		})
	}
	all.Wait()
	log.Info("stopped")
	return errors.Join(errs...)
}

// Signals returns a context that ends at SIGTERM or SIGINT. A second signal
// ends the process at once, as if it had never been caught. Call stop when done.
func Signals(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	ch := make(chan os.Signal, 1)
	signal.Notify(ch, syscall.SIGTERM, os.Interrupt)
	done := make(chan struct{})
	go func() {
		select {
		case s := <-ch:
			signal.Stop(ch)
			cancel(fmt.Errorf("%w: signal %s", context.Canceled, s))
		case <-done:
		}
	}()
	return ctx, sync.OnceFunc(func() {
		signal.Stop(ch)
		close(done)
		cancel(context.Canceled)
	})
}
