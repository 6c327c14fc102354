package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/api"
)

func bulk(t *testing.T, b *bundle, body string) (reply, api.BulkAnswer) {
	t.Helper()
	r := b.do(t, call{method: "POST", path: "/v1/tasks/bulk", body: body})
	var a api.BulkAnswer
	if r.status == http.StatusOK {
		if err := json.Unmarshal(r.body, &a); err != nil {
			t.Fatalf("decode %s: %v", r.body, err)
		}
	}
	return r, a
}

// Each item is answered as a submit of it alone would be; a bad one touches no
// other.
func TestBulk(t *testing.T) {
	t.Parallel()
	b := setup(t)
	before := b.submit(t, "old", chat)
	b.submit(t, "other", `{"kind":"llm.chat","input":{"model":"m","n":1}}`)
	item := func(key, input string) string {
		return fmt.Sprintf(`{"key":%q,"kind":"llm.chat","input":%s}`, key, input)
	}
	const same = `{"model":"m","messages":[{"role":"user","content":"hi"}]}`
	deep := strings.Repeat("[", 199) + strings.Repeat("]", 199)
	items := []string{
		item("new", same),
		item("old", same),
		item("other", `{"model":"m","n":2}`),
		item("new", same),
		item("new", `{"model":"another"}`),
		`{"kind":"llm.chat","input":{"model":"m"}}`,
		item("twice", `{"model":"m","model":"n"}`),
		`[1,2]`,
		item("deep", `{"model":"m","x":`+deep+`}`),
		`{"kind":"free","input":1}`,
		item("verbatim", `{ "model" : "m", "f": 1.0e2 }`),
		`{"key":"a b","kind":"llm.chat","input":{"model":"m"}}`,
	}
	r, a := bulk(t, b, `{"tasks":[`+strings.Join(items, ",")+`]}`)
	if r.status != http.StatusOK || len(a.Items) != len(items) {
		t.Fatalf("got %d %s", r.status, r.body)
	}
	type short struct {
		Status  int
		Code    api.Code
		Created bool
	}
	got := make([]short, len(a.Items))
	for i, item := range a.Items {
		got[i].Status = item.Status
		if item.Error != nil {
			got[i].Code = item.Error.Code
		} else {
			got[i].Created = *item.Task.Created
		}
	}
	want := []short{
		{202, "", true},
		{200, "", false},
		{422, api.CodeKeyReused, false},
		{200, "", false},
		{422, api.CodeKeyReused, false},
		{400, api.CodeKeyMissing, false},
		{400, api.CodeDuplicateMember, false},
		{400, api.CodeInvalidJSON, false},
		{202, "", true},
		{202, "", true},
		{202, "", true},
		{400, api.CodeKeyMalformed, false},
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("-got +want:\n%s", diff)
	}
	if a.Items[1].Task.ID != before.task.ID || a.Items[0].Task.ID != a.Items[3].Task.ID {
		t.Error("the items did not fold onto the tasks of their keys")
	}
	if n := b.stored(t, "a"); n != 6 {
		t.Errorf("%d tasks, want 6", n)
	}
	in := b.do(t, call{method: "GET", path: "/v1/tasks/" + a.Items[10].Task.ID + "/input"})
	if string(in.body) != `{ "model" : "m", "f": 1.0e2 }` {
		t.Errorf("the input came back as %s", in.body)
	}
}

func TestBulkRefusedAsAWhole(t *testing.T) {
	t.Parallel()
	b := setup(t)
	one := `{"key":"k","kind":"free","input":1}`
	for body, want := range map[string]api.Code{
		`{"tasks":[]}`:              api.CodeInvalidField,
		`{"tasks":{}}`:              api.CodeInvalidField,
		`{}`:                        api.CodeInvalidField,
		`[]`:                        api.CodeInvalidJSON,
		`{"tasks":[` + one:          api.CodeInvalidJSON,
		`{"tasks":[` + one + `]`:    api.CodeInvalidJSON,
		`{"tasks":[` + one + `]} x`: api.CodeTrailingData,
		`{"tasks":[` + one + `],"tasks":[` + one + `]}`:          api.CodeDuplicateMember,
		`{"tasks":[` + one + `],"more":1}`:                       api.CodeUnknownField,
		`{"tasks":[1` + strings.Repeat(",1", api.MaxBulk) + `]}`: api.CodeInvalidField,
	} {
		r, _ := bulk(t, b, body)
		checkProblem(t, r)
		if r.problem.Code != want {
			t.Errorf("%.80s: got %s, want %s", body, r.problem.Code, want)
		}
	}
	if n := b.stored(t, "a"); n != 0 {
		t.Errorf("%d tasks were stored", n)
	}
}

// A thousand tasks by several callers at once, in bulks and alone: one task a
// key, and few transactions.
func TestBulkRace(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var body strings.Builder
	for i := range api.MaxBulk {
		fmt.Fprintf(&body, `,{"key":"k%d","kind":"review","input":%d}`, i, i)
	}
	text := `{"tasks":[` + body.String()[1:] + `]}`
	var all sync.WaitGroup
	created := make([]int, 4)
	for n := range created {
		all.Go(func() {
			r, a := bulk(t, b, text)
			if r.status != http.StatusOK {
				t.Errorf("got %d %.300s", r.status, r.body)
			}
			for _, item := range a.Items {
				switch {
				case item.Error != nil:
					t.Errorf("got %v", item.Error)
				case *item.Task.Created:
					created[n]++
				}
			}
		})
	}
	alone := 0
	all.Go(func() {
		for i := range 20 {
			if r := b.submit(t, fmt.Sprintf("k%d", 50*i), fmt.Sprintf(`{"kind":"review","input":%d}`, 50*i)); r.status > 202 {
				t.Errorf("got %d %s", r.status, r.body)
			} else if *r.task.Created {
				alone++
			}
		}
	})
	all.Wait()
	sum := alone
	for _, n := range created {
		sum += n
	}
	if n := b.stored(t, "a"); n != api.MaxBulk || sum != n {
		t.Errorf("%d tasks, %d said to be created, want %d", n, sum, api.MaxBulk)
	}
	var commits int
	if err := b.DB.QueryRow(context.Background(), `SELECT count(DISTINCT xmin::text) FROM onefold.tasks`).Scan(&commits); err != nil {
		t.Fatal(err)
	}
	if commits > 60 {
		t.Errorf("a thousand tasks took %d transactions", commits)
	}
}

func TestWaitAny(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ids := make([]string, 5)
	for i := range ids {
		ids[i] = b.submit(t, fmt.Sprint("k", i), chat).task.ID
	}
	body := `{"ids":["` + strings.Join(ids, `","`) + `"]}`
	wait := func(query, body string) (reply, *api.Task) {
		t.Helper()
		r := b.do(t, call{method: "POST", path: "/v1/tasks/wait" + query, body: body})
		var s api.Settled
		if r.status == http.StatusOK {
			if err := json.Unmarshal(r.body, &s); err != nil {
				t.Fatal(err)
			}
		}
		return r, s.Task
	}
	if r, got := wait("", body); got != nil || r.header.Get("Retry-After") == "" {
		t.Errorf("got %s, want no task and a time to ask again", r.body)
	}
	done := make(chan *api.Task)
	go func() {
		_, got := wait("?wait=60s", body)
		done <- got
	}()
	b.settle(t, ids[3], api.Succeeded, []byte(`"done"`))
	if got := <-done; got == nil || got.ID != ids[3] || string(got.Result) != `"done"` {
		t.Errorf("got %+v, want the task that settled", got)
	}
	if _, got := wait("", body); got == nil || got.ID != ids[3] {
		t.Errorf("got %+v, want the task that settled", got)
	}
	foreign := b.key(t, "b", api.ScopeRead)
	r := b.do(t, call{method: "POST", path: "/v1/tasks/wait", key: foreign, body: body})
	if r.status != http.StatusNotFound {
		t.Errorf("another tenant: got %d %s", r.status, r.body)
	}
	if r, _ := wait("?wait=60s", `{"ids":["`+ids[0]+`","00000000-0000-7000-8000-000000000000"]}`); r.status != http.StatusNotFound {
		t.Errorf("one that is not there: got %d %s", r.status, r.body)
	}
}
