package server_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/api"
)

// shot is one request of a storm and what came of it.
type shot struct {
	key, body string
	status    int
	id        string
}

// storm sends all shots at once, by turns to each process, on kept and on fresh
// connections.
func storm(t *testing.T, shots []*shot, apis ...*bundle) {
	t.Helper()
	kept := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	fresh := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	var all sync.WaitGroup
	begin := make(chan struct{})
	for i, s := range shots {
		b, client := apis[i%len(apis)], kept
		if i/len(apis)%2 == 0 {
			client = fresh
		}
		all.Go(func() {
			<-begin
			if err := s.send(t, b, client); err != nil {
				t.Error(err)
			}
		})
	}
	close(begin)
	all.Wait()
}

func (s *shot) send(t *testing.T, b *bundle, client *http.Client) error {
	req, err := http.NewRequest(http.MethodPost, b.URL+"/v1/tasks", bytes.NewReader([]byte(s.body)))
	if err != nil {
		return err
	}
	req.Header = http.Header{"Content-Type": {"application/json"}, "Idempotency-Key": {s.key}, "Authorization": {"Bearer " + b.Key}}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	r := read(t, resp, raw)
	s.status, s.id = r.status, r.task.ID
	return nil
}

// A thousand submits of one key over two processes: one task, one answer that it
// is new, and all others that it is known.
func TestStormOfOneKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	shots := make([]*shot, 1000)
	for i := range shots {
		shots[i] = &shot{key: "same", body: chat}
	}
	storm(t, shots, b, startOn(t, b))
	statuses, ids := map[int]int{}, map[string]bool{}
	for _, s := range shots {
		statuses[s.status]++
		ids[s.id] = true
	}
	if diff := cmp.Diff(statuses, map[int]int{202: 1, 200: 999}); diff != "" || len(ids) != 1 {
		t.Errorf("got %d ids; statuses: -got +want:\n%s", len(ids), diff)
	}
	b.counts(t, 1)
}

// Fifty keys forty times each, shuffled, one in twenty with another payload: one
// task a key; who comes with another payload than the first is refused.
func TestStormOfManyKeys(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var shots []*shot
	for k := range 50 {
		for i := range 40 {
			s := &shot{key: fmt.Sprint(k), body: chat}
			if i < 2 {
				s.body = `{"kind":"llm.chat","input":{"model":"changed"}}`
			}
			shots = append(shots, s)
		}
	}
	rand.Shuffle(len(shots), func(i, j int) { shots[i], shots[j] = shots[j], shots[i] })
	storm(t, shots, b, startOn(t, b))
	first := map[string]*shot{}
	for _, s := range shots {
		if s.status == 202 {
			if first[s.key] != nil {
				t.Errorf("key %s: two answers that it is new", s.key)
			}
			first[s.key] = s
		}
	}
	for _, s := range shots {
		f, want := first[s.key], 200
		switch {
		case f == nil:
			t.Fatalf("key %s: no answer that it is new", s.key)
		case s == f:
			want = 202
		case s.body != f.body:
			want = 422
		}
		if s.status != want || want != 422 && s.id != f.id {
			t.Errorf("key %s: got %d for task %s, want %d for %s", s.key, s.status, s.id, want, f.id)
		}
	}
	b.counts(t, 50)
}

// counts checks that there are n tasks with one wake-up each.
func (b *bundle) counts(t *testing.T, n int) {
	t.Helper()
	var tasks, wakes int
	err := b.DB.QueryRow(context.Background(), `SELECT (SELECT count(*) FROM onefold.tasks), (SELECT count(*) FROM onefold.river_job WHERE kind = 'task')`).Scan(&tasks, &wakes)
	if err != nil || tasks != n || wakes != n {
		t.Errorf("got %d tasks with %d wake-ups, %v, want %d of each", tasks, wakes, err, n)
	}
}

// Through a pooler nothing is prepared and no session is kept; all works alike.
func TestThroughAPooler(t *testing.T) {
	t.Parallel()
	first := setup(t)
	b := &bundle{Log: &logs{}, database: first.database, DB: first.DB, Key: first.Key, pooled: true}
	b.run(t)
	r := b.submit(t, "k", `{"kind":"review","input":1,"metadata":{"a":"b"},"budget":{"id":"x","sends":3},"run_at":"`+time.Now().Add(time.Hour).Format(time.RFC3339)+`"}`)
	if r.status != 202 {
		t.Fatalf("got %d %s", r.status, r.body)
	}
	id := r.task.ID
	b.submit(t, "k", chat)
	b.settle(t, id, api.Unknown, nil)
	for _, c := range []struct {
		method, path, body string
	}{
		{"GET", "/v1/tasks/" + id, ""},
		{"GET", "/v1/tasks/" + id + "?wait=5s", ""},
		{"GET", "/v1/tasks/" + id + "/input", ""},
		{"GET", "/v1/tasks/" + id + "/effects", ""},
		{"GET", "/v1/tasks?metadata[a]=b&state=unknown&kind=review&key=k&created_after=2001-01-01T00:00:00Z", ""},
		{"POST", "/v1/tasks/" + id + "/retry", `{"epoch":1,"reason":"r"}`},
		{"GET", "/v1/tasks/" + id + "?include=queue", ""},
		{"POST", "/v1/tasks/" + id + "/cancel", ""},
	} {
		if r := b.do(t, call{method: c.method, path: c.path, body: c.body}); r.status != 200 {
			t.Errorf("%s %s: got %d %s\n%s", c.method, c.path, r.status, r.body, b.logLine(t, r.problem.RequestID))
		}
	}
	id = b.submit(t, "k2", `{"kind":"review","input":1}`).task.ID
	b.settle(t, id, api.Unknown, nil)
	if r := b.act(t, id, "resolve", `{"action":"succeeded","epoch":1,"reason":"r","result":{"n":1}}`); r.status != 200 {
		t.Errorf("resolve: got %d %s", r.status, r.body)
	}
	if r := b.submit(t, "k2", `{"kind":"review","input":1}`); r.status != 200 || string(r.task.Result) != `{"n":1}` {
		t.Errorf("replay: got %d %s", r.status, r.body)
	}
	if r := b.submit(t, "k2", `{"kind":"review","input":2}`); r.status != 422 {
		t.Errorf("reused: got %d %s", r.status, r.body)
	}
}
