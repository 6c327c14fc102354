package client

import (
	"context"
	"net/http"
	"strconv"

	"github.com/onefold-dev/onefold/api"
)

// Attempts lists the tries at a task, oldest first: how far each call came,
// what came of it, what it cost. For a task whose outcome is unknown this is
// the evidence to resolve it by. Errors: those of Get.
func (c *Client) Attempts(ctx context.Context, id string) ([]api.Attempt, error) {
	r, err := onTask("attempts", http.MethodGet, id, "attempts")
	if err != nil {
		return nil, err
	}
	a, err := c.do(ctx, r)
	if err != nil {
		return nil, err
	}
	var page api.List[api.Attempt]
	if err := decode(r, a, &page); err != nil {
		return nil, err
	}
	return page.Items, nil
}

// AttemptPart reads what is kept of an attempt, byte for byte; Attempt.Parts
// names what there is. Errors: ErrNotFound where there is no such part,
// ErrForbidden without the scope operate.
func (c *Client) AttemptPart(ctx context.Context, id string, epoch int64, part api.AttemptPart) ([]byte, error) {
	r, err := onTask("attempt part", http.MethodGet, id, "attempts", strconv.FormatInt(epoch, 10), string(part))
	if err != nil {
		return nil, err
	}
	a, err := c.do(ctx, r)
	if err != nil {
		return nil, err
	}
	return a.body, nil
}
