package contract

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// said is what an answer says besides the task.
type said struct {
	Status   int
	Type     string
	Code     string
	Field    string
	Location bool
	Replayed string
	Retry    bool
}

// statuses holds the answers themselves against each other, as a caller without
// our client sees them.
func statuses(t *testing.T, s *server) {
	const ok = `{"kind":"work","input":{"model":"fake:ok","text":"x"}}`
	k := key(t, "a")
	json := http.Header{"Content-Type": {"application/json"}}
	const js, pr = "application/json", "application/problem+json"
	for _, tt := range []struct {
		name, method, path, body string
		header                   http.Header
		want                     said
	}{
		{"new", "POST", "/v1/tasks", ok, with(json, "Idempotency-Key", k, "Prefer", "wait=60"), said{202, js, "", "", true, "", false}},
		{"again", "POST", "/v1/tasks", ok, with(json, "X-Idempotency-Key", `"`+k+`"`), said{200, js, "", "", false, "true", false}},
		{"changed", "POST", "/v1/tasks", strings.Replace(ok, `"x"`, `"y"`, 1), with(json, "Idempotency-Key", k), said{422, pr, "key_reused", "", false, "", false}},
		{"no key", "POST", "/v1/tasks", ok, json, said{400, pr, "key_missing", "Idempotency-Key", false, "", false}},
		{"two keys", "POST", "/v1/tasks", ok, with(json, "Idempotency-Key", k, "X-Idempotency-Key", "other"), said{400, pr, "key_conflict", "Idempotency-Key", false, "", false}},
		{"reserved", "POST", "/v1/tasks", ok, with(json, "Idempotency-Key", "onefold:x"), said{400, pr, "key_reserved_form", "Idempotency-Key", false, "", false}},
		{"text", "POST", "/v1/tasks", ok, with(http.Header{"Content-Type": {"text/plain"}}, "Idempotency-Key", k), said{415, pr, "unsupported_media_type", "Content-Type", false, "", false}},
		{"no JSON", "POST", "/v1/tasks", `{"kind"`, with(json, "Idempotency-Key", k), said{400, pr, "invalid_json", "", false, "", false}},
		{"another field", "POST", "/v1/tasks", `{"kind":"work","input":1,"nosuch":1}`, with(json, "Idempotency-Key", k), said{400, pr, "unknown_field", "nosuch", false, "", false}},
		{"no task", "GET", "/v1/tasks/nosuch", "", nil, said{404, pr, "not_found", "", false, "", false}},
		{"a parameter", "GET", "/v1/tasks?nosuch=1", "", nil, said{400, pr, "invalid_parameter", "nosuch", false, "", false}},
		{"a limit", "GET", "/v1/tasks?limit=0", "", nil, said{400, pr, "invalid_parameter", "limit", false, "", false}},
		{"an empty bulk", "POST", "/v1/tasks/bulk", `{"tasks":[]}`, json, said{400, pr, "invalid_field", "tasks", false, "", false}},
		{"another bulk", "POST", "/v1/tasks/bulk", `{"items":[]}`, json, said{400, pr, "unknown_field", "items", false, "", false}},
		{"a list", "GET", "/v1/tasks?kind=work", "", nil, said{200, js, "", "", false, "", false}},
	} {
		if diff := cmp.Diff(s.ask(t, tt.method, tt.path, tt.body, tt.header), tt.want); diff != "" {
			t.Errorf("%s: -got +want:\n%s", tt.name, diff)
		}
	}
}

func with(h http.Header, more ...string) http.Header {
	out := h.Clone()
	for i := 0; i < len(more); i += 2 {
		out.Set(more[i], more[i+1])
	}
	return out
}

func (s *server) ask(t *testing.T, method, path, body string, header http.Header) said {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.GetBody = nil
	for name, values := range header {
		r.Header[name] = values
	}
	r.Header.Set("Authorization", "Bearer "+s.key)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var doc struct{ Code, Field, Detail, Title string }
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Errorf("%s %s: %v in %s", method, path, err, raw)
	}
	if resp.StatusCode >= 400 && (doc.Detail == "" || doc.Title == "") {
		t.Errorf("%s %s: a problem without words: %s", method, path, raw)
	}
	return said{
		resp.StatusCode, resp.Header.Get("Content-Type"), doc.Code, doc.Field, resp.Header.Get("Location") != "",
		resp.Header.Get("Idempotent-Replayed"), resp.Header.Get("Retry-After") != "",
	}
}
