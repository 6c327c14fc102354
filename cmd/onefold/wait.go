package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/client"
)

// maxWaits is how many long polls one command holds open.
const maxWaits = 16

type waitCmd struct {
	IDs []string `arg:"" optional:"" name:"id" help:"The tasks' ids; none with --kind and --key."`
	byKey
	Timeout time.Duration `placeholder:"DURATION" help:"Stop waiting after this long; the tasks go on."`
}

func (c *waitCmd) Run(ctx context.Context, e *env) error {
	cl, err := e.client()
	if err != nil {
		return err
	}
	if len(c.IDs) == 0 || c.Key != "" || c.Kind != "" {
		id, err := c.find(ctx, cl, strings.Join(c.IDs, " "))
		if err != nil {
			return err
		}
		c.IDs = []string{id}
	}
	outer := ctx
	if c.Timeout > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, c.Timeout)
		defer stop()
	}
	if len(c.IDs) == 1 {
		t, err := waitFor(ctx, cl, &api.Task{ID: c.IDs[0]})
		if err != nil {
			return stopped(outer, e, t, err)
		}
		if err := e.show(t, ""); err != nil {
			return err
		}
		return endOf(t)
	}
	return c.several(ctx, outer, e, cl)
}

// several waits for all ids and prints each as it settles.
func (c *waitCmd) several(ctx, outer context.Context, e *env, cl *client.Client) error {
	var mu sync.Mutex // guards codes and the output
	var codes []int
	var all sync.WaitGroup
	room := make(chan struct{}, maxWaits)
	for _, id := range c.IDs {
		all.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			t, err := waitFor(ctx, cl, &api.Task{ID: id})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				codes = append(codes, e.report(outer, stopped(outer, e, t, err)))
				return
			case e.brief(t) != nil:
				codes = append(codes, exitError)
				return
			}
			codes = append(codes, stateCode(t.State))
		})
	}
	all.Wait()
	for _, code := range worst {
		if slices.Contains(codes, code) {
			return ending(code)
		}
	}
	return nil
}

// waitFor waits until t is settled. An error means that it is not: how a
// settled task ended is in its state.
func waitFor(ctx context.Context, cl *client.Client, t *api.Task) (*api.Task, error) {
	if t.State.Settled() {
		return t, nil
	}
	seen, err := cl.Wait(ctx, t.ID)
	switch {
	case seen != nil && seen.State.Settled():
		return seen, nil
	case seen != nil:
		return seen, err
	default:
		return t, err
	}
}

// stopped explains a wait that ended before its task: by the person, by
// --timeout, or by what err says.
func stopped(ctx context.Context, e *env, t *api.Task, err error) error {
	why := ""
	switch {
	case ctx.Err() != nil:
		why = "interrupted"
	case errors.Is(err, context.DeadlineExceeded):
		why = "the time ran out"
	default:
		return err
	}
	state := ""
	if t.State != "" {
		state = " (" + string(t.State) + ")"
	}
	return &problem{
		code: exitCode(err), cause: err,
		message: why + "; task " + t.ID + state + " goes on",
		fix:     "Look again with `onefold wait " + t.ID + "`, or stop it with `onefold cancel " + t.ID + "`.",
	}
}
