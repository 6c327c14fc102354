package main

import "context"

type eraseCmd struct {
	which
	Reason string `required:"" placeholder:"TEXT" help:"Who asked for it and why, for the audit."`
}

func (c *eraseCmd) Run(ctx context.Context, e *env) error {
	cl, err := e.client()
	if err != nil {
		return err
	}
	id, err := c.task(ctx, cl)
	if err != nil {
		return err
	}
	t, err := cl.Erase(ctx, id, c.Reason)
	if err != nil {
		return err
	}
	return e.show(t, "payload erased; key and outcome stay")
}
