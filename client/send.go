package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/onefold-dev/onefold/api"
)

// How much of an answer is read. A task's body is at most a 64 MiB result, 8
// MiB of what was submitted with it, and its own fields.
const (
	maxBody    = 80 << 20
	maxProblem = 64 << 10
)

// request is one call, byte for byte the same on every try.
type request struct {
	op     string
	method string
	path   []string
	query  url.Values
	header http.Header
	body   []byte
	file   *upload       // in place of body
	hold   time.Duration // how long the server is asked to hold the answer
	// once: not to be sent again where an earlier try might have been acted on.
	once bool
	// reads: it changes nothing, whatever its method.
	reads bool
}

type answer struct {
	status int
	header http.Header
	body   []byte
}

// failure is a try without a usable answer.
type failure struct {
	err       *api.Error
	cause     error // of a broken connection or an ended context
	transient bool  // another try may do better
	unclear   bool  // the server may have acted on it
}

// do sends r until it is answered, refused for good, or tries and ctx are used up.
func (c *Client) do(ctx context.Context, r *request) (*answer, error) {
	unclear := false
	for try := 1; ; try++ {
		a, f := c.try(ctx, r)
		if f == nil {
			return a, nil
		}
		unclear = unclear || f.unclear
		wait, again := c.again(ctx, r, f, try)
		if !again {
			return nil, f.final(r, try, unclear)
		}
		if c.onRetry != nil {
			c.onRetry(Retried{Op: r.op, Try: try, Wait: wait, Err: f.err})
		}
		if err := sleep(ctx, wait); err != nil {
			f = &failure{err: ended(ctx), cause: err}
			return nil, f.final(r, try, unclear)
		}
	}
}

// again says whether and after what wait r is sent once more.
func (c *Client) again(ctx context.Context, r *request, f *failure, try int) (time.Duration, bool) {
	if !f.transient || try > c.retries || (r.once && f.unclear) || ctx.Err() != nil {
		return 0, false
	}
	wait := pause(f.err.RetryAfter, try)
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= wait {
		return 0, false // the caller learns now what it would learn too late
	}
	return wait, true
}

// try sends r once. net/http sends a POST with an Idempotency-Key again by
// itself when a kept connection breaks, but only where it can rewind the body:
// there is no GetBody here, so every send is one of ours and counted.
func (c *Client) try(ctx context.Context, r *request) (*answer, *failure) {
	limited, body, stop, err := c.open(ctx, r)
	if err != nil {
		return nil, &failure{err: api.Errorf(api.CodeInvalidParam, "the file cannot be read: %v", err), cause: err}
	}
	defer stop()
	var sent atomic.Bool
	limited = httptrace.WithClientTrace(limited, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { sent.Store(true) },
	})
	req, err := c.build(limited, r, body)
	if err != nil {
		return nil, &failure{err: api.Errorf(api.CodeInvalidParam, "the request cannot be built: %v", err)}
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.broken(ctx, limited, r, err, sent.Load())
	}
	defer resp.Body.Close()
	good := resp.StatusCode < 300 || resp.StatusCode == http.StatusNotModified
	limit := maxProblem
	if good {
		limit = maxBody
	}
	got, err := io.ReadAll(io.LimitReader(resp.Body, int64(limit)+1))
	switch {
	case !good: // as much of it as came says enough
		return nil, refused(resp, got)
	case err != nil:
		return nil, c.broken(ctx, limited, r, fmt.Errorf("read the answer: %w", err), true)
	case len(got) > limit:
		return nil, &failure{unclear: true, err: api.Errorf(api.CodeConnection, "the answer is larger than %d MiB", limit>>20)}
	}
	return &answer{status: resp.StatusCode, header: resp.Header, body: got}, nil
}

// open is the body of one try, with a context that limits it. stop is called
// when the try is over.
func (c *Client) open(ctx context.Context, r *request) (limited context.Context, body io.Reader, stop func(), err error) {
	if r.file != nil {
		return r.file.open(ctx)
	}
	limited, stop = context.WithTimeout(ctx, c.timeout+r.hold)
	return limited, bytes.NewReader(r.body), stop, nil
}

func (c *Client) build(ctx context.Context, r *request, body io.Reader) (*http.Request, error) {
	u := *c.base
	segments := make([]string, len(r.path))
	for i, s := range r.path {
		segments[i] = url.PathEscape(s)
	}
	u.RawPath = u.EscapedPath() + "/" + strings.Join(segments, "/")
	u.Path += "/" + strings.Join(r.path, "/")
	u.RawQuery = r.query.Encode()
	req, err := http.NewRequestWithContext(ctx, r.method, u.String(), body)
	if err != nil {
		return nil, err
	}
	req.GetBody = nil
	if r.body == nil && r.file == nil {
		req.Body, req.ContentLength = http.NoBody, 0
	}
	for name, values := range r.header {
		req.Header[name] = values
	}
	if r.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if req.Header.Get("Accept") == "" {
		req.Header.Set("Accept", "application/json, application/problem+json")
	}
	c.auth(req.Header)
	req.Header.Set("User-Agent", c.agent)
	return req, nil
}

// broken classes a try that got no whole answer.
func (c *Client) broken(ctx, limited context.Context, r *request, err error, sent bool) *failure {
	var ue *url.Error
	if errors.As(err, &ue) {
		err = ue.Err // the rest is method and URL, with a key or filter in its query
	}
	f := &failure{cause: err, transient: true, unclear: sent}
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err // the rest is the address, which is named below
	}
	var cert *tls.CertificateVerificationError
	switch {
	case ctx.Err() != nil:
		f.err, f.cause, f.transient = ended(ctx), ctx.Err(), false
	case limited.Err() != nil:
		f.err = api.Errorf(api.CodeTimeout, "%s gave no answer within %s", c.base.Host, c.timeout+r.hold)
	case errors.As(err, &cert):
		f.transient = false
		f.err = api.Errorf(api.CodeConnection, "the certificate of %s is not accepted: %v", c.base.Host, err).
			WithFix("Check the host name in the URL, the machine's clock and its root certificates.")
	case !sent:
		f.err = api.Errorf(api.CodeConnection, "%s cannot be reached: %v", c.base.Host, err)
	default:
		f.err = api.Errorf(api.CodeConnection, "the connection to %s broke: %v", c.base.Host, err)
	}
	return f
}

func ended(ctx context.Context) *api.Error {
	what := "the time given by the caller ran out"
	if errors.Is(ctx.Err(), context.Canceled) {
		what = "the caller stopped waiting"
	}
	return api.Errorf(api.CodeTimeout, "%s", what)
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
