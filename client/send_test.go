package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/client"
)

type step = func(*http.Request) (*http.Response, error)

var (
	stored = answers(202, nil, mustJSON(taskIn(api.Pending)))
	html   = map[string]string{"Content-Type": "text/html"}
)

// submitOver submits over a scripted network, in time that does not pass.
func submitOver(t *testing.T, key string, o client.Opts, steps ...step) (*api.Task, *script, error) {
	t.Helper()
	net := &script{steps: steps}
	o.HTTP = &http.Client{Transport: net}
	c := connect(t, "http://onefold.test", &o)
	task, err := c.Submit(t.Context(), key, api.Submit{Kind: "k", Input: json.RawMessage(`{ "n": 1.0 }`)}, nil)
	return task, net, err
}

func TestSubmitTriesAgain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		first step
	}{
		{"nobody listens", breaks(errDial)},
		{"connection breaks", breaks(errReset)},
		{"no answer in time", silent},
		{"408", problemOf(api.CodeRequestTimeout)},
		{"429", problemOf(api.CodeRateLimited, "Retry-After", "3")},
		{"503 held", problemOf(api.CodeHeld)},
		{"503 unavailable", problemOf(api.CodeUnavailable)},
		{"502 of a proxy", answers(502, html, "<html>Bad Gateway")},
		{"504 of a proxy", answers(504, html, "<html>")},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var told []client.Retried
				o := client.Opts{OnRetry: func(r client.Retried) { told = append(told, r) }}
				task, net, err := submitOver(t, "key", o, c.first, c.first, stored)
				if err != nil || task.ID != "t1" {
					t.Fatalf("got %+v, %v", task, err)
				}
				if net.tries() != 3 || len(told) != 2 {
					t.Errorf("got %d tries and %d announced, want 3 and 2", net.tries(), len(told))
				}
				for i, r := range net.sent {
					if got := r.Header.Get("Idempotency-Key"); got != "key" {
						t.Errorf("try %d: got the key %q", i+1, got)
					}
					if diff := cmp.Diff(string(net.body[i]), `{"kind":"k","input":{ "n": 1.0 }}`); diff != "" {
						t.Errorf("try %d: -got +want:\n%s", i+1, diff)
					}
				}
			})
		})
	}
}

func TestSubmitHonoursRetryAfter(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]time.Duration{"7": 7 * time.Second, "3600": time.Minute, "-5": 0, "1e9": 0} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			_, _, err := submitOver(t, "key", client.Opts{}, problemOf(api.CodeRateLimited, "Retry-After", header), stored)
			if waited := time.Since(start); err != nil || waited < want || waited > want+time.Second {
				t.Errorf("Retry-After %s: waited %s, %v; want about %s", header, waited, err, want)
			}
		})
	}
}

func TestSubmitDoesNotRepeat(t *testing.T) {
	t.Parallel()
	for _, code := range []api.Code{
		api.CodeKeyReused, api.CodeInvalidJSON, api.CodeUnauthorized, api.CodeForbidden, api.CodeTooLarge, api.CodeInternal,
	} {
		_, net, err := submitOver(t, "key", client.Opts{}, problemOf(code))
		if !errors.Is(err, &api.Error{Code: code}) || net.tries() != 1 {
			t.Errorf("%s: got %v after %d tries, want one", code, err, net.tries())
		}
	}
}

// What the caller can know after the last try: the doubt is said where there
// is one, and not where there is none.
func TestSubmitSaysWhetherItMayBeStored(t *testing.T) {
	t.Parallel()
	const doubt = "whether it was stored is not known"
	for _, c := range []struct {
		name  string
		steps []step
		tries int
		doubt bool
		is    error
	}{
		{"nobody listens", []step{breaks(errDial)}, 6, false, api.ErrUnavailable},
		{"held", []step{problemOf(api.CodeHeld)}, 6, false, api.ErrUnavailable},
		{"over quota", []step{problemOf(api.CodeRateLimited)}, 6, false, api.ErrRateLimited},
		{"broke once, then nobody listens", []step{breaks(errReset), breaks(errDial)}, 6, true, api.ErrUnavailable},
		{"broke once, then over quota", []step{breaks(errReset), problemOf(api.CodeRateLimited)}, 6, true, api.ErrUnavailable},
		{"broke once, then refused", []step{breaks(errReset), problemOf(api.CodeInvalidJSON)}, 2, false, api.ErrInvalid},
		{"silent", []step{silent}, 6, true, api.ErrUnavailable},
		{"unavailable", []step{problemOf(api.CodeUnavailable)}, 6, true, api.ErrUnavailable},
		{"proxy", []step{answers(502, html, "<p>oops")}, 6, true, api.ErrUnavailable},
		{"internal", []step{problemOf(api.CodeInternal)}, 1, true, api.ErrUnavailable},
		{"200 of another server", []step{answers(200, html, "<html>hello")}, 1, true, api.ErrUnavailable},
		{"200 without a task", []step{answers(200, nil, "{}")}, 1, true, api.ErrUnavailable},
		{"another key's task", []step{answers(200, nil, mustJSON(&api.Task{ID: "t2", Kind: "k", Key: "other", State: api.Pending}))}, 1, true, api.ErrUnavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				_, net, err := submitOver(t, "key", client.Opts{}, c.steps...)
				if !errors.Is(err, c.is) || net.tries() != c.tries {
					t.Errorf("got %v after %d tries, want %v after %d", err, net.tries(), c.is, c.tries)
				}
				var e *api.Error
				if !errors.As(err, &e) {
					t.Fatalf("%v holds no *api.Error", err)
				}
				if got := strings.Contains(err.Error(), doubt) && strings.Contains(e.Fix, "same key"); got != c.doubt {
					t.Errorf("said to be in doubt: %t, want %t: %v (%s)", got, c.doubt, err, e.Fix)
				}
			})
		})
	}
}

func TestSubmitWithoutKeyIsSentOnceWhereItMayHaveArrived(t *testing.T) {
	t.Parallel()
	keyless := answers(202, nil, mustJSON(&api.Task{ID: "t1", Kind: "k", State: api.Pending}))
	for _, c := range []struct {
		name  string
		first step
		tries int
	}{
		{"nobody listens", breaks(errDial), 2},
		{"over quota", problemOf(api.CodeRateLimited), 2},
		{"broken", breaks(errReset), 1},
		{"silent", silent, 1},
		{"proxy", answers(502, html, ""), 1},
		{"unavailable", problemOf(api.CodeUnavailable), 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			_, net, err := submitOver(t, client.NoKey, client.Opts{}, c.first, keyless)
			if net.tries() != c.tries || (err == nil) != (c.tries == 2) {
				t.Errorf("%s: got %v after %d tries, want %d", c.name, err, net.tries(), c.tries)
			}
			if got := net.sent[0].Header.Values("Idempotency-Key"); len(got) != 0 {
				t.Errorf("%s: sent the key %q", c.name, got)
			}
		})
	}
}

func TestSubmitRefusesBadKeysUnsent(t *testing.T) {
	t.Parallel()
	for key, code := range map[string]api.Code{
		"": api.CodeKeyMissing, "a b": api.CodeKeyMalformed, "é": api.CodeKeyMalformed, "a\r\nX-Evil: 1": api.CodeKeyMalformed,
		strings.Repeat("x", 256): api.CodeKeyTooLong, "onefold:task:1": api.CodeKeyReserved,
	} {
		_, net, err := submitOver(t, key, client.Opts{}, stored)
		if !errors.Is(err, &api.Error{Code: code}) || net.tries() != 0 {
			t.Errorf("%.20q: got %v after %d tries, want %s unsent", key, err, net.tries(), code)
		}
	}
}

func TestSubmitQuotesWhatTheServerWouldUnquote(t *testing.T) {
	t.Parallel()
	key := `"a\b"`
	_, net, err := submitOver(t, key, client.Opts{}, answers(202, nil, mustJSON(&api.Task{ID: "1", Kind: "k", Key: key, State: api.Pending})))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := net.sent[0].Header.Get("Idempotency-Key"), `"\"a\\b\""`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestSubmitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := connect(t, "http://onefold.test", &client.Opts{HTTP: &http.Client{Transport: &script{steps: []step{silent}}}})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		start := time.Now()
		_, err := c.Submit(ctx, "key", api.Submit{Kind: "k"}, nil)
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, api.ErrUnavailable) {
			t.Errorf("got %v, want DeadlineExceeded and ErrUnavailable", err)
		}
		if got := time.Since(start); got != 10*time.Second {
			t.Errorf("came back after %s, want 10 s", got)
		}
		if !strings.Contains(err.Error(), "not known") {
			t.Errorf("%v does not say that the outcome is not known", err)
		}
	})
}

// A wait that would outlast the caller's time is not begun.
func TestSubmitDoesNotWaitInVain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := &script{steps: []step{problemOf(api.CodeRateLimited, "Retry-After", "20")}}
		c := connect(t, "http://onefold.test", &client.Opts{HTTP: &http.Client{Transport: net}})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		start := time.Now()
		_, err := c.Submit(ctx, "key", api.Submit{Kind: "k"}, nil)
		var e *api.Error
		if !errors.As(err, &e) || e.Code != api.CodeRateLimited || e.RetryAfter != 20*time.Second {
			t.Errorf("got %v, want rate_limited with its 20 s", err)
		}
		if got := time.Since(start); got != 0 {
			t.Errorf("waited %s", got)
		}
	})
}

func TestHoldIsAddedToTheTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow := func(r *http.Request) (*http.Response, error) {
			select {
			case <-time.After(45 * time.Second):
				return stored(r)
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
		}
		net := &script{steps: []step{slow}}
		c := connect(t, "http://onefold.test", &client.Opts{HTTP: &http.Client{Transport: net}, Timeout: 10 * time.Second})
		if _, err := c.Submit(t.Context(), "key", api.Submit{Kind: "k"}, &client.SubmitOpts{Wait: 40 * time.Second}); err != nil {
			t.Error(err)
		}
		if got := net.sent[0].Header.Get("Prefer"); got != "wait=40" || net.tries() != 1 {
			t.Errorf("got Prefer %q and %d tries", got, net.tries())
		}
	})
}

// net/http by itself would send the POST again when a kept connection breaks.
// Here every send is a try that OnRetry is told of.
func TestNoHiddenReplay(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var posts, retries atomic.Int32
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if posts.Add(1) == 2 { // read whole, then cut: the kept connection breaks
			panic(http.ErrAbortHandler)
		}
		reply(w, 202, taskIn(api.Pending))
	})}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close(); <-done })
	c := connect(t, "http://"+l.Addr().String(), &client.Opts{OnRetry: func(client.Retried) { retries.Add(1) }})
	for range 2 {
		if _, err := c.Submit(t.Context(), "key", api.Submit{Kind: "k", Input: json.RawMessage(`1`)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if posts.Load() != 3 || retries.Load() != 1 {
		t.Errorf("got %d posts and %d retries told, want 3 and 1", posts.Load(), retries.Load())
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	var leaked atomic.Bool
	_, other := serve(t, func(w http.ResponseWriter, r *http.Request) { leaked.Store(true) }, nil)
	for _, status := range []int{301, 302, 307, 308} {
		c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL+"/v1/tasks?token=x", status)
		}, nil)
		_, err := c.Submit(t.Context(), "key", api.Submit{Kind: "k"}, nil)
		_, err2 := c.Get(t.Context(), "t1", nil)
		for _, err := range []error{err, err2} {
			if !errors.Is(err, api.ErrUnavailable) || !strings.Contains(err.Error(), other.URL) || strings.Contains(err.Error(), "token") {
				t.Errorf("%d: got %v, want ErrUnavailable naming %s without its query", status, err, other.URL)
			}
		}
	}
	if leaked.Load() {
		t.Error("a redirect was followed")
	}
}

func TestAnswersAreBounded(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		chunk := []byte(strings.Repeat(" ", 1<<20))
		for range 200 {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}, nil)
	if _, err := c.Get(t.Context(), "t1", nil); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("got %v, want an error that says it is too large", err)
	}
}

func TestAnswersCutShort(t *testing.T) {
	t.Parallel()
	var n atomic.Int32
	c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1) == 1 {
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte(`{"id":"t1",`)) // and the handler returns: the connection is cut
			return
		}
		reply(w, 200, taskIn(api.Pending))
	}, nil)
	task, err := c.Get(t.Context(), "t1", nil)
	if err != nil || task.State != api.Pending || n.Load() != 2 {
		t.Errorf("got %+v, %v after %d tries", task, err, n.Load())
	}
}
