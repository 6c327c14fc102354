package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"time"

	"github.com/onefold-dev/onefold/api"
)

const opUpload = "upload batch"

// BatchOpts are the choices of UploadBatch; nil means none of them. They belong
// to what the key means: the same key with other choices is refused.
type BatchOpts struct {
	Kind     string        // of lines in OpenAI's form; llm.chat when empty
	Webhook  string        // a destination that is told when the batch ends
	Deadline time.Duration // from its start; 24 h when 0
	// Sent is called while the file is read, with the bytes read so far of this
	// try. It may be called from another goroutine.
	Sent func(bytes int64)
}

// UploadBatch hands over a JSONL file of tasks under key and returns the batch as
// it stands: new (Created true), or the one that key already meant. Nothing of it
// runs before the whole file is stored, and everything does once this returns.
// The file is sent compressed.
//
// It is sent again from its start, under the same key, after a broken
// connection and what else may pass; the server goes on where it stopped. So
// does a later call with the same file and key.
//
// Errors: ErrKeyReused when key was used with another file or other choices;
// ErrInvalid when the file is refused: Line, and FirstLine for an id that comes
// twice, say where. A line that is no valid request fails alone; see Invalid.
func (c *Client) UploadBatch(ctx context.Context, key string, file io.ReadSeeker, o *BatchOpts) (*api.Batch, error) {
	if key == NoKey {
		key = ""
	}
	if err := checkKey(key); err != nil {
		return nil, err
	}
	if o == nil {
		o = &BatchOpts{}
	}
	q := url.Values{}
	for name, value := range map[string]string{"kind": o.Kind, "webhook": o.Webhook} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if o.Deadline > 0 {
		q.Set("deadline", o.Deadline.String())
	}
	r := &request{op: opUpload, method: http.MethodPost, path: []string{"v1", "batches"}, query: q, header: http.Header{}}
	r.header.Set("Idempotency-Key", headerValue(key))
	r.header.Set("Content-Type", "application/jsonl")
	r.header.Set("Content-Encoding", "gzip")
	r.file = &upload{file: file, sent: o.Sent}
	b, err := c.batch(ctx, r)
	if err == nil && b.Key != key {
		return nil, notOurs(r, &answer{status: 200}, fmt.Errorf("it is about the batch %s under another key", b.ID))
	}
	return b, err
}

func (c *Client) batch(ctx context.Context, r *request) (*api.Batch, error) {
	a, err := c.do(ctx, r)
	if err != nil {
		return nil, err
	}
	var b api.Batch
	if err := decode(r, a, &b); err != nil {
		return nil, err
	}
	if b.ID == "" || b.State == "" {
		return nil, notOurs(r, a, errors.New("it has no id or state"))
	}
	return &b, nil
}

// Batch reads a batch. Of one that runs, the counts may be some seconds old.
func (c *Client) Batch(ctx context.Context, id string) (*api.Batch, error) {
	r, err := onBatch("batch", http.MethodGet, id)
	if err != nil {
		return nil, err
	}
	return c.batch(ctx, r)
}

// FindBatch returns the batch under key, or ErrNotFound.
func (c *Client) FindBatch(ctx context.Context, key string) (*api.Batch, error) {
	for b, err := range c.Batches(ctx, key) {
		return b, err
	}
	return nil, &callError{op: "find batch", err: api.Errorf(api.CodeNotFound, "no batch has this key")}
}

// Batches goes through the batches, newest first; with a key it is the one under
// that key alone. An error ends it.
func (c *Client) Batches(ctx context.Context, key string) iter.Seq2[*api.Batch, error] {
	return func(yield func(*api.Batch, error) bool) {
		r := &request{op: "list batches", method: http.MethodGet, path: []string{"v1", "batches"}, query: url.Values{}}
		if key != "" {
			r.query.Set("key", key)
		}
		for {
			a, err := c.do(ctx, r)
			if err != nil {
				yield(nil, err)
				return
			}
			var page api.List[*api.Batch]
			if err := decode(r, a, &page); err != nil {
				yield(nil, err)
				return
			}
			for _, b := range page.Items {
				if !yield(b, nil) {
					return
				}
			}
			if page.Next == nil || *page.Next == "" || r.query.Get("cursor") == *page.Next {
				return
			}
			r.query.Set("cursor", *page.Next)
		}
	}
}

// WaitBatch polls until the batch has ended. seen, which may be nil, is given
// the batch at every poll. Like Wait it waits out a server that is away until
// ctx ends, once it has read the batch.
func (c *Client) WaitBatch(ctx context.Context, id string, seen func(*api.Batch)) (*api.Batch, error) {
	var last *api.Batch
	for away := 0; ; {
		b, err := c.Batch(ctx, id)
		next := batchPoll
		switch {
		case err == nil:
			last, away = b, 0
			if seen != nil {
				seen(b)
			}
			if b.State.Ended() {
				return b, nil
			}
		case last == nil || ctx.Err() != nil || !passing(err):
			return last, err
		default:
			away++
			next = pause(0, away+c.retries)
		}
		if sleep(ctx, next) != nil {
			f := &failure{err: ended(ctx), cause: ctx.Err()}
			return last, f.final(&request{op: "wait for batch " + id, method: http.MethodGet}, 1, false)
		}
	}
}

// batchPoll is the time between two looks at a batch that runs.
const batchPoll = time.Second

// CancelBatch stops a batch: what waits is cancelled, calls under way are asked
// to end, and tasks its lines only met go their way. Asking again changes
// nothing. Errors: ErrConflict when it ended in another way.
func (c *Client) CancelBatch(ctx context.Context, id, reason string) (*api.Batch, error) {
	return c.batchAct(ctx, "cancel", id, false, map[string]any{"reason": reason})
}

// RetryBatch runs the failed and expired lines of a batch that has ended again,
// as it stood at run. It is not sent again where it may have been done; the
// batch's run then shows it. Errors: ErrConflict when it has moved since, or no
// line failed.
func (c *Client) RetryBatch(ctx context.Context, id string, run int, reason string) (*api.Batch, error) {
	return c.batchAct(ctx, "retry", id, true, api.BatchRetry{Run: run, Reason: reason})
}

func (c *Client) batchAct(ctx context.Context, what, id string, once bool, body any) (*api.Batch, error) {
	r, err := onBatch(what, http.MethodPost, id, what)
	if err != nil {
		return nil, err
	}
	r.once = once
	if r.body, err = json.Marshal(body); err != nil {
		return nil, fmt.Errorf("encode the request: %w", err)
	}
	return c.batch(ctx, r)
}

// onBatch is a request about one batch.
func onBatch(op, method, id string, more ...string) (*request, error) {
	if id == "" || id == "." || id == ".." {
		return nil, &callError{op: op, err: api.Errorf(api.CodeInvalidParam, "%q is no batch id", id).WithField("id").
			WithFix("Pass the id that UploadBatch returned; with a key use FindBatch.")}
	}
	return &request{
		op: fmt.Sprintf("%s %s", op, id), method: method, path: append([]string{"v1", "batches", id}, more...),
		query: url.Values{}, header: http.Header{},
	}, nil
}
