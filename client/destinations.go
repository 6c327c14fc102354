package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/onefold-dev/onefold/api"
)

// Destinations lists where effects go, with what waits there and which secrets sign. It and all that follows need an
// instance key.
func (c *Client) Destinations(ctx context.Context) ([]api.Destination, error) {
	return items[api.Destination](ctx, c, &request{op: "list destinations", method: http.MethodGet, path: []string{"v1", "destinations"}})
}

// Destination reads one of them. Errors: ErrNotFound.
func (c *Client) Destination(ctx context.Context, name string) (*api.Destination, error) {
	return ask[api.Destination](ctx, c, &request{op: "read destination", method: http.MethodGet, path: []string{"v1", "destinations", name}})
}

// PutDestination makes a destination, or changes one made before. Of one made without a secret the answer holds the one
// that was made: nobody is told it again. Errors: ErrInvalid, ErrConflict where it stands in onefold.yaml.
func (c *Client) PutDestination(ctx context.Context, name string, d api.PutDestination) (*api.DestinationPut, error) {
	b, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("put destination: encode: %w", err)
	}
	// Not sent again by itself: the answer to the first may hold a secret that the second does not.
	return ask[api.DestinationPut](ctx, c, &request{op: "put destination", method: http.MethodPut, path: []string{"v1", "destinations", name}, body: b, once: true})
}

// DeleteDestination deletes one that was made through the API. Errors: ErrNotFound, ErrConflict while effects are to go
// there.
func (c *Client) DeleteDestination(ctx context.Context, name string) error {
	_, err := c.do(ctx, &request{op: "delete destination", method: http.MethodDelete, path: []string{"v1", "destinations", name}, once: true})
	return err
}

// HoldDestination keeps effects from going there until it is released. Errors: ErrNotFound, ErrInvalid without a reason.
func (c *Client) HoldDestination(ctx context.Context, name, reason string) (*api.Gate, error) {
	return post[api.Gate](ctx, c, "hold destination", []string{"v1", "destinations", name, "hold"}, api.GateAct{Reason: reason})
}

// ReleaseDestination lets effects go there, whatever stopped them.
func (c *Client) ReleaseDestination(ctx context.Context, name, reason string) (*api.Gate, error) {
	return post[api.Gate](ctx, c, "release destination", []string{"v1", "destinations", name, "release"}, api.GateAct{Reason: reason})
}

// RotateSecret gives a destination made through the API a new signing secret; the former ones sign, too, for the time of
// overlap. Errors: ErrNotFound, ErrConflict where it stands in onefold.yaml, or too many sign.
func (c *Client) RotateSecret(ctx context.Context, name string, r api.RotateSecret) (*api.SecretRotated, error) {
	b, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("rotate secret: encode: %w", err)
	}
	return ask[api.SecretRotated](ctx, c, &request{op: "rotate secret", method: http.MethodPost, path: []string{"v1", "destinations", name, "rotate"}, body: b, once: true})
}

// testHold is how long a server may hold the answer to a test.
const testHold = 50 * time.Second

// TestDestination has a worker send one signed test event there and waits for what comes of it. At a mail server to gets
// the mail. Errors: ErrNotFound, ErrInvalid, ErrUnavailable where no worker took it.
func (c *Client) TestDestination(ctx context.Context, name, to string) (*api.DestinationTest, error) {
	b, err := json.Marshal(api.TestDestination{To: to})
	if err != nil {
		return nil, fmt.Errorf("test destination: encode: %w", err)
	}
	return ask[api.DestinationTest](ctx, c, &request{op: "test destination", method: http.MethodPost, path: []string{"v1", "destinations", name, "test"}, body: b, once: true, hold: testHold})
}
