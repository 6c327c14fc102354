package client

import (
	"context"
	"net/http"

	"github.com/onefold-dev/onefold/api"
)

// Timeline tells everything that is known of a task, oldest first: who asked for
// it, what was called, what left the building. Errors: those of Get.
func (c *Client) Timeline(ctx context.Context, id string) (*api.Timeline, error) {
	return read[api.Timeline](ctx, c, "timeline", id, "timeline")
}

// Diagnose says which known way of doing something twice a task looks like, with
// the evidence, or that it cannot tell. Errors: those of Get.
func (c *Client) Diagnose(ctx context.Context, id string) (*api.Diagnosis, error) {
	return read[api.Diagnosis](ctx, c, "diagnose", id, "diagnosis")
}

func read[T any](ctx context.Context, c *Client, op, id, what string) (*T, error) {
	r, err := onTask(op, http.MethodGet, id, what)
	if err != nil {
		return nil, err
	}
	a, err := c.do(ctx, r)
	if err != nil {
		return nil, err
	}
	v := new(T)
	if err := decode(r, a, v); err != nil {
		return nil, err
	}
	return v, nil
}
