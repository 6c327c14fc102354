package client

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/onefold-dev/onefold/api"
)

const opSubmit = "submit"

// SubmitOpts are the choices of Submit; nil means none of them.
type SubmitOpts struct {
	// Wait asks the server to hold its answer until the task is settled, at
	// most 60 s. The answer then is the task as it stands.
	Wait time.Duration
}

// Submit hands over one task under key and returns it as it stands: new
// (Created true), or the one that key already meant. It is sent again under the
// same key, with the same bytes, after a broken connection, a timeout and the
// statuses 408, 429, 502, 503 and 504; since every try folds onto one task,
// that is safe. After such a retry Created may be false for the caller's own
// task: the answer that said true was lost.
//
// Errors: ErrKeyReused when key was used with another payload (Mismatch names
// the fields), ErrInvalid, ErrUnauthorized, ErrForbidden, ErrRateLimited; and
// ErrUnavailable after all retries. That one says whether it is known that
// nothing was stored; where it is not, call Submit again with the same key.
func (c *Client) Submit(ctx context.Context, key string, s api.Submit, o *SubmitOpts) (*api.Task, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	body, err := s.Append(nil)
	if err != nil {
		return nil, err
	}
	r := &request{op: opSubmit, method: http.MethodPost, path: []string{"v1", "tasks"}, header: http.Header{}, body: body}
	if r.once = key == NoKey; !r.once {
		r.header.Set("Idempotency-Key", headerValue(key))
	}
	if o != nil && o.Wait > 0 {
		r.hold = min(o.Wait, maxPoll)
		r.header.Set("Prefer", "wait="+seconds(r.hold))
	}
	a, err := c.do(ctx, r)
	if err != nil {
		return nil, err
	}
	t, err := decodeTask(r, a)
	if err != nil {
		return nil, err
	}
	// A cache or a confused proxy must not pass off another task as this one.
	if t.Kind != s.Kind || (!r.once && t.Key != key) {
		return nil, notOurs(r, a, fmt.Errorf("it is about the task %s of kind %q under another kind or key", t.ID, t.Kind))
	}
	return t, nil
}

// seconds writes d for the wire, rounded up, for less than a second is no wait.
func seconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}
