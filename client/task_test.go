package client_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/client"
)

func TestGetWithETag(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"v1"`)
		if r.Header.Get("If-None-Match") == `"v1"` {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		task := taskIn(api.Pending)
		if r.URL.Query().Get("include") == "queue" {
			task.Queue = &api.Queue{Position: 3}
		}
		reply(w, 200, task)
	}, nil)
	task, err := c.Get(t.Context(), "t1", &client.GetOpts{Queue: true})
	if err != nil || task.ETag != `"v1"` || task.Queue == nil {
		t.Fatalf("got %+v, %v", task, err)
	}
	if _, err := c.Get(t.Context(), "t1", &client.GetOpts{ETag: task.ETag}); !errors.Is(err, client.ErrNotModified) {
		t.Errorf("got %v, want ErrNotModified", err)
	}
}

func TestCancelTellsTheTwoAnswersApart(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status int
		task   *api.Task
		asked  bool
	}{
		{200, taskIn(api.Cancelled), false},
		{202, taskIn(api.Running), true},
	} {
		cl, net := over(t, client.Opts{}, answers(c.status, nil, mustJSON(c.task)))
		got, err := cl.Cancel(t.Context(), "t1")
		if err != nil || got.State != c.task.State || got.CancelAsked != c.asked {
			t.Errorf("%d: got %+v, %v, want cancel_requested %t", c.status, got, err, c.asked)
		}
		if r := net.sent[0]; r.Method != "POST" || r.URL.Path != "/v1/tasks/t1/cancel" {
			t.Errorf("sent %s %s", r.Method, r.URL)
		}
	}
	cl, _ := over(t, client.Opts{}, problemOf(api.CodeConflict))
	if _, err := cl.Cancel(t.Context(), "t1"); !errors.Is(err, api.ErrConflict) {
		t.Errorf("got %v, want ErrConflict", err)
	}
}

func TestRetryAndResolve(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		path, body string
		call       func(*client.Client) (*api.Task, error)
	}{
		{"/v1/tasks/t1/retry", `{"epoch":7,"reason":"seen to"}`, func(c *client.Client) (*api.Task, error) {
			return c.Retry(t.Context(), "t1", 7, "seen to")
		}},
		{"/v1/tasks/t1/resolve", `{"action":"succeeded","epoch":7,"reason":"found it","result":{ "n": 1.0 }}`, func(c *client.Client) (*api.Task, error) {
			return c.Resolve(t.Context(), "t1", api.Resolve{Action: api.ResolveSucceeded, Epoch: 7, Reason: "found it", Result: json.RawMessage(`{ "n": 1.0 }`)})
		}},
	} {
		cl, net := over(t, client.Opts{}, answers(200, nil, mustJSON(taskIn(api.Pending))))
		if _, err := c.call(cl); err != nil {
			t.Fatal(err)
		}
		if got := net.sent[0].URL.Path; got != c.path {
			t.Errorf("got path %s, want %s", got, c.path)
		}
		if diff := cmp.Diff(string(net.body[0]), c.body); diff != "" {
			t.Errorf("%s: -got +want:\n%s", c.path, diff)
		}
		// It may have been done: a second one would meet a raised epoch.
		cl, net = over(t, client.Opts{}, breaks(errReset))
		if _, err := c.call(cl); !errors.Is(err, api.ErrUnavailable) || net.tries() != 1 {
			t.Errorf("%s: got %v after %d tries, want ErrUnavailable after one", c.path, err, net.tries())
		}
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	pages := map[string]string{"": "c1", "c1": "c2", "c2": ""}
	var asked []string
	c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Query().Encode())
		at := r.URL.Query().Get("cursor")
		page := api.List[*api.Task]{Items: []*api.Task{}}
		for i := range 2 {
			page.Items = append(page.Items, &api.Task{ID: fmt.Sprintf("%s-%d", at, i), State: api.Pending})
		}
		if next := pages[at]; next != "" {
			page.Next = &next
		}
		reply(w, 200, page)
	}, nil)
	o := client.ListOpts{
		States: []api.State{api.Pending, api.Unknown}, Kind: "k", Key: "a&b", Limit: 2,
		Metadata: map[string]string{"customer": "4 2"}, TraceID: "abc", InputHash: "def",
		After: time.Date(2026, 1, 1, 1, 0, 0, 0, time.FixedZone("", 3600)), Before: time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	var ids []string
	for task, err := range c.List(t.Context(), o) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, task.ID)
	}
	if diff := cmp.Diff(ids, []string{"-0", "-1", "c1-0", "c1-1", "c2-0", "c2-1"}); diff != "" {
		t.Errorf("-got +want:\n%s", diff)
	}
	first := "created_after=2026-01-01T00%3A00%3A00Z&created_before=2027-01-01T00%3A00%3A00Z&input_hash=def&key=a%26b&kind=k&limit=2" +
		"&metadata%5Bcustomer%5D=4+2&state=pending&state=unknown&trace=abc"
	if asked[0] != first || len(asked) != 3 {
		t.Errorf("asked %q", asked)
	}
	for range c.List(t.Context(), o) {
		break // one page is enough for one task
	}
	if len(asked) != 4 {
		t.Errorf("asked %d times, want 4", len(asked))
	}
}

func TestListStops(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]step{
		"at a page that points to itself": answers(200, nil, `{"items":[],"next":"same"}`),
		"at an error":                     problemOf(api.CodeUnauthorized),
		"at another server's answer":      answers(200, html, `<html>`),
	} {
		c, _ := over(t, client.Opts{}, s)
		var errs []error
		for _, err := range c.List(t.Context(), client.ListOpts{}) {
			errs = append(errs, err)
		}
		if len(errs) != 1 || errs[0] == nil {
			t.Errorf("%s: got %v, want one error", name, errs)
		}
	}
}

func TestFindNothing(t *testing.T) {
	t.Parallel()
	c, _ := over(t, client.Opts{}, answers(200, nil, `{"items":[],"next":null}`))
	if _, err := c.Find(t.Context(), "k", "key"); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("got %v, want ErrNotFound", err)
	}
}

func TestResult(t *testing.T) {
	t.Parallel()
	type invoice struct {
		Number json.Number
	}
	done := taskIn(api.Succeeded)
	done.Result = json.RawMessage(`{"number": 12345678901234567890}`)
	if got, err := client.Result[invoice](done); err != nil || got.Number != "12345678901234567890" {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err := client.Result[map[string]any](done); err != nil || got["number"] != json.Number("12345678901234567890") {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := client.Result[[]int](done); err == nil {
		t.Error("an object was decoded as a list")
	}
	for state, is := range map[api.State]error{api.Failed: api.ErrFailed, api.Unknown: api.ErrUnknown, api.Cancelled: api.ErrFailed, api.Running: api.ErrConflict} {
		if _, err := client.Result[invoice](taskIn(state)); !errors.Is(err, is) {
			t.Errorf("%s: got %v, want %v", state, err, is)
		}
	}
	if _, err := client.Result[invoice](taskIn(api.Succeeded)); !errors.Is(err, api.ErrExpired) {
		t.Errorf("without a result: got %v, want ErrExpired", err)
	}
}
