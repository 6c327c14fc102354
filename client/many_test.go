package client_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/client"
)

// bulkServer answers each item by what its key says, and notes the requests.
type bulkServer struct {
	sizes []int
	seen  map[string]int // key -> times it came
}

func (s *bulkServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in struct{ Tasks []api.Keyed }
	if err := json.Unmarshal(readBody(r), &in); err != nil {
		panic(err)
	}
	s.sizes = append(s.sizes, len(in.Tasks))
	var a api.BulkAnswer
	for _, k := range in.Tasks {
		s.seen[k.Key]++
		item := api.BulkItem{Status: 202, Task: &api.Task{ID: "id-" + k.Key, Kind: k.Kind, Key: k.Key, State: api.Pending}}
		var e *api.Error
		switch {
		case k.Key == "reused":
			e = api.Errorf(api.CodeKeyReused, "another payload")
			e.Mismatch = []string{"input.a"}
		case k.Key == "away" && s.seen[k.Key] < 3, k.Key == "gone":
			e = api.Errorf(api.CodeUnavailable, "for now")
		case k.Key == "confused":
			item.Task.Key = "other"
		}
		if e != nil {
			item = api.BulkItem{Status: e.Status, Error: e}
		}
		a.Items = append(a.Items, item)
	}
	reply(w, http.StatusOK, a)
}

func TestSubmitMany(t *testing.T) {
	t.Parallel()
	s := &bulkServer{seen: map[string]int{}}
	c, _ := serve(t, s.ServeHTTP, &client.Opts{MaxRetries: 2})
	keys := []string{"a", "reused", "away", "gone", "", "confused", client.NoKey, "b"}
	items := make([]api.Keyed, len(keys))
	for i, k := range keys {
		items[i] = api.Keyed{Key: k, Submit: api.Submit{Kind: "k", Input: json.RawMessage(`1.0`)}}
	}
	got := c.SubmitMany(t.Context(), items)
	want := []error{nil, api.ErrKeyReused, nil, api.ErrUnavailable, api.ErrInvalid, api.ErrUnavailable, nil, nil}
	for i, w := range want {
		if !errors.Is(got[i].Err, w) || w == nil && (got[i].Err != nil || got[i].Task == nil) {
			t.Errorf("%q: got %+v, want %v", keys[i], got[i], w)
		}
	}
	var e *api.Error
	if !errors.As(got[1].Err, &e) || len(e.Mismatch) != 1 {
		t.Errorf("got %v, want the fields that differ", got[1].Err)
	}
	if s.seen["a"] != 1 || s.seen["away"] != 3 || s.seen["gone"] != 3 || s.seen[""] != 1 {
		t.Errorf("sent %v, want only what was away sent again", s.seen)
	}
}

func TestSubmitManySplits(t *testing.T) {
	t.Parallel()
	s := &bulkServer{seen: map[string]int{}}
	c, _ := serve(t, s.ServeHTTP, nil)
	items := make([]api.Keyed, 2500)
	for i := range items {
		items[i] = api.Keyed{Key: fmt.Sprint("k", i), Submit: api.Submit{Kind: "k", Input: json.RawMessage(`1`)}}
	}
	large := json.RawMessage(`"` + strings.Repeat("x", 3<<20) + `"`)
	items[0].Input, items[1].Input, items[2].Input = large, large, large
	for i, got := range c.SubmitMany(t.Context(), items) {
		if got.Err != nil || got.Task.Key != items[i].Key {
			t.Fatalf("%d: got %+v", i, got)
		}
	}
	if fmt.Sprint(s.sizes) != "[2 1000 1000 498]" {
		t.Errorf("got requests of %v tasks", s.sizes)
	}
}

func TestSubmitManyServerAway(t *testing.T) {
	t.Parallel()
	c, net := over(t, client.Opts{MaxRetries: 1}, breaks(errReset))
	got := c.SubmitMany(t.Context(), []api.Keyed{{Key: "a", Submit: api.Submit{Kind: "k", Input: json.RawMessage(`1`)}}})
	if !errors.Is(got[0].Err, api.ErrUnavailable) || !strings.Contains(got[0].Err.Error(), "not known") || net.tries() != 2 {
		t.Errorf("got %v after %d tries", got[0].Err, net.tries())
	}
}

func TestWaitAnyPolls(t *testing.T) {
	t.Parallel()
	polls := 0
	c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var in api.WaitAny
		if err := json.Unmarshal(readBody(r), &in); err != nil || len(in.IDs) != 2 || r.URL.Query().Get("wait") == "" {
			t.Errorf("got %v %s", in, r.URL)
		}
		if polls++; polls < 3 {
			reply(w, 200, api.Settled{})
			return
		}
		task := taskIn(api.Failed)
		task.Error = &api.TaskError{Code: "rejected", Message: "no"}
		reply(w, 200, api.Settled{Task: task})
	}, &client.Opts{Poll: time.Second})
	got, err := c.WaitAny(t.Context(), "t1", "t2")
	if !errors.Is(err, api.ErrFailed) || got == nil || got.ID != "t1" || polls != 3 {
		t.Errorf("got %+v, %v after %d polls", got, err, polls)
	}
	if _, err := c.WaitAny(t.Context()); !errors.Is(err, api.ErrInvalid) {
		t.Errorf("no ids: got %v", err)
	}
}
