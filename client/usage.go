package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/onefold-dev/onefold/api"
)

// UsageOpts narrow Usage and say what it tells apart; nil means all calls of
// the last seven days in one row.
type UsageOpts struct {
	// From and To are the first and the last day, UTC.
	From, To time.Time
	Kind     string
	// By holds any of day, tenant, kind, provider, model.
	By []string
}

// Usage reports what calls came to: how many, their tokens and cost, and what
// folded duplicates saved. A tenant's key sees its own only. Errors: ErrInvalid
// for a span over 400 days.
func (c *Client) Usage(ctx context.Context, o *UsageOpts) ([]api.UsageRow, error) {
	r := &request{op: "usage", method: http.MethodGet, path: []string{"v1", "usage"}, query: url.Values{}}
	if o != nil {
		for _, what := range o.By {
			r.query.Add("by", what)
		}
		if o.Kind != "" {
			r.query.Set("kind", o.Kind)
		}
		if !o.From.IsZero() {
			r.query.Set("from", o.From.UTC().Format(time.DateOnly))
		}
		if !o.To.IsZero() {
			r.query.Set("to", o.To.UTC().Format(time.DateOnly))
		}
	}
	a, err := c.do(ctx, r)
	if err != nil {
		return nil, err
	}
	var page api.List[api.UsageRow]
	if err := decode(r, a, &page); err != nil {
		return nil, err
	}
	return page.Items, nil
}
