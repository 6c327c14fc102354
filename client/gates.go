package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/onefold-dev/onefold/api"
)

// Holds lists the holds of the key's tenant; an instance key sees all.
func (c *Client) Holds(ctx context.Context) ([]api.Hold, error) {
	return items[api.Hold](ctx, c, &request{op: "list holds", method: http.MethodGet, path: []string{"v1", "holds"}})
}

// Hold sets a hold, or adds to the one there is for the same names. A tenant's
// key holds its own tenant only. Errors: ErrInvalid, ErrForbidden.
func (c *Client) Hold(ctx context.Context, h api.NewHold) (*api.Hold, error) {
	return post[api.Hold](ctx, c, "hold", []string{"v1", "holds"}, h)
}

// Release takes a hold away and returns it; what waits goes on within seconds.
// Errors: ErrNotFound.
func (c *Client) Release(ctx context.Context, id, reason string) (*api.Hold, error) {
	r := &request{op: "release", method: http.MethodDelete, path: []string{"v1", "holds", id}, query: url.Values{"reason": {reason}}}
	return ask[api.Hold](ctx, c, r)
}

// Providers lists the providers with their gates and what waits for them. It
// needs an instance key.
func (c *Client) Providers(ctx context.Context) ([]api.Provider, error) {
	return items[api.Provider](ctx, c, &request{op: "list providers", method: http.MethodGet, path: []string{"v1", "providers"}})
}

// HoldProvider stops calls to a provider until it is released. Errors:
// ErrNotFound, ErrInvalid without a reason.
func (c *Client) HoldProvider(ctx context.Context, name, reason string) (*api.Gate, error) {
	return c.gate(ctx, name, "hold", reason)
}

// ReleaseProvider lets calls to a provider go on, whatever stopped them.
func (c *Client) ReleaseProvider(ctx context.Context, name, reason string) (*api.Gate, error) {
	return c.gate(ctx, name, "release", reason)
}

func (c *Client) gate(ctx context.Context, name, act, reason string) (*api.Gate, error) {
	return post[api.Gate](ctx, c, act+" provider", []string{"v1", "providers", name, act}, api.GateAct{Reason: reason})
}

// post sends a body and decodes the answer. These acts may be repeated: what is
// held is held.
func post[T any](ctx context.Context, c *Client, op string, path []string, body any) (*T, error) {
	b, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("%s: encode: %w", op, err)
	}
	return ask[T](ctx, c, &request{op: op, method: http.MethodPost, path: path, body: b})
}

func ask[T any](ctx context.Context, c *Client, r *request) (*T, error) {
	a, err := c.do(ctx, r)
	if err != nil {
		return nil, err
	}
	var v T
	if err := decode(r, a, &v); err != nil {
		return nil, err
	}
	return &v, nil
}

func items[T any](ctx context.Context, c *Client, r *request) ([]T, error) {
	page, err := ask[api.List[T]](ctx, c, r)
	if err != nil {
		return nil, err
	}
	return page.Items, nil
}
