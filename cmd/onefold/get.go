package main

import (
	"context"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/client"
)

type getCmd struct {
	which
	Wait  time.Duration `placeholder:"DURATION" help:"Let the server hold its answer so long (at most 60s) until the task is settled."`
	Queue bool          `help:"Show its approximate place in the queue."`
}

func (c *getCmd) Run(ctx context.Context, e *env) error {
	cl, err := e.client()
	if err != nil {
		return err
	}
	id, err := c.task(ctx, cl)
	if err != nil {
		return err
	}
	t, err := cl.Get(ctx, id, &client.GetOpts{Wait: c.Wait, Queue: c.Queue})
	if err != nil {
		return err
	}
	return e.show(t, "")
}

type resultCmd struct {
	which
}

func (c *resultCmd) Run(ctx context.Context, e *env) error {
	return e.part(ctx, &c.which, func(cl *client.Client, id string) ([]byte, error) { return cl.Result(ctx, id) })
}

type inputCmd struct {
	which
}

func (c *inputCmd) Run(ctx context.Context, e *env) error {
	return e.part(ctx, &c.which, func(cl *client.Client, id string) ([]byte, error) { return cl.Input(ctx, id) })
}

// part prints bytes of the task meant.
func (e *env) part(ctx context.Context, w *which, read func(*client.Client, string) ([]byte, error)) error {
	return e.bytes(func(cl *client.Client) ([]byte, error) {
		id, err := w.task(ctx, cl)
		if err != nil {
			return nil, err
		}
		return read(cl, id)
	})
}

// bytes prints what read gives as it is; on a terminal made harmless, with a
// line end.
func (e *env) bytes(read func(*client.Client) ([]byte, error)) error {
	cl, err := e.client()
	if err != nil {
		return err
	}
	b, err := read(cl)
	if err != nil {
		return err
	}
	if e.tty {
		return e.print(clean(string(b)) + "\n")
	}
	return e.print(string(b))
}

// endOf is the exit code of a settled task.
func endOf(t *api.Task) error {
	if code := stateCode(t.State); code != exitOK {
		return ending(code)
	}
	return nil
}
