package contract

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/client"
)

// row is a line in our form.
func row(k, kind, model, text string) string {
	w := work(kind, model, text)
	return fmt.Sprintf(`{"key":%q,"kind":%q,"input":%s}`+"\n", k, w.Kind, w.Input)
}

func (s *server) upload(t *testing.T, name, file string, o *client.BatchOpts) (*api.Batch, error) {
	t.Helper()
	return s.UploadBatch(t.Context(), key(t, name), strings.NewReader(file), o)
}

// lines reads a batch's results, without what differs from server to server.
func (s *server) lines(t *testing.T, id string, o *client.ResultsOpts) (out []api.BatchResult) {
	t.Helper()
	for l, err := range s.BatchResults(t.Context(), id, o) {
		if err != nil {
			t.Fatal(err)
		}
		var r api.BatchResult
		if err := json.Unmarshal(l.Text, &r); err != nil {
			t.Fatal(err)
		}
		if r.State != "invalid" && r.TaskID == "" {
			t.Errorf("line %d has no task", r.Line)
		}
		r.TaskID, r.Usage = "", nil
		if r.Error != nil {
			r.Error = &api.TaskError{Code: r.Error.Code, Permanent: r.Error.Permanent}
		}
		out = append(out, r)
	}
	return out
}

func batches(t *testing.T, s *server) {
	file := row(key(t, "1"), "work", works, "one") + "\n" + row(key(t, "2"), "work", refuses, "two") +
		row(key(t, "3"), "no-kind", works, "three") + row(key(t, "4"), "work", works, "four")
	b, err := s.upload(t, "b", file, nil)
	if err != nil || b.Created == nil || !*b.Created || b.Lines != 4 || b.Form != api.FormOnefold || b.Run != 1 || b.Bytes != int64(len(file)) || b.Counts.Total() != 4 {
		t.Fatalf("got %+v, %v", b, err)
	}
	done, err := s.WaitBatch(t.Context(), b.ID, nil)
	if err != nil || done.State != api.BatchCompleted || done.EndedAt == nil || done.ExpiresAt == nil {
		t.Fatalf("got %+v, %v", done, err)
	}
	if want := (api.BatchCounts{Succeeded: 2, Failed: 1, Invalid: 1}); done.Counts != want {
		t.Errorf("counts %+v, want %+v", done.Counts, want)
	}
	if len(done.Invalid) != 1 || done.Invalid[0].Line != 4 || done.Invalid[0].Code != api.CodeUnknownKind || done.Invalid[0].Field != "kind" {
		t.Errorf("invalid: %+v", done.Invalid)
	}
	want := []api.BatchResult{
		{Line: 1, Key: key(t, "1"), Kind: "work", State: "succeeded", Result: json.RawMessage(`"one"`)},
		{Line: 3, Key: key(t, "2"), Kind: "work", State: "failed", Error: &api.TaskError{Code: string(api.CodeRejected), Permanent: true}},
		{Line: 4, Key: key(t, "3"), State: "invalid", Error: &api.TaskError{Code: string(api.CodeUnknownKind), Permanent: true}},
		{Line: 5, Key: key(t, "4"), Kind: "work", State: "succeeded", Result: json.RawMessage(`"four"`)},
	}
	got := s.lines(t, b.ID, nil)
	byFinish := s.lines(t, b.ID, &client.ResultsOpts{Order: api.OrderFinished})
	if !slices.IsSortedFunc(byFinish, func(a, b api.BatchResult) int { return a.Finished - b.Finished }) || len(byFinish) != 4 {
		t.Errorf("as they finished: %+v", byFinish)
	}
	for i := range got {
		got[i].Finished = 0
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("-got +want:\n%s", diff)
	}
	again, err := s.upload(t, "b", file, nil)
	if err != nil || again.ID != b.ID || *again.Created || again.Counts != done.Counts {
		t.Errorf("the same again: %+v, %v", again, err)
	}
	if found, err := s.FindBatch(t.Context(), key(t, "b")); err != nil || found.ID != b.ID {
		t.Errorf("by key: %+v, %v", found, err)
	}
	if task, err := s.Find(t.Context(), "work", key(t, "1")); err != nil || task.BatchID != b.ID {
		t.Errorf("a line's task: %+v, %v", task, err)
	}
}

func batchRefusals(t *testing.T, s *server) {
	line := func(n int) string { return row(key(t, fmt.Sprint(n)), "work", works, "x") }
	for name, tt := range map[string]struct {
		file        string
		opts        *client.BatchOpts
		code        api.Code
		line, first int
	}{
		"empty":        {file: "\n \n", code: api.CodeEmptyBatch},
		"no id":        {file: line(1) + `{"kind":"work","input":{}}` + "\n", code: api.CodeMissingID, line: 2},
		"twice":        {file: line(1) + line(2) + line(1), code: api.CodeDuplicateID, line: 3, first: 1},
		"cut":          {file: line(1) + line(2)[:20], code: api.CodeCutLine, line: 2},
		"no such kind": {file: line(1), opts: &client.BatchOpts{Kind: "no-kind"}, code: api.CodeUnknownKind},
		"too short":    {file: line(1), opts: &client.BatchOpts{Deadline: time.Millisecond}, code: api.CodeInvalidParam},
	} {
		_, err := s.upload(t, name, tt.file, tt.opts)
		var e *api.Error
		if !errors.As(err, &e) || e.Code != tt.code || e.Line != tt.line || e.FirstLine != tt.first {
			t.Errorf("%s: got %v, want %s in line %d", name, err, tt.code, tt.line)
		}
	}
	if _, err := s.Find(t.Context(), "work", key(t, "1")); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("a refused file made a task: %v", err)
	}
	if _, err := s.upload(t, "b", line(1), nil); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		file string
		opts *client.BatchOpts
		want string
	}{"another file": {line(1) + line(2), nil, "file"}, "other options": {line(1), &client.BatchOpts{Deadline: time.Hour}, "options"}} {
		_, err := s.upload(t, "b", tt.file, tt.opts)
		var e *api.Error
		if !errors.Is(err, api.ErrKeyReused) || !errors.As(err, &e) || !slices.Equal(e.Mismatch, []string{tt.want}) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := s.Batch(t.Context(), "0199aaaa-0000-7000-8000-000000000000"); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("no such batch: %v", err)
	}
}

func batchActs(t *testing.T, s *server) {
	b, err := s.upload(t, "slow", row(key(t, "s1"), "work", slow, "x")+row(key(t, "s2"), "work", slow, "y"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.RetryBatch(t.Context(), b.ID, 1, "too early"); !errors.Is(err, api.ErrConflict) {
		t.Errorf("a retry of what runs: %v", err)
	}
	for range 2 {
		if _, err := s.CancelBatch(t.Context(), b.ID, "enough"); err != nil {
			t.Fatal(err)
		}
	}
	done, err := s.WaitBatch(t.Context(), b.ID, nil)
	if err != nil || done.State != api.BatchCancelled || done.Counts != (api.BatchCounts{Cancelled: 2}) {
		t.Fatalf("got %+v, %v", done, err)
	}
	mended, err := s.upload(t, "mends", row(key(t, "m1"), "work", mends, "x")+row(key(t, "m2"), "work", works, "y"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if done, err = s.WaitBatch(t.Context(), mended.ID, nil); err != nil || done.Counts != (api.BatchCounts{Succeeded: 1, Failed: 1}) {
		t.Fatalf("got %+v, %v", done, err)
	}
	if _, err := s.CancelBatch(t.Context(), mended.ID, "late"); !errors.Is(err, api.ErrConflict) {
		t.Errorf("a cancel of what is done: %v", err)
	}
	if _, err := s.RetryBatch(t.Context(), mended.ID, 2, "another state"); !errors.Is(err, api.ErrConflict) {
		t.Errorf("a retry of another state: %v", err)
	}
	again, err := s.RetryBatch(t.Context(), mended.ID, 1, "mended")
	if err != nil || again.Run != 2 {
		t.Fatalf("got %+v, %v", again, err)
	}
	if done, err = s.WaitBatch(t.Context(), mended.ID, nil); err != nil || done.State != api.BatchCompleted || done.Counts != (api.BatchCounts{Succeeded: 2}) {
		t.Fatalf("got %+v, %v", done, err)
	}
	if _, err := s.RetryBatch(t.Context(), mended.ID, 2, "nothing failed"); !errors.Is(err, api.ErrConflict) {
		t.Errorf("a retry of nothing: %v", err)
	}
}

func batchForms(t *testing.T, s *server) {
	line := func(id, url string) string {
		return fmt.Sprintf(`{"custom_id":%q,"method":"POST","url":%q,"body":{"model":"fake:ok","messages":[{"role":"user","content":"x"}]}}`+"\n", id, url)
	}
	b, err := s.upload(t, "b", line("row-1", "/v1/chat/completions")+line("row-2", "/v1/embeddings"), nil)
	if err != nil || b.Form != api.FormOpenAI || b.Kind != "llm.chat" {
		t.Fatalf("got %+v, %v", b, err)
	}
	done, err := s.WaitBatch(t.Context(), b.ID, nil)
	if err != nil || done.Counts != (api.BatchCounts{Succeeded: 1, Invalid: 1}) {
		t.Fatalf("got %+v, %v", done, err)
	}
	for o, want := range map[string][]string{"": {"row-1", "row-2"}, "succeeded": {"row-1"}, "errors": {"row-2"}} {
		var ids []string
		for l, err := range s.BatchResults(t.Context(), b.ID, &client.ResultsOpts{Only: o}) {
			if err != nil {
				t.Fatal(err)
			}
			var r api.OpenAIResult
			if err := json.Unmarshal(l.Text, &r); err != nil {
				t.Fatal(err)
			}
			if good := *r.CustomID == "row-1"; good != (r.Response != nil) || good == (r.Error != nil) || good && r.Response.StatusCode != 200 {
				t.Errorf("got %s", l.Text)
			}
			ids = append(ids, *r.CustomID)
		}
		if !slices.Equal(ids, want) {
			t.Errorf("only %q: got %v", o, ids)
		}
	}
}
