package api_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/api"
)

// odd is what encoding/json would change: spacing, escapes, key order, digits.
const odd = "{ \"b\":1e100,\n\t\"a\": \"<&>\\u00e9\u2028\\/\", \"n\":0.10000000000000000001, \"a\":1.0}"

func TestTaskAppend(t *testing.T) {
	t.Parallel()
	task := api.Task{ID: "1", Kind: "k", Key: "a&b<c>", State: api.Succeeded, Result: json.RawMessage(odd), Metadata: json.RawMessage(` {"x": 1}`)}
	got, err := task.Append([]byte("prefix "))
	if err != nil {
		t.Fatal(err)
	}
	body, ok := bytes.CutPrefix(got, []byte("prefix "))
	if !ok {
		t.Fatalf("got %q, want what was in dst kept", got)
	}
	var back api.Task
	if err := json.Unmarshal(body, &back); err != nil {
		t.Fatalf("decode %s: %v", body, err)
	}
	task.Metadata = json.RawMessage(`{"x": 1}`) // white space around a value belongs to no value
	if diff := cmp.Diff(back, task); diff != "" {
		t.Errorf("-got +want:\n%s", diff)
	}
}

func TestSubmitAppend(t *testing.T) {
	t.Parallel()
	s := api.Submit{Kind: "k", Input: json.RawMessage(odd), Priority: new(0)}
	got, err := s.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"kind":"k","priority":0,"input":` + odd + `}`
	if diff := cmp.Diff(string(got), want); diff != "" {
		t.Errorf("-got +want:\n%s", diff)
	}
}

func TestSubmitAppendRefusesWhatWouldSpill(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{`1,"kind":"other"`, `{`, `1}`, ` `, "\xef\xbb\xbf1"} {
		s := api.Submit{Kind: "k", Input: json.RawMessage(raw)}
		if _, err := s.Append(nil); !errors.Is(err, api.ErrInvalid) {
			t.Errorf("Append with input %q: got %v, want ErrInvalid", raw, err)
		}
	}
}

func TestResolveAppend(t *testing.T) {
	t.Parallel()
	r := api.Resolve{Action: api.ResolveSucceeded, Epoch: 4, Reason: "seen <there>", Result: json.RawMessage(`{ "a" : 1.0 }`)}
	got, err := r.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"action":"succeeded","epoch":4,"reason":"seen <there>","result":{ "a" : 1.0 }}`
	if diff := cmp.Diff(string(got), want); diff != "" {
		t.Errorf("-got +want:\n%s", diff)
	}
}
