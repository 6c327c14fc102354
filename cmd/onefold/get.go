package main

import (
	"context"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/client"
)

type getCmd struct {
	ID    string        `arg:"" help:"The task's id."`
	Wait  time.Duration `placeholder:"DURATION" help:"Let the server hold its answer so long (at most 60s) until the task is settled."`
	Queue bool          `help:"Show its approximate place in the queue."`
}

func (c *getCmd) Run(ctx context.Context, e *env) error {
	cl, err := e.client()
	if err != nil {
		return err
	}
	t, err := cl.Get(ctx, c.ID, &client.GetOpts{Wait: c.Wait, Queue: c.Queue})
	if err != nil {
		return err
	}
	return e.show(t, "")
}

type resultCmd struct {
	ID string `arg:"" help:"The task's id."`
}

func (c *resultCmd) Run(ctx context.Context, e *env) error {
	return e.bytes(func(cl *client.Client) ([]byte, error) { return cl.Result(ctx, c.ID) })
}

type inputCmd struct {
	ID string `arg:"" help:"The task's id."`
}

func (c *inputCmd) Run(ctx context.Context, e *env) error {
	return e.bytes(func(cl *client.Client) ([]byte, error) { return cl.Input(ctx, c.ID) })
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
