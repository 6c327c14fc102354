package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/onefold-dev/onefold/api"
)

// Cancel asks for a task to be cancelled and returns it as it then stands. Two
// answers differ: State is cancelled, and it is over; or CancelAsked is true
// and the task still runs: a call that is out cannot be called back, the worker
// drops what it brings. Asking again changes nothing. Errors: ErrNotFound,
// ErrConflict when the task already ended in another way.
func (c *Client) Cancel(ctx context.Context, id string) (*api.Task, error) {
	r, err := onTask("cancel", http.MethodPost, id, "cancel")
	if err != nil {
		return nil, err
	}
	a, err := c.do(ctx, r)
	if err != nil {
		return nil, err
	}
	t, err := decodeTask(r, a)
	if err == nil && a.status == http.StatusAccepted && t.State != api.Cancelled {
		t.CancelAsked = true
	}
	return t, err
}

// Retry runs a failed or unknown task again, as it stood at epoch. It is not
// sent again where it may have been done; ErrUnavailable then says so, and the
// task's epoch shows it. Errors: ErrConflict when the task has moved since.
func (c *Client) Retry(ctx context.Context, id string, epoch int64, reason string) (*api.Task, error) {
	body, err := json.Marshal(api.Retry{Epoch: epoch, Reason: reason})
	if err != nil {
		return nil, fmt.Errorf("encode retry: %w", err)
	}
	return c.act(ctx, "retry", id, body)
}

// Resolve decides what became of a task whose outcome is unknown. Errors and
// repetition are those of Retry.
func (c *Client) Resolve(ctx context.Context, id string, res api.Resolve) (*api.Task, error) {
	body, err := res.Append(nil)
	if err != nil {
		return nil, err
	}
	return c.act(ctx, "resolve", id, body)
}

// Erase takes a task's payload away: input, result, metadata, replies, what its
// effects carried. Key, outcome and hashes stay, so that duplicates are still
// answered. Asking again changes nothing. Errors: ErrConflict when the task has
// not ended or an effect of it is still to be delivered, ErrNotFound.
func (c *Client) Erase(ctx context.Context, id, reason string) (*api.Task, error) {
	r, err := onTask("erase", http.MethodDelete, id, "payload")
	if err != nil {
		return nil, err
	}
	if reason != "" {
		r.query.Set("reason", reason)
	}
	a, err := c.do(ctx, r)
	if err != nil {
		return nil, err
	}
	return decodeTask(r, a)
}

// MarkDuplicate says that a task repeats the one named in of; it changes nothing
// else of either. It may be repeated. Errors: ErrConflict when it is marked as a
// duplicate of another one.
func (c *Client) MarkDuplicate(ctx context.Context, id, of, reason string) (*api.Task, error) {
	body, err := marshal(api.MarkDuplicate{Of: of, Reason: reason})
	if err != nil {
		return nil, err
	}
	r, err := onTask("mark duplicate", http.MethodPost, id, "mark-duplicate")
	if err != nil {
		return nil, err
	}
	r.body = body
	a, err := c.do(ctx, r)
	if err != nil {
		return nil, err
	}
	return decodeTask(r, a)
}

func (c *Client) act(ctx context.Context, what, id string, body []byte) (*api.Task, error) {
	r, err := onTask(what, http.MethodPost, id, what)
	if err != nil {
		return nil, err
	}
	r.body, r.once = body, true
	a, err := c.do(ctx, r)
	if err != nil {
		return nil, err
	}
	return decodeTask(r, a)
}

func marshal(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode the request: %w", err)
	}
	return b, nil
}
