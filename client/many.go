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

const opSubmitMany = "submit many"

// How much goes into one request of SubmitMany. The server takes 8 MiB.
const (
	maxBulkBytes = 8<<20 - 1<<10
	bulkStart    = `{"tasks":[`
	bulkEnd      = `]}`
)

// Submitted is what became of one item of SubmitMany: the task, or the error
// that Submit would have returned for it.
type Submitted struct {
	Task *api.Task
	Err  error
}

// SubmitMany hands over many tasks, up to 1,000 a request, and returns one
// answer for each, in their order. Each stands for itself, as if it had been
// given to Submit: one that is refused or fails changes nothing for the others.
// It is much cheaper than Submit in a loop, for tasks of one request share a
// commit. Every item needs its key; NoKey says that it has none.
//
// What is away for now is sent again under the same keys, as Submit does; after
// all retries the items concerned have ErrUnavailable, and the call may be made
// again with the same items.
func (c *Client) SubmitMany(ctx context.Context, items []api.Keyed) []Submitted {
	out := make([]Submitted, len(items))
	var keyed, free []packed
	for i := range items {
		p, err := pack(i, items[i])
		switch {
		case err != nil:
			out[i].Err = err
		case items[i].Key == NoKey:
			free = append(free, p)
		default:
			keyed = append(keyed, p)
		}
	}
	for _, list := range [][]packed{keyed, free} {
		once := len(list) > 0 && items[list[0].at].Key == NoKey
		for len(list) > 0 {
			n := fitting(list)
			c.submitChunk(ctx, items, list[:n], once, out)
			list = list[n:]
		}
	}
	return out
}

// packed is one item as it is sent.
type packed struct {
	at   int
	body []byte
}

func pack(at int, item api.Keyed) (packed, error) {
	if err := checkKey(item.Key); err != nil {
		return packed{}, err
	}
	if item.Key == NoKey {
		item.Key = ""
	}
	body, err := item.Append(nil)
	return packed{at, body}, err
}

// fitting is how many of list go into one request; at least one.
func fitting(list []packed) int {
	size := 0
	for n, p := range list {
		size += len(p.body) + 1
		if n == api.MaxBulk || n > 0 && size > maxBulkBytes {
			return n
		}
	}
	return len(list)
}

// submitChunk sends one request, and again those of its items that the server
// could not serve for now.
func (c *Client) submitChunk(ctx context.Context, items []api.Keyed, list []packed, once bool, out []Submitted) {
	if len(list) == 1 && len(list[0].body) > maxBulkBytes { // as large as a task may be: no room for the frame
		i := list[0].at
		out[i].Task, out[i].Err = c.Submit(ctx, items[i].Key, items[i].Submit, nil)
		return
	}
	for try := 1; ; try++ {
		again := c.submitOnce(ctx, items, list, once, out)
		if len(again) == 0 || once || try > c.retries {
			return
		}
		wait := pause(0, try)
		if end, ok := ctx.Deadline(); ok && time.Until(end) <= wait {
			return
		}
		if c.onRetry != nil {
			c.onRetry(Retried{Op: opSubmitMany, Try: try, Wait: wait, Err: out[again[0].at].Err})
		}
		if sleep(ctx, wait) != nil {
			return
		}
		list = again
	}
}

// submitOnce sends list and notes the answers. It returns those to be sent again.
func (c *Client) submitOnce(ctx context.Context, items []api.Keyed, list []packed, once bool, out []Submitted) (again []packed) {
	r := &request{op: opSubmitMany, method: http.MethodPost, path: []string{"v1", "tasks", "bulk"}, header: http.Header{}, once: once}
	r.body = append(r.body, bulkStart...)
	for i, p := range list {
		if i > 0 {
			r.body = append(r.body, ',')
		}
		r.body = append(r.body, p.body...)
	}
	r.body = append(r.body, bulkEnd...)
	got, err := c.bulk(ctx, r, len(list))
	for k, p := range list {
		if err != nil {
			out[p.at] = Submitted{Err: err}
			continue
		}
		out[p.at] = judge(r, got[k], items[p.at])
		if err := out[p.at].Err; err != nil && passing(err) {
			again = append(again, p)
		}
	}
	return again
}

func (c *Client) bulk(ctx context.Context, r *request, n int) ([]api.BulkItem, error) {
	a, err := c.do(ctx, r)
	if err != nil {
		return nil, err
	}
	var got api.BulkAnswer
	if err := decode(r, a, &got); err != nil {
		return nil, err
	}
	if len(got.Items) != n {
		return nil, notOurs(r, a, fmt.Errorf("it answers %d tasks of %d", len(got.Items), n))
	}
	return got.Items, nil
}

// judge is one answer for the item it was asked for.
func judge(r *request, got api.BulkItem, item api.Keyed) Submitted {
	switch {
	case got.Error != nil:
		got.Error.Status, got.Error.RetryAfter = got.Status, time.Duration(got.RetryAfter)*time.Second
		return Submitted{Err: &callError{op: opSubmit, err: got.Error}}
	case got.Task == nil || got.Task.ID == "" || got.Task.State == "":
		return Submitted{Err: notOurs(r, &answer{status: got.Status}, errors.New("an item has neither task nor error"))}
	case got.Task.Kind != item.Kind || item.Key != NoKey && got.Task.Key != item.Key:
		return Submitted{Err: notOurs(r, &answer{status: got.Status}, fmt.Errorf("task %s is of another kind or key", got.Task.ID))}
	}
	return Submitted{Task: got.Task}
}

// WaitAny polls until the first of the tasks is settled and returns it, as Wait
// does: without an error only when it succeeded. Of several that are settled
// already it returns the one that was first. At most 1,000 ids.
func (c *Client) WaitAny(ctx context.Context, ids ...string) (*api.Task, error) {
	if len(ids) == 0 || len(ids) > api.MaxWaitAny {
		return nil, &callError{op: "wait", err: api.Errorf(api.CodeInvalidParam, "%d ids are given, 1 to %d can be waited for", len(ids), api.MaxWaitAny).WithField("ids")}
	}
	body, err := marshal(api.WaitAny{IDs: ids})
	if err != nil {
		return nil, err
	}
	for away := 0; ; {
		start := time.Now()
		r := &request{op: "wait", method: http.MethodPost, path: []string{"v1", "tasks", "wait"}, query: url.Values{}, header: http.Header{}, body: body, hold: c.hold(ctx), reads: true}
		r.query.Set("wait", seconds(r.hold)+"s")
		t, err := c.settled(ctx, r)
		var next time.Duration
		switch {
		case err == nil && t != nil:
			return t, outcome(t)
		case err == nil:
			away = 0
			next = max(minPoll-time.Since(start), 0)
		case ctx.Err() != nil || !passing(err):
			return nil, err
		default:
			away++
			next = pause(0, away+c.retries)
		}
		if sleep(ctx, next) != nil {
			f := &failure{err: ended(ctx), cause: ctx.Err()}
			return nil, f.final(r, 1, false)
		}
	}
}

func (c *Client) settled(ctx context.Context, r *request) (*api.Task, error) {
	a, err := c.do(ctx, r)
	if err != nil {
		return nil, err
	}
	var got api.Settled
	if err := decode(r, a, &got); err != nil {
		return nil, err
	}
	if got.Task != nil && (got.Task.ID == "" || !got.Task.State.Settled()) {
		return nil, notOurs(r, a, errors.New("its task is not settled"))
	}
	return got.Task, nil
}
