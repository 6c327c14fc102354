package client

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/onefold-dev/onefold/api"
)

// ReviewOpts narrows the review queue; a zero field does not.
type ReviewOpts struct {
	What        api.ReviewWhat
	Kind        string
	Destination string // effects only
	Reason      api.ReviewReason
	Age         api.ReviewAge
	Since       time.Time // in the queue since this time or later
	Until       time.Time // since before this time
	Tenant      string    // for instance keys
	Limit       int       // items a page, at most 200; the server's default when 0
}

func (o ReviewOpts) query() url.Values {
	q := url.Values{}
	for name, v := range map[string]string{
		"what": string(o.What), "kind": o.Kind, "destination": o.Destination, "reason": string(o.Reason), "age": string(o.Age), "tenant": o.Tenant,
	} {
		if v != "" {
			q.Set(name, v)
		}
	}
	for name, t := range map[string]time.Time{"since": o.Since, "until": o.Until} {
		if !t.IsZero() {
			q.Set(name, t.UTC().Format(time.RFC3339Nano))
		}
	}
	if o.Limit > 0 {
		q.Set("limit", strconv.Itoa(o.Limit))
	}
	return q
}

// Review goes through what waits for a person, the longest in the queue first, a
// page at a time as the loop needs them. An error ends it.
func (c *Client) Review(ctx context.Context, o ReviewOpts) iter.Seq2[*api.ReviewItem, error] {
	return func(yield func(*api.ReviewItem, error) bool) {
		r := &request{op: "review", method: http.MethodGet, path: []string{"v1", "review"}, query: o.query()}
		for {
			page, err := ask[api.ReviewPage](ctx, c, r)
			if err != nil {
				yield(nil, err)
				return
			}
			for i := range page.Items {
				if !yield(&page.Items[i], nil) {
					return
				}
			}
			if page.Next == nil || *page.Next == "" {
				return
			}
			if r.query.Get("cursor") == *page.Next {
				yield(nil, errors.New("review: the next page is this one"))
				return
			}
			r.query.Set("cursor", *page.Next)
		}
	}
}

// CountReview counts what waits for a person, by reason and age.
func (c *Client) CountReview(ctx context.Context, o ReviewOpts) (*api.ReviewCount, error) {
	o.Limit = 1
	q := o.query()
	q.Set("count", "true")
	page, err := ask[api.ReviewPage](ctx, c, &request{op: "count review", method: http.MethodGet, path: []string{"v1", "review"}, query: q})
	if err != nil {
		return nil, err
	}
	if page.Count == nil {
		return nil, errors.New("count review: the answer has no count")
	}
	return page.Count, nil
}

// ReviewItem reads all that is known of one item. Errors: ErrNotFound when it is
// not in the queue.
func (c *Client) ReviewItem(ctx context.Context, id string) (*api.ReviewDetail, error) {
	return ask[api.ReviewDetail](ctx, c, &request{op: "review item", method: http.MethodGet, path: []string{"v1", "review", id}})
}

// ReviewAct makes one decision about up to 1,000 items, each as it stood at the
// epoch given, and returns what came of each, in their order. It may be repeated:
// what was done is done, and answered the same.
func (c *Client) ReviewAct(ctx context.Context, acts api.ReviewActs) ([]api.ReviewActed, error) {
	page, err := post[api.List[api.ReviewActed]](ctx, c, "act on review", []string{"v1", "review", "acts"}, acts)
	if err != nil {
		return nil, err
	}
	if len(page.Items) != len(acts.Items) {
		return nil, errors.New("act on review: the answer has another number of items")
	}
	return page.Items, nil
}

// Effects lists the side effects of a task, each with its deliveries.
func (c *Client) Effects(ctx context.Context, taskID string) ([]api.Effect, error) {
	return items[api.Effect](ctx, c, &request{op: "list effects", method: http.MethodGet, path: []string{"v1", "tasks", taskID, "effects"}})
}

// Redeliver has an effect, as it stood at epoch, sent again under the same id and
// signed anew. It may be repeated. Errors: ErrConflict when it has moved since.
func (c *Client) Redeliver(ctx context.Context, effectID string, epoch int64, reason string) (*api.Effect, error) {
	return c.onEffect(ctx, effectID, "redeliver", api.EffectAct{Epoch: epoch, Reason: reason})
}

// Discard says that an effect is never to be sent. Errors and repetition are
// those of Redeliver.
func (c *Client) Discard(ctx context.Context, effectID string, epoch int64, reason string) (*api.Effect, error) {
	return c.onEffect(ctx, effectID, "discard", api.EffectAct{Epoch: epoch, Reason: reason})
}

// ResolveDelivered says of an effect of unknown outcome that it arrived. Errors
// and repetition are those of Redeliver.
func (c *Client) ResolveDelivered(ctx context.Context, effectID string, epoch int64, reason string) (*api.Effect, error) {
	return c.onEffect(ctx, effectID, "resolve", api.EffectAct{Action: api.ReviewDelivered, Epoch: epoch, Reason: reason})
}

func (c *Client) onEffect(ctx context.Context, id, what string, act api.EffectAct) (*api.Effect, error) {
	if id == "" {
		return nil, api.Errorf(api.CodeNotFound, "there is no effect without an id")
	}
	return post[api.Effect](ctx, c, what, []string{"v1", "effects", id, what}, act)
}
