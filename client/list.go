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

// ListOpts narrows List; a zero field does not.
type ListOpts struct {
	States []api.State
	Kind   string
	Key    string    // needs Kind
	After  time.Time // created at or after
	Before time.Time // created before
	// Metadata that the tasks have, name by name.
	Metadata  map[string]string
	TraceID   string
	Batch     string // made by lines of this batch
	InputHash string
	Limit     int // tasks a page, at most 200; the server's default when 0
}

// List goes through the tasks, newest first and without their results, a page
// at a time as the loop needs them. An error ends it. Tasks submitted meanwhile
// may be missing; none comes twice.
func (c *Client) List(ctx context.Context, o ListOpts) iter.Seq2[*api.Task, error] {
	return func(yield func(*api.Task, error) bool) {
		r := &request{op: "list", method: http.MethodGet, path: []string{"v1", "tasks"}, query: o.query()}
		for {
			a, err := c.do(ctx, r)
			if err != nil {
				yield(nil, err)
				return
			}
			var page api.List[*api.Task]
			if err := decode(r, a, &page); err != nil {
				yield(nil, err)
				return
			}
			for _, t := range page.Items {
				if !yield(t, nil) {
					return
				}
			}
			if page.Next == nil || *page.Next == "" {
				return
			}
			if r.query.Get("cursor") == *page.Next {
				yield(nil, notOurs(r, a, errors.New("the next page is this one")))
				return
			}
			r.query.Set("cursor", *page.Next)
		}
	}
}

func (o ListOpts) query() url.Values {
	q := url.Values{}
	for _, s := range o.States {
		q.Add("state", string(s))
	}
	set := func(name, v string) {
		if v != "" {
			q.Set(name, v)
		}
	}
	set("kind", o.Kind)
	set("key", o.Key)
	set("trace", o.TraceID)
	set("batch", o.Batch)
	set("input_hash", o.InputHash)
	for name, value := range o.Metadata {
		q.Set("metadata["+name+"]", value)
	}
	if !o.After.IsZero() {
		q.Set("created_after", o.After.UTC().Format(time.RFC3339Nano))
	}
	if !o.Before.IsZero() {
		q.Set("created_before", o.Before.UTC().Format(time.RFC3339Nano))
	}
	if o.Limit > 0 {
		q.Set("limit", strconv.Itoa(o.Limit))
	}
	return q
}
