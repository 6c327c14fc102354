package main

import (
	"context"
	"fmt"

	"github.com/onefold-dev/onefold/api"
)

type cancelCmd struct {
	which
}

func (c *cancelCmd) Run(ctx context.Context, e *env) error {
	cl, err := e.client()
	if err != nil {
		return err
	}
	id, err := c.task(ctx, cl)
	if err != nil {
		return err
	}
	t, err := cl.Cancel(ctx, id)
	if err != nil {
		return err
	}
	how := "cancelled"
	if t.State != api.Cancelled {
		how = "still running: a call that is out cannot be called back, what it brings will be dropped"
	}
	if err := e.show(t, how); err != nil || e.json || t.Cancel == nil {
		return err
	}
	return e.print(fmt.Sprintf("%-10s%s\n", "billing", clean(t.Cancel.Note)))
}
