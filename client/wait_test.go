package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/client"
)

// settled is a task as the server shows it once polling may stop.
func settled(state api.State, code api.Code) *api.Task {
	t := taskIn(state)
	if code != "" {
		t.Error = &api.TaskError{Code: string(code), Message: "the reason", Fix: "the cure"}
	}
	return t
}

func over(t *testing.T, o client.Opts, steps ...step) (*client.Client, *script) {
	t.Helper()
	net := &script{steps: steps}
	o.HTTP = &http.Client{Transport: net}
	return connect(t, "http://onefold.test", &o), net
}

func shows(task *api.Task, header map[string]string) step {
	return answers(200, header, mustJSON(task))
}

// holds answers only after d, as the server does when asked to wait.
func holds(d time.Duration, then step) step {
	return func(r *http.Request) (*http.Response, error) {
		select {
		case <-time.After(d):
			return then(r)
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
}

func TestWaitOutcomes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		task *api.Task
		is   error
		code api.Code
	}{
		{settled(api.Succeeded, ""), nil, ""},
		{settled(api.Failed, api.CodeRejected), api.ErrFailed, api.CodeRejected},
		{settled(api.Failed, "of_a_newer_server"), api.ErrFailed, "of_a_newer_server"},
		{settled(api.Failed, ""), api.ErrFailed, api.CodeAttemptsExhaust},
		{settled(api.Unknown, api.CodeWorkerLost), api.ErrUnknown, api.CodeWorkerLost},
		{settled(api.Unknown, ""), api.ErrUnknown, api.CodeOutcomeUnknown},
		{settled(api.Cancelled, ""), api.ErrFailed, api.CodeCancelled},
	} {
		cl, _ := over(t, client.Opts{}, shows(c.task, nil))
		got, err := cl.Wait(t.Context(), "t1")
		if diff := cmp.Diff(got, c.task); diff != "" {
			t.Errorf("%s: -got +want:\n%s", c.task.State, diff)
		}
		if c.is == nil {
			if err != nil {
				t.Errorf("%s: got %v", c.task.State, err)
			}
			continue
		}
		var e *api.Error
		if !errors.Is(err, c.is) || !errors.As(err, &e) || e.Code != c.code || e.Task != got || e.TaskID != "t1" {
			t.Errorf("%s: got %v (%+v), want %v with code %s and the task", c.task.State, err, e, c.is, c.code)
		}
		if c.task.Error != nil && (e.Message != "the reason" || e.Fix != "the cure") {
			t.Errorf("%s: got %q and %q, want what the task says", c.task.State, e.Message, e.Fix)
		}
	}
}

func TestWaitPollsAgainAtOnceAfterALongPoll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		running := holds(25*time.Second, shows(taskIn(api.Running), map[string]string{"Retry-After": "5"}))
		c, net := over(t, client.Opts{}, running, running, shows(taskIn(api.Succeeded), nil))
		start := time.Now()
		if _, err := c.Wait(t.Context(), "t1"); err != nil {
			t.Fatal(err)
		}
		if got := time.Since(start); got != 50*time.Second {
			t.Errorf("took %s, want the 50 s that the server held its answers", got)
		}
		if got := net.sent[0].URL.RawQuery; got != "wait=25s" {
			t.Errorf("asked %q, want wait=25s", got)
		}
	})
}

func TestWaitHonoursRetryAfterOfAServerThatDoesNotHold(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]time.Duration{"5": 5 * time.Second, "0": 250 * time.Millisecond, "": 250 * time.Millisecond, "86400": time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			c, _ := over(t, client.Opts{}, shows(taskIn(api.Pending), map[string]string{"Retry-After": header}), shows(taskIn(api.Succeeded), nil))
			start := time.Now()
			if _, err := c.Wait(t.Context(), "t1"); err != nil {
				t.Fatal(err)
			}
			if got := time.Since(start); got != want {
				t.Errorf("Retry-After %q: polled again after %s, want %s", header, got, want)
			}
		})
	}
}

func TestWaitOutlastsAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		steps := []step{shows(taskIn(api.Running), nil)}
		for range 40 {
			steps = append(steps, breaks(errDial), problemOf(api.CodeUnavailable))
		}
		c, net := over(t, client.Opts{}, append(steps, shows(taskIn(api.Succeeded), nil))...)
		task, err := c.Wait(t.Context(), "t1")
		if err != nil || task.State != api.Succeeded || net.tries() != 82 {
			t.Errorf("got %+v, %v after %d tries", task, err, net.tries())
		}
	})
}

func TestWaitGivesUpOnAServerNeverReached(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, net := over(t, client.Opts{}, breaks(errDial))
		task, err := c.Wait(t.Context(), "t1")
		if task != nil || !errors.Is(err, api.ErrUnavailable) || net.tries() != 6 {
			t.Errorf("got %+v, %v after %d tries, want ErrUnavailable after 6", task, err, net.tries())
		}
	})
}

func TestWaitEndsOnWhatPollingCannotMend(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for code, class := range map[api.Code]error{api.CodeExpired: api.ErrExpired, api.CodeNotFound: api.ErrNotFound, api.CodeUnauthorized: api.ErrUnauthorized} {
			c, _ := over(t, client.Opts{}, shows(taskIn(api.Running), nil), problemOf(code))
			task, err := c.Wait(t.Context(), "t1")
			var e *api.Error
			if !errors.Is(err, class) || task == nil || !errors.As(err, &e) || e.Task != task {
				t.Errorf("%s: got %+v, %v, want the task last seen and %v with it", code, task, err, class)
			}
		}
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	for name, slow := range map[string]step{
		"while the server holds":     holds(time.Minute, shows(taskIn(api.Running), nil)),
		"between two polls":          shows(taskIn(api.Running), map[string]string{"Retry-After": "50"}),
		"while the server is silent": silent,
	} {
		synctest.Test(t, func(t *testing.T) {
			c, _ := over(t, client.Opts{}, shows(taskIn(api.Running), nil), slow)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			start := time.Now()
			task, err := c.Wait(ctx, "t1")
			var e *api.Error
			if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &e) || e.Code != api.CodeTimeout || task == nil || e.Task != task {
				t.Errorf("%s: got %+v, %v, want DeadlineExceeded, code timeout and the task", name, task, err)
			}
			if errors.Is(err, api.ErrFailed) || errors.Is(err, api.ErrUnknown) {
				t.Errorf("%s: %v says more than that the wait ended", name, err)
			}
			if got := time.Since(start); got != 20*time.Second {
				t.Errorf("%s: came back after %s", name, got)
			}
		})
	}
}

func TestDo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		quick, net := over(t, client.Opts{}, answers(202, nil, mustJSON(settled(api.Succeeded, ""))))
		if _, err := quick.Do(t.Context(), "key", api.Submit{Kind: "k"}); err != nil || net.tries() != 1 {
			t.Errorf("a quick task: got %v after %d requests, want one", err, net.tries())
		}
		slow, net := over(t, client.Opts{}, answers(202, nil, mustJSON(taskIn(api.Pending))), shows(settled(api.Unknown, api.CodeCut), nil))
		_, err := slow.Do(t.Context(), "key", api.Submit{Kind: "k"})
		if !errors.Is(err, api.ErrUnknown) || net.tries() != 2 || net.sent[0].Header.Get("Prefer") != "wait=25" {
			t.Errorf("a slow task: got %v after %d requests", err, net.tries())
		}
	})
}

// odd is what encoding/json would change: spacing, escapes, key order, digits.
const odd = "{ \"b\":1e100,\n\t\"a\": \"<&>\\u00e9\u2028\\/\\ud83d\", \"n\":0.10000000000000000001, \"a\":1.0}"

func TestResultBytesStayAsSent(t *testing.T) {
	t.Parallel()
	body := `{"id":"t1","kind":"k","key":"key","state":"succeeded","result": ` + odd + ` ,"metadata":{ "x" : 1 }}`
	c, _ := over(t, client.Opts{}, func(r *http.Request) (*http.Response, error) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/result"), strings.HasSuffix(r.URL.Path, "/input"):
			return answers(200, nil, "\n "+odd+" ")(r)
		case r.URL.Query().Has("kind"):
			return answers(200, nil, `{"items":[{"id":"t1","state":"succeeded"}],"next":null}`)(r)
		}
		return answers(200, nil, body)(r)
	})
	got := map[string][]byte{}
	add := func(name string) func(*api.Task, error) {
		return func(task *api.Task, err error) {
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			got[name] = task.Result
		}
	}
	add("get")(c.Get(t.Context(), "t1", nil))
	add("wait")(c.Wait(t.Context(), "t1"))
	add("find")(c.Find(t.Context(), "k", "key"))
	add("do")(c.Do(t.Context(), "key", api.Submit{Kind: "k", Input: json.RawMessage(`1`)}))
	task, _ := c.Get(t.Context(), "t1", nil)
	raw, err := client.Result[json.RawMessage](task)
	if err != nil {
		t.Fatal(err)
	}
	got["decoded as RawMessage"] = raw
	for name, b := range got {
		if diff := cmp.Diff(string(b), odd); diff != "" {
			t.Errorf("%s: -got +want:\n%s", name, diff)
		}
	}
	for name, read := range map[string]func(context.Context, string) ([]byte, error){"result": c.Result, "input": c.Input} {
		if b, err := read(t.Context(), "t1"); err != nil || string(b) != "\n "+odd+" " {
			t.Errorf("raw %s: got %q, %v", name, b, err)
		}
	}
}
