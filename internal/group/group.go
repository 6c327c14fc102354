// Package group decides which requests share one transaction: callers wait, and
// one flush serves all that queued while the last one ran.
package group

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/onefold-dev/onefold/internal/store"
)

// ErrClosed is returned for requests that come after Close.
var ErrClosed = errors.New("group is closed")

// Opts are the limits of a group; zero values mean the defaults.
type Opts struct {
	Max      int           // requests in one flush; 256
	MaxBytes int           // sum of their sizes in one flush, one request always fits; 16 MiB
	Flushers int           // flushes at the same time; 2
	Timeout  time.Duration // of one flush; 30 s
	// Single says which errors are one member's fault, so that each is flushed
	// on its own; store.DataError if nil.
	Single func(error) bool
}

func (o *Opts) defaults() Opts {
	var d Opts
	if o != nil {
		d = *o
	}
	if d.Max <= 0 {
		d.Max = 256
	}
	if d.MaxBytes <= 0 {
		d.MaxBytes = 16 << 20
	}
	if d.Flushers <= 0 {
		d.Flushers = 2
	}
	if d.Timeout <= 0 {
		d.Timeout = 30 * time.Second
	}
	if d.Single == nil {
		d.Single = store.DataError
	}
	return d
}

// Flush serves requests in one transaction and returns one answer for each, in
// order, only after the commit. Its context is never cancelled by a caller.
type Flush[Q, R any] func(ctx context.Context, requests []Q) ([]R, error)

// Group collects requests and flushes them together.
type Group[Q, R any] struct {
	opts  Opts
	flush Flush[Q, R]
	size  func(Q) int

	mu     sync.Mutex
	queue  []*waiting[Q, R]
	more   *sync.Cond
	closed bool
	done   sync.WaitGroup
}

type waiting[Q, R any] struct {
	request Q
	answer  R
	err     error
	ready   chan struct{}
}

// New starts a group. size tells the bytes of a request and may be nil.
func New[Q, R any](flush Flush[Q, R], size func(Q) int, o *Opts) *Group[Q, R] {
	if size == nil {
		size = func(Q) int { return 0 }
	}
	g := &Group[Q, R]{opts: o.defaults(), flush: flush, size: size}
	g.more = sync.NewCond(&g.mu)
	for range g.opts.Flushers {
		g.done.Add(1)
		go g.run()
	}
	return g
}

// Do queues one request and waits for its answer. When ctx ends first, the
// request is still served; only its answer is lost.
func (g *Group[Q, R]) Do(ctx context.Context, request Q) (R, error) {
	w := &waiting[Q, R]{request: request, ready: make(chan struct{})}
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return w.answer, ErrClosed
	}
	g.queue = append(g.queue, w)
	g.mu.Unlock()
	g.more.Signal()
	select {
	case <-w.ready:
		return w.answer, w.err
	case <-ctx.Done():
		var none R
		return none, ctx.Err()
	}
}

// DoAll queues requests side by side, so that they share as few flushes as the
// limits allow, and waits for all of them. Each has its own answer or error.
// When ctx ends first, all are still served; what was not answered by then has
// ctx's error.
func (g *Group[Q, R]) DoAll(ctx context.Context, requests []Q) ([]R, []error) {
	answers, errs := make([]R, len(requests)), make([]error, len(requests))
	all := make([]*waiting[Q, R], len(requests))
	for i, q := range requests {
		all[i] = &waiting[Q, R]{request: q, ready: make(chan struct{})}
	}
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		for i := range errs {
			errs[i] = ErrClosed
		}
		return answers, errs
	}
	g.queue = append(g.queue, all...)
	g.mu.Unlock()
	g.more.Signal()
	for i, w := range all {
		select {
		case <-w.ready:
			answers[i], errs[i] = w.answer, w.err
		case <-ctx.Done():
			errs[i] = ctx.Err()
		}
	}
	return answers, errs
}

// Close lets what is queued be served and waits for it.
func (g *Group[Q, R]) Close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.more.Broadcast()
	g.done.Wait()
}

func (g *Group[Q, R]) run() {
	defer g.done.Done()
	for {
		batch := g.take()
		if batch == nil {
			return
		}
		g.serve(batch)
		for _, w := range batch {
			close(w.ready)
		}
	}
}

func (g *Group[Q, R]) take() []*waiting[Q, R] {
	g.mu.Lock()
	defer g.mu.Unlock()
	for len(g.queue) == 0 {
		if g.closed {
			return nil
		}
		g.more.Wait()
	}
	n, bytes := 0, 0
	for n < len(g.queue) && n < g.opts.Max {
		bytes += g.size(g.queue[n].request)
		if n > 0 && bytes > g.opts.MaxBytes {
			break
		}
		n++
	}
	batch := g.queue[:n:n]
	g.queue = append([]*waiting[Q, R](nil), g.queue[n:]...)
	if len(g.queue) > 0 {
		g.more.Signal()
	}
	return batch
}

// serve flushes a batch. A deadlock or serialization failure is tried again;
// where the data of a member is at fault, each is flushed on its own, so that
// the bad one hurts only itself.
func (g *Group[Q, R]) serve(batch []*waiting[Q, R]) {
	err := g.once(batch)
	if err == nil {
		return
	}
	if len(batch) > 1 && g.opts.Single(err) {
		for _, w := range batch {
			if err := g.once([]*waiting[Q, R]{w}); err != nil {
				w.err = err
			}
		}
		return
	}
	for _, w := range batch {
		w.err = err
	}
}

// A flush that Postgres rolls back for a deadlock or a serialization failure is
// tried again so often, after pauses that grow to maxPause: two or three seconds
// in all, far more than any conflict of ours lasts.
const (
	retries  = 50
	maxPause = 100 * time.Millisecond
)

func (g *Group[Q, R]) once(batch []*waiting[Q, R]) error {
	requests := make([]Q, len(batch))
	for i, w := range batch {
		requests[i] = w.request
	}
	for try := 0; ; try++ {
		answers, err := g.guarded(requests)
		if err == nil {
			for i, w := range batch {
				w.answer = answers[i]
			}
			return nil
		}
		if try == retries || !store.Retryable(err) {
			return err
		}
		time.Sleep(rand.N(min(time.Duration(try+1)*5*time.Millisecond, maxPause)))
	}
}

func (g *Group[Q, R]) guarded(requests []Q) (answers []R, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), g.opts.Timeout)
	defer cancel()
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("flush panicked: %v", r)
		}
	}()
	answers, err = g.flush(ctx, requests)
	if err == nil && len(answers) != len(requests) {
		err = fmt.Errorf("flush gave %d answers to %d requests", len(answers), len(requests))
	}
	return answers, err
}
