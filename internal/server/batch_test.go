package server_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/casetest"
)

var jsonl = http.Header{"Content-Type": {"application/jsonl"}}

// chatLine is a line of OpenAI's form.
func chatLine(id, prompt string) string {
	return fmt.Sprintf(`{"custom_id":%q,"method":"POST","url":"/v1/chat/completions","body":{"model":"m","messages":[{"role":"user","content":%q}]}}`, id, prompt) + "\n"
}

// upload sends a file and reads the batch.
func (b *bundle) upload(t *testing.T, idem, file string, header http.Header) (reply, api.Batch) {
	t.Helper()
	h := jsonl.Clone()
	for name, values := range header {
		h[name] = values
	}
	if file == "" { // a body of nothing is a body, too
		h["Content-Length"] = []string{"0"}
	}
	r := b.do(t, call{method: "POST", path: "/v1/batches", idem: idem, body: file, header: h})
	var got api.Batch
	if r.status < 300 {
		if err := json.Unmarshal(r.body, &got); err != nil {
			t.Fatal(err)
		}
	}
	return r, got
}

// batchCalls are the requests of TestSpec about batches.
func batchCalls(t *testing.T, b *bundle, w world) (calls []specCall) {
	t.Helper()
	_, running := b.upload(t, "spec-running", chatLine("a", "hi"), nil)
	_, over := b.upload(t, "spec-over", "{\"custom_id\":\"a\"}\n"+chatLine("b", "hi"), nil)
	_, failed := b.upload(t, "spec-failed", chatLine("a", "hi"), nil)
	staging := uuid.Must(uuid.NewV7()).String()
	for sql, args := range map[string][]any{
		`INSERT INTO onefold.batches (id, tenant, key, kind, deadline_after, options_hash, form) VALUES ($1::text::uuid, 'a', 'spec-staging', 'llm.chat', interval '1 h', sha256('other'), 'openai')`: {staging},
		`UPDATE onefold.batches SET state = 'completed', ended_at = now() WHERE id = $1::text::uuid`:                                                                                                  {over.ID},
		`UPDATE onefold.batches SET state = 'expired', ended_at = now(), released = 1 WHERE id = $1::text::uuid`:                                                                                      {failed.ID},
		`UPDATE onefold.batch_lines SET state = 'expired', finished = 1 WHERE batch_id = $1::text::uuid`:                                                                                              {failed.ID},
	} {
		if _, err := b.DB.Exec(context.Background(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	const up, one, list, results, cancel, retry = "POST /v1/batches", "GET /v1/batches/{id}", "GET /v1/batches", "GET /v1/batches/{id}/results",
		"POST /v1/batches/{id}/cancel", "POST /v1/batches/{id}/retry"
	calls = []specCall{
		{route: up, want: 202, idem: "spec-new", body: chatLine("a", "hi"), header: jsonl},
		{route: up, want: 200, idem: "spec-new", body: chatLine("a", "hi"), header: jsonl},
		{route: up, want: 422, idem: "spec-new", body: chatLine("a", "ho"), header: jsonl},
		{route: up, want: 409, idem: "spec-staging", body: chatLine("a", "hi"), header: jsonl},
		{route: up, want: 400, idem: "spec-bad", body: chatLine("", "hi"), header: jsonl},
		{route: up, want: 413, idem: "spec-large", body: chatLine("a", strings.Repeat("x", 8<<20)), header: jsonl},
		{route: up, want: 415, idem: "spec-json", body: chatLine("a", "hi")},
		{route: up, want: 401, key: "-", idem: "x", body: chatLine("a", "hi"), header: jsonl},
		{route: up, want: 403, key: w.reader, idem: "x", body: chatLine("a", "hi"), header: jsonl},
		{route: list, want: 200},
		{route: list, query: "?limit=1", want: 200},
		{route: list, query: "?limit=0", want: 400},
		{route: list, want: 401, key: "-"},
		{route: list, want: 403, key: w.submitter},
		{route: results, id: running.ID, want: 200},
		{route: results, id: over.ID, query: "?order=finished", want: 200},
		{route: results, id: over.ID, query: "?order=x", want: 400},
		{route: results, id: staging, want: 409},
	}
	for _, route := range []string{one, results} {
		calls = append(calls,
			specCall{route: route, id: running.ID, want: 200}, specCall{route: route, id: "nosuch", want: 404}, specCall{route: route, id: w.pending, want: 404},
			specCall{route: route, id: running.ID, query: "?nosuch=1", want: 400},
			specCall{route: route, id: running.ID, want: 401, key: "-"}, specCall{route: route, id: running.ID, want: 403, key: w.submitter},
		)
	}
	for route, body := range map[string]string{cancel: `{"reason":"r"}`, retry: `{"run":1}`} {
		calls = append(calls,
			specCall{route: route, id: over.ID, want: 409, body: body},
			specCall{route: route, id: "nosuch", want: 404, body: `{}`},
			specCall{route: route, id: over.ID, want: 400, body: `{"nosuch":1}`},
			specCall{route: route, id: over.ID, want: 415, body: `{}`, header: http.Header{"Content-Type": {"text/plain"}}},
			specCall{route: route, id: over.ID, want: 413, body: `{"reason":"` + strings.Repeat("x", 9<<20) + `"}`},
			specCall{route: route, id: over.ID, want: 401, body: `{}`, key: "-"},
			specCall{route: route, id: over.ID, want: 403, body: `{}`, key: w.reader},
		)
	}
	return append(calls,
		specCall{route: cancel, id: running.ID, want: 200},
		specCall{route: retry, id: failed.ID, want: 200, body: `{"run":1}`},
	)
}

// TestBatchCases sends the files of the cases: what is taken, what is refused,
// and that nothing runs of what is refused.
func TestBatchCases(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, c := range casetest.Claimed(t, "internal/server.TestBatchCases") {
		t.Run(c.ID, func(t *testing.T) {
			t.Parallel()
			file := caseFile(t, c)
			var want struct {
				Status    int
				Lines     int
				Error     api.Code
				Line      int
				FirstLine int `json:"first_line"`
				Started   *int
			}
			c.Expect(t, &want)
			r, got := b.upload(t, c.ID, file, nil)
			if want.Status == 0 { // one rule: the file is taken and its bad lines fail alone
				want.Status = 202
			}
			if r.status != want.Status {
				t.Fatalf("got %d %s, want %d", r.status, r.body, want.Status)
			}
			if r.status >= 400 {
				checkProblem(t, r)
				if want.Error != "" && r.problem.Code != want.Error || r.problem.Line != want.Line || r.problem.FirstLine != want.FirstLine {
					t.Errorf("got %s, line %d, first %d, want %+v", r.problem.Code, r.problem.Line, r.problem.FirstLine, want)
				}
				b.nothingStarted(t, c.ID)
				return
			}
			switch c.ID {
			case "C242":
				checkInvalid(t, got, 4, 2, 3)
			case "C243":
				checkInvalid(t, got, 2, 2)
			case "C251": // custom_id alone is no request: both lines are named, none is lost
				checkInvalid(t, got, 2, 1, 2)
			default:
				if got.Lines != want.Lines || got.Counts.Invalid != 0 {
					t.Errorf("got %d lines, %d invalid, want %d", got.Lines, got.Counts.Invalid, want.Lines)
				}
			}
			b.awaitTasks(t, got.ID, got.Lines-got.Counts.Invalid)
		})
	}
}

func caseFile(t *testing.T, c casetest.Case) string {
	t.Helper()
	var in struct {
		File  *string `json:"file_b64"`
		Lines []map[string]json.RawMessage
	}
	if err := json.Unmarshal(c.Input, &in); err != nil {
		t.Fatal(err)
	}
	if in.File != nil {
		raw, err := casetest.Base64(*in.File)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	var file bytes.Buffer
	for _, l := range in.Lines {
		values := map[string]string{}
		for name, raw := range l {
			v, err := casetest.Text(raw)
			if err != nil {
				t.Fatal(err)
			}
			values[name] = string(v)
		}
		text, err := json.Marshal(values)
		if err != nil {
			t.Fatal(err)
		}
		file.Write(append(text, '\n'))
	}
	return file.String()
}

func (b *bundle) nothingStarted(t *testing.T, key string) {
	t.Helper()
	var n int
	err := b.DB.QueryRow(context.Background(), `
SELECT (SELECT count(*) FROM onefold.tasks WHERE key LIKE 'batch:' || $1 || ':%') + (SELECT count(*) FROM onefold.batches WHERE key = $1 AND state <> 'dropped')`, key).Scan(&n)
	if err != nil || n != 0 {
		t.Errorf("%d tasks and batches are there of a file that was refused, %v", n, err)
	}
}

// awaitTasks waits until a batch has handed over n lines.
func (b *bundle) awaitTasks(t *testing.T, id string, n int) {
	t.Helper()
	for look := time.NewTicker(10 * time.Millisecond); ; <-look.C {
		var have int
		if err := b.DB.QueryRow(context.Background(), `SELECT count(*) FROM onefold.tasks WHERE batch_id = $1::text::uuid`, id).Scan(&have); err != nil || have > n {
			t.Fatalf("%d tasks, want %d, %v", have, n, err)
		}
		if have == n {
			return
		}
	}
}

func checkInvalid(t *testing.T, b api.Batch, lines int, bad ...int) {
	t.Helper()
	var got []int
	for _, l := range b.Invalid {
		got = append(got, l.Line)
	}
	if diff := cmp.Diff(got, bad); diff != "" || b.Lines != lines || b.Counts.Invalid != len(bad) {
		t.Errorf("got %d lines, %d invalid; -got +want:\n%s", b.Lines, b.Counts.Invalid, diff)
	}
}

// C019: one key under two resources means two things.
func TestOneKeyTwoResources(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := casetest.Get(t, "C019")
	var in struct {
		Requests []struct {
			Key        string `json:"idempotency_key"`
			Path, Body string
		}
	}
	if err := json.Unmarshal(c.Input, &in); err != nil {
		t.Fatal(err)
	}
	task, file := in.Requests[0], in.Requests[1]
	r := b.submit(t, task.Key, `{"kind":"llm.chat","input":`+task.Body+`}`)
	if r.status != 202 {
		t.Fatalf("got %d %s", r.status, r.body)
	}
	up, got := b.upload(t, file.Key, file.Body, nil)
	if up.status != 202 || got.ID == r.task.ID || !*got.Created || got.Lines != 1 {
		t.Errorf("got %d %s, want a batch of its own", up.status, up.body)
	}
	if again := b.submit(t, task.Key, `{"kind":"llm.chat","input":`+task.Body+`}`); again.status != 200 || again.task.ID != r.task.ID {
		t.Errorf("the task again: %d %s", again.status, again.body)
	}
}

func TestCompressedFile(t *testing.T) {
	t.Parallel()
	b := setup(t)
	file := chatLine("a", "hi") + chatLine("b", "hi")
	zipped := http.Header{"Content-Encoding": {"gzip"}}
	r, first := b.upload(t, "k", string(gzipped(file)), zipped)
	if r.status != 202 || first.Lines != 2 {
		t.Fatalf("got %d %s", r.status, r.body)
	}
	if r, same := b.upload(t, "k", file, nil); r.status != 200 || same.ID != first.ID || r.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("the same file as it is: %d %s", r.status, r.body)
	}
	whole := gzipped(file)
	for name, tt := range map[string]struct {
		body     string
		encoding string
		status   int
		code     api.Code
	}{
		"cut":           {string(whole[:len(whole)-9]), "gzip", 415, api.CodeEncoding},
		"damaged":       {string(whole[:len(whole)-6]) + "xxxxxx", "gzip", 415, api.CodeEncoding},
		"no gzip":       {file, "gzip", 415, api.CodeEncoding},
		"nothing in it": {string(gzipped("")), "gzip", 400, api.CodeEmptyBatch},
		"another sort":  {file, "br", 415, api.CodeEncoding},
		"one line":      {string(gzipped(strings.Repeat(" ", 64<<20))), "gzip", 413, api.CodeTooLarge},
	} {
		r, _ := b.upload(t, strings.ReplaceAll(name, " ", "-"), tt.body, http.Header{"Content-Encoding": {tt.encoding}})
		checkProblem(t, r)
		if r.status != tt.status || r.problem.Code != tt.code {
			t.Errorf("%s: got %d %s, want %d %s", name, r.status, r.problem.Code, tt.status, tt.code)
		}
		b.nothingStarted(t, strings.ReplaceAll(name, " ", "-"))
	}
}

// bomb is a file of more than the size given that shrinks a thousandfold when it
// is compressed.
func bomb(t *testing.T, part string, size int64) string {
	t.Helper()
	var buf bytes.Buffer
	w, err := gzip.NewWriterLevel(&buf, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	for n := int64(0); n <= size; n += int64(len(part)) {
		if _, err := io.WriteString(w, part); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.String()
}

// A small file that unpacks to more than a file may have is refused, and takes
// no more memory than any other.
func TestBomb(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, body := range map[string]string{
		"lines": bomb(t, strings.Repeat("\n", 1<<20), 32<<20),
		"bytes": bomb(t, strings.Repeat(" ", 1<<20)+"\n", api.MaxBatchBytes),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r, _ := b.upload(t, name, body, http.Header{"Content-Encoding": {"gzip"}})
		runtime.ReadMemStats(&after)
		checkProblem(t, r)
		if r.status != 413 {
			t.Errorf("%s, %d bytes: got %d %s", name, len(body), r.status, r.body)
		}
		if grown := int64(after.Sys) - int64(before.Sys); grown > 512<<20 {
			t.Errorf("%s: the process grew by %d MiB", name, grown>>20)
		}
		b.nothingStarted(t, name)
	}
}

// A caller that goes in the middle leaves nothing that runs, and may send the
// file again.
func TestUploadCutOff(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var file strings.Builder
	for i := range 1500 {
		file.WriteString(chatLine(fmt.Sprint(i), "hi"))
	}
	half := file.String()[:file.Len()*9/10]
	conn, err := net.Dial("tcp", b.Addr)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "POST /v1/batches HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nIdempotency-Key: k\r\nContent-Type: application/jsonl\r\nContent-Length: %d\r\n\r\n%s",
		b.Key, file.Len(), half)
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil || !bytes.Contains(answer, []byte(" 400 ")) || !bytes.Contains(answer, []byte("cut off")) {
		t.Errorf("got %.300s, %v", answer, err)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	var tasks int
	if err := b.DB.QueryRow(context.Background(), `SELECT count(*) FROM onefold.tasks`).Scan(&tasks); err != nil || tasks != 0 {
		t.Errorf("%d tasks, %v", tasks, err)
	}
	if _, err := b.DB.Exec(context.Background(), `UPDATE onefold.batches SET progress_at = now() - interval '15 s'`); err != nil {
		t.Fatal(err)
	}
	r, got := b.upload(t, "k", file.String(), nil)
	if r.status != 202 || got.Lines != 1500 {
		t.Errorf("the whole file: %d %s", r.status, r.body)
	}
}

// Results larger than a page go out as they are read; in a body that is cut the
// caller sees that it was.
func TestResultsStream(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const n = 450
	var file strings.Builder
	for i := range n {
		file.WriteString(chatLine(fmt.Sprint(i), "hi"))
	}
	_, got := b.upload(t, "k", file.String(), nil)
	b.awaitTasks(t, got.ID, n)
	large := `"` + strings.Repeat("x", 40<<10) + `"`
	_, err := b.DB.Exec(context.Background(), `
UPDATE onefold.tasks
SET state = 'succeeded', result = $1, result_hash = sha256($1), finished_at = now(), expires_at = now() + interval '1 day', total_attempts = 1, attempts = 1`, []byte(large))
	if err != nil {
		t.Fatal(err)
	}
	r := b.do(t, call{method: "GET", path: "/v1/batches/" + got.ID + "/results"})
	if r.status != 200 || r.header.Get("Content-Type") != "application/jsonl" {
		t.Fatalf("got %d %v", r.status, r.header)
	}
	lines := bytes.Split(bytes.TrimSuffix(r.body, []byte("\n")), []byte("\n"))
	if len(lines) != n {
		t.Fatalf("%d lines, want %d", len(lines), n)
	}
	for i, l := range lines {
		var out api.OpenAIResult
		if err := json.Unmarshal(l, &out); err != nil || *out.CustomID != fmt.Sprint(i) || string(out.Response.Body) != large {
			t.Fatalf("line %d: %.200s, %v", i, l, err)
		}
	}
	if r := b.do(t, call{method: "GET", path: "/v1/batches/" + got.ID + "/results?after=449"}); bytes.Count(r.body, []byte("\n")) != 1 {
		t.Errorf("after the last but one: %.200s", r.body)
	}
}
