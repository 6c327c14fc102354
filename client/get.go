package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/onefold-dev/onefold/api"
)

// ErrNotModified is returned by Get when the task still has the ETag given.
var ErrNotModified = errors.New("not modified")

// GetOpts are the choices of Get; nil means none of them.
type GetOpts struct {
	// Wait asks the server to hold its answer until the task is settled, at
	// most 60 s. It may come back unsettled; see Client.Wait.
	Wait time.Duration
	// ETag of a task read before: an unchanged one gives ErrNotModified.
	ETag string
	// Queue asks for an approximate position and time to wait.
	Queue bool
}

// Get reads a task. Errors: ErrNotFound also for another tenant's task,
// ErrExpired after its retention, ErrNotModified.
func (c *Client) Get(ctx context.Context, id string, o *GetOpts) (*api.Task, error) {
	t, _, err := c.get(ctx, "get", id, o)
	return t, err
}

// get returns besides the task when the server wants to be asked again.
func (c *Client) get(ctx context.Context, op, id string, o *GetOpts) (*api.Task, time.Duration, error) {
	r, err := onTask(op, http.MethodGet, id)
	if err != nil {
		return nil, 0, err
	}
	if o != nil {
		if o.Wait > 0 {
			r.hold = min(o.Wait, maxPoll)
			r.query.Set("wait", seconds(r.hold)+"s")
		}
		if o.Queue {
			r.query.Set("include", "queue")
		}
		if o.ETag != "" {
			r.header.Set("If-None-Match", o.ETag)
		}
	}
	a, err := c.do(ctx, r)
	if err != nil {
		return nil, 0, err
	}
	hint := retryAfter(a.header, time.Now())
	if a.status == http.StatusNotModified {
		return nil, hint, ErrNotModified
	}
	t, err := decodeTask(r, a)
	return t, hint, err
}

// Input returns the task's input, the bytes as they were submitted.
func (c *Client) Input(ctx context.Context, id string) ([]byte, error) {
	return c.raw(ctx, "input", id)
}

// Result returns the task's result, the bytes as they were stored. Errors:
// ErrConflict while there is none, ErrExpired when it was purged. A Task
// carries the same bytes, but for white space around them.
func (c *Client) Result(ctx context.Context, id string) ([]byte, error) {
	return c.raw(ctx, "result", id)
}

func (c *Client) raw(ctx context.Context, what, id string) ([]byte, error) {
	r, err := onTask(what, http.MethodGet, id, what)
	if err != nil {
		return nil, err
	}
	a, err := c.do(ctx, r)
	if err != nil {
		return nil, err
	}
	return a.body, nil
}

// Find returns the newest task of kind under key, or ErrNotFound.
func (c *Client) Find(ctx context.Context, kind, key string) (*api.Task, error) {
	for t, err := range c.List(ctx, ListOpts{Kind: kind, Key: key, Limit: 1}) {
		if err != nil {
			return nil, err
		}
		return c.Get(ctx, t.ID, nil) // lists are without results
	}
	return nil, &callError{op: "find", err: api.Errorf(api.CodeNotFound, "no task of kind %q has this key", kind)}
}

// onTask is a request about one task.
func onTask(op, method, id string, more ...string) (*request, error) {
	if id == "" || id == "." || id == ".." {
		return nil, &callError{op: op, err: api.Errorf(api.CodeInvalidParam, "%q is no task id", id).WithField("id").
			WithFix("Pass the id that Submit returned; with a key use Find.")}
	}
	return &request{
		op: fmt.Sprintf("%s %s", op, id), method: method, path: append([]string{"v1", "tasks", id}, more...),
		query: url.Values{}, header: http.Header{},
	}, nil
}
