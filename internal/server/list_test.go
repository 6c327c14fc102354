package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/api"
)

type page = api.List[api.Task]

func (b *bundle) list(t *testing.T, key, query string) page {
	t.Helper()
	r := b.do(t, call{method: "GET", path: "/v1/tasks?" + query, key: key})
	var p page
	if err := json.Unmarshal(r.body, &p); err != nil || r.status != 200 {
		t.Fatalf("list %s: got %d %s", query, r.status, r.body)
	}
	return p
}

func keysOf(p page) []string {
	keys := []string{}
	for _, task := range p.Items {
		keys = append(keys, task.Key)
	}
	return keys
}

func TestListPages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var want []string
	for i := range 7 {
		b.submit(t, fmt.Sprint(i), chat)
		want = append([]string{fmt.Sprint(i)}, want...) // newest first
	}
	other := b.key(t, "b", api.ScopeSubmit, api.ScopeRead)
	b.do(t, call{method: "POST", path: "/v1/tasks", key: other, idem: "theirs", body: chat})
	var got []string
	query := "limit=3"
	for range 4 {
		p := b.list(t, "", query)
		got = append(got, keysOf(p)...)
		if p.Next == nil {
			break
		}
		if len(p.Items) != 3 {
			t.Errorf("got a page of %d with more to come, want 3", len(p.Items))
		}
		query = "limit=3&cursor=" + url.QueryEscape(*p.Next)
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("-got +want:\n%s", diff)
	}
}

func TestListFilters(t *testing.T) {
	t.Parallel()
	b := setup(t)
	post := func(key, body string, trace string) api.Task {
		c := call{method: "POST", path: "/v1/tasks", idem: key, body: body}
		if trace != "" {
			c.header = map[string][]string{"Traceparent": {"00-" + trace + "-00f067aa0ba902b7-01"}}
		}
		r := b.do(t, c)
		if r.status != 202 {
			t.Fatalf("got %d %s", r.status, r.body)
		}
		return r.task
	}
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	one := post("one", `{"kind":"llm.chat","input":{"model":"m"},"metadata":{"order":"7","shop":"é\"x"}}`, trace)
	two := post("two", `{"kind":"llm.chat","input":{"model":"n"},"metadata":{"order":"8"}}`, "")
	three := post("one", `{"kind":"open","input":3}`, "")
	b.settle(t, two.ID, api.Succeeded, []byte(`"large"`))
	if _, err := b.DB.Exec(context.Background(), `UPDATE onefold.tasks SET created_at = created_at - interval '2 h' WHERE id = $1`, one.ID); err != nil {
		t.Fatal(err)
	}
	split := url.QueryEscape(two.CreatedAt.Format("2006-01-02T15:04:05.999999Z07:00"))
	for query, want := range map[string][]string{
		"":                              {three.ID, two.ID, one.ID},
		"kind=llm.chat":                 {two.ID, one.ID},
		"kind=llm.chat&key=one":         {one.ID},
		"kind=open&key=one":             {three.ID},
		"kind=open&key=two":             {},
		"state=pending":                 {three.ID, one.ID},
		"state=pending&state=succeeded": {three.ID, two.ID, one.ID},
		"state=failed":                  {},
		"metadata[order]=7":             {one.ID},
		"metadata%5Border%5D=8":         {two.ID},
		"metadata[order]=9":             {},
		"metadata[nosuch]=9":            {},
		"metadata[order]=7&metadata[shop]=" + url.QueryEscape(`é"x`): {one.ID},
		"trace=" + trace:              {one.ID},
		"input_hash=" + two.InputHash: {two.ID},
		"created_before=" + split:     {one.ID},
		"created_after=" + split:      {three.ID, two.ID},
		"created_after=2001-01-01T00:00:00Z&created_before=2001-01-02T00:00:00Z": {},
	} {
		p := b.list(t, "", query)
		ids := []string{}
		for _, task := range p.Items {
			ids = append(ids, task.ID)
			if task.Result != nil {
				t.Errorf("%q: a list carries a result", query)
			}
		}
		if diff := cmp.Diff(ids, want); diff != "" {
			t.Errorf("%q: -got +want:\n%s", query, diff)
		}
	}
}

func TestListRefuses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for i := range 3 {
		b.submit(t, fmt.Sprint(i), chat)
	}
	next := *b.list(t, "", "limit=1").Next
	changed := []byte(next)
	changed[3] ^= 1
	for query, field := range map[string]string{
		"limit=0": "limit", "limit=201": "limit", "limit=x": "limit", "limit=9999999999999999999999": "limit",
		"state=done": "state[0]", "key=k": "kind", "trace=xyz": "trace", "input_hash=12": "input_hash",
		"created_after=yesterday": "created_after", "order=asc": "order", "kind=%ff": "kind", "kind=%00": "kind",
		"metadata[a]=%00": "metadata", "cursor=abc": "cursor", "cursor=" + string(changed): "cursor",
		"cursor=" + next + "&kind=llm.chat": "cursor",
	} {
		r := b.do(t, call{method: "GET", path: "/v1/tasks?" + query})
		checkProblem(t, r)
		if r.problem.Code != api.CodeInvalidParam || r.problem.Field != field {
			t.Errorf("%s: got %s about %q, want invalid_parameter about %q", query, r.problem.Code, r.problem.Field, field)
		}
	}
	other := b.key(t, "b", api.ScopeRead)
	if r := b.do(t, call{method: "GET", path: "/v1/tasks?limit=1&cursor=" + next, key: other}); r.status != 400 {
		t.Errorf("another tenant's cursor: got %d %s, want 400", r.status, r.body)
	}
}

// A filter that nothing fits reads a bounded number of rows a page, and says
// that there is more to look at.
func TestListScansABoundedNumber(t *testing.T) {
	t.Parallel()
	b := setup(t)
	oldest := b.submit(t, "oldest", `{"kind":"free","input":1}`).task
	_, err := b.DB.Exec(context.Background(), `
INSERT INTO onefold.tasks (id, tenant, kind, key, slot, dedupe, provider, fingerprint, fingerprint_version, input_hash, deadline_after, config_hash, deadline, input)
SELECT overlay(gen_random_uuid()::text PLACING 'ffffffff-ffff-7' FROM 1 FOR 15)::uuid, t.tenant, 'llm.chat', i::text, '', 'key', t.provider, t.fingerprint, 1, t.input_hash,
       t.deadline_after, t.config_hash, t.deadline, t.input
FROM onefold.tasks AS t, generate_series(1, 10001) AS i`)
	if err != nil {
		t.Fatal(err)
	}
	p := b.list(t, "", "kind=free")
	if len(p.Items) != 0 || p.Next == nil {
		t.Fatalf("got %d tasks, next %v, want none with more to come", len(p.Items), p.Next)
	}
	p = b.list(t, "", "kind=free&cursor="+*p.Next)
	if got := keysOf(p); !slices.Equal(got, []string{"oldest"}) || p.Next != nil || p.Items[0].ID != oldest.ID {
		t.Errorf("got %v, next %v, want the oldest and the end", got, p.Next)
	}
}
