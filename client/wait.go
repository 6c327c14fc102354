package client

import (
	"context"
	"errors"
	"time"

	"github.com/onefold-dev/onefold/api"
)

// minPoll is the shortest time between two polls of one task, whatever the
// server says and however early something in between ends a long poll.
const minPoll = 250 * time.Millisecond

// Wait polls until the task is settled. It returns the task without an error
// only when it succeeded. Otherwise the error is an *api.Error with Task set,
// and the task is returned too:
//
//	failed      ErrFailed, the code says why
//	cancelled   ErrFailed with code cancelled
//	unknown     ErrUnknown: a call went out and nobody knows what became of it;
//	            the task waits for a person or a check, and must not be
//	            submitted anew under another key
//
// When ctx ends first the task goes on: the error is ErrUnavailable with code
// timeout (and context.Canceled or DeadlineExceeded), and the task as last seen
// is returned. Once Wait has read the task, it waits out a server that is away
// until ctx ends; give it a deadline.
func (c *Client) Wait(ctx context.Context, id string) (*api.Task, error) {
	return c.wait(ctx, id, nil)
}

// Do is Submit and then Wait, with one request where the task is quick.
func (c *Client) Do(ctx context.Context, key string, s api.Submit) (*api.Task, error) {
	t, err := c.Submit(ctx, key, s, &SubmitOpts{Wait: c.hold(ctx)})
	if err != nil {
		return nil, err
	}
	return c.wait(ctx, t.ID, t)
}

// hold is how long the server is to hold one answer: not beyond the caller's
// time, or its answer would come too late to be read.
func (c *Client) hold(ctx context.Context) time.Duration {
	end, ok := ctx.Deadline()
	if !ok {
		return c.poll
	}
	return min(c.poll, max(time.Until(end)-time.Second, 0))
}

func (c *Client) wait(ctx context.Context, id string, seen *api.Task) (*api.Task, error) {
	away := 0
	for seen == nil || !seen.State.Settled() {
		start := time.Now()
		t, hint, err := c.get(ctx, "wait", id, &GetOpts{Wait: c.hold(ctx)})
		var next time.Duration
		switch {
		case err == nil:
			seen, away = t, 0
			// What the server held the answer for counts as waited.
			next = max(min(hint, retryAfterCap)-time.Since(start), minPoll-time.Since(start), 0)
		case seen == nil || ctx.Err() != nil || !passing(err):
			return seen, with(seen, err)
		default:
			away++
			next = pause(0, away+c.retries)
		}
		if seen.State.Settled() {
			break
		}
		if sleep(ctx, next) != nil {
			f := &failure{err: ended(ctx), cause: ctx.Err()}
			return seen, with(seen, f.final(&request{op: "wait " + id, method: "GET"}, 1, false))
		}
	}
	return seen, outcome(seen)
}

// passing says whether err may be gone at the next poll.
func passing(err error) bool {
	return errors.Is(err, api.ErrUnavailable) || errors.Is(err, api.ErrRateLimited) || errors.Is(err, api.ErrInternal)
}

// with puts the task last seen into err.
func with(t *api.Task, err error) error {
	var e *api.Error
	if t != nil && errors.As(err, &e) {
		e.Task, e.TaskID = t, t.ID
	}
	return err
}

// outcome is the error that a settled task stands for; nil when it succeeded.
func outcome(t *api.Task) error {
	var e *api.Error
	switch t.State {
	case api.Succeeded:
		return nil
	case api.Cancelled:
		e = api.Errorf(api.CodeCancelled, "the task was cancelled")
	case api.Failed, api.Unknown:
		e = &api.Error{Code: api.CodeOutcomeUnknown}
		if t.State == api.Failed {
			e.Code = api.CodeAttemptsExhaust
		}
		if t.Error != nil {
			e.Code, e.Message, e.Fix = api.Code(t.Error.Code), t.Error.Message, t.Error.Fix
		}
		if e.Fix == "" {
			e.Fix = api.Codes[e.Code].Fix
		}
	default:
		e = api.Errorf(api.CodeNotFinished, "the task is %s", t.State)
	}
	e.Task, e.TaskID = t, t.ID
	return &callError{op: "task " + t.ID, err: e}
}
