package batch_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/batch"
	"github.com/onefold-dev/onefold/internal/pg/pgtest"
	"github.com/onefold-dev/onefold/internal/store"
)

func TestRefusedFilesLeaveNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, 1, batch.Opts{})[0]
	a, c := chat("a", "hi"), chat("c", "hi")
	type answer struct {
		Code        api.Code
		Line, First int
		Field       string
	}
	for name, tt := range map[string]struct {
		file string
		want answer
	}{
		"empty":               {"", answer{Code: api.CodeEmptyBatch}},
		"blank":               {"\n \r\n\n", answer{Code: api.CodeEmptyBatch}},
		"no id":               {lines(a, `{"method":"POST"}`, c), answer{api.CodeMissingID, 2, 0, "custom_id"}},
		"an empty id":         {lines(chat("", "hi")), answer{api.CodeMissingID, 1, 0, "custom_id"}},
		"an id of a number":   {lines(a, `{"custom_id":7}`), answer{api.CodeMissingID, 2, 0, "custom_id"}},
		"a long id":           {lines(a, chat(strings.Repeat("x", 513), "hi")), answer{api.CodeMissingID, 2, 0, "custom_id"}},
		"no key":              {lines(own("a", "k", "1"), `{"kind":"k","input":1}`), answer{api.CodeMissingID, 2, 0, "key"}},
		"forms mixed":         {lines(a, own("b", "k", "1")), answer{api.CodeMissingID, 2, 0, "custom_id"}},
		"an id twice":         {lines(a, c, "", a), answer{api.CodeDuplicateID, 4, 1, "custom_id"}},
		"an id escaped":       {lines(a, strings.Replace(c, `"c"`, `"\u0061"`, 1)), answer{api.CodeDuplicateID, 2, 1, "custom_id"}},
		"a bad line's id":     {lines(a, `{"custom_id":"a"}`), answer{api.CodeDuplicateID, 2, 1, "custom_id"}},
		"a key twice":         {lines(own("a", "k", "1"), own("a", "k", "2")), answer{api.CodeDuplicateID, 2, 1, "key"}},
		"an id far away":      {chats(2500) + chat("row-1200", "x") + "\n", answer{api.CodeDuplicateID, 2501, 1200, "custom_id"}},
		"cut":                 {lines(a) + c[:40], answer{Code: api.CodeCutLine, Line: 2}},
		"cut in a character":  {lines(a) + chat("c", "é")[:len(chat("c", "é"))-8], answer{Code: api.CodeCutLine, Line: 2}},
		"cut after the start": {chats(2100) + `{"custom_id"`, answer{Code: api.CodeCutLine, Line: 2101}},
		"a line too long":     {lines(a, chat("c", strings.Repeat("x", api.MaxBatchLine))), answer{Code: api.CodeTooLarge, Line: 2}},
	} {
		_, _, err := b.upload(name, tt.file)
		e := asAPI(err)
		if diff := cmp.Diff(answer{e.Code, e.Line, e.FirstLine, e.Field}, tt.want); diff != "" {
			t.Errorf("%s: %v: -got +want:\n%s", name, err, diff)
		}
		if e.Fix == "" {
			t.Errorf("%s: no word on what to do", name)
		}
	}
	b.rounds(t)
	if n := b.count(t, `SELECT (SELECT count(*) FROM onefold.tasks) + (SELECT count(*) FROM onefold.batches WHERE state <> 'dropped')`); n != 0 {
		t.Errorf("%d tasks and batches are left of files that were refused", n)
	}
	// Corrected, the file is taken under the same key.
	b.mustUpload(t, "an id twice", lines(a, c))
	// What was staged of the others goes bit by bit.
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- b.Run(ctx) }()
	eventually(t, "the end of the dropped lines", func() bool {
		return b.count(t, `SELECT count(*) FROM onefold.batch_lines`) == 2 && b.count(t, `SELECT count(*) FROM onefold.batches`) == 1
	})
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestBadLinesFailAlone(t *testing.T) {
	t.Parallel()
	b := setup(t, 1, batch.Opts{})[0]
	file := lines(
		"\xef\xbb\xbf"+chat("a", "hi"),
		`[1,2,3]`, `null`, `{"custom_id":"x",}`, `{"custom_id":"c","body":"str"}`,
		`{"custom_id":"d","method":"GET","url":"/v1/chat/completions","body":{"model":"m"}}`,
		`{"custom_id":"e","method":"POST","url":"/v1/embeddings","body":{"model":"m"}}`,
		`{"custom_id":"f","method":"POST","url":"/v1/chat/completions","body":{"model":"m"},"more":1}`,
		`{"custom_id":"g","method":"POST","url":"/v1/chat/completions","body":{"messages":[]}}`,
		`{"custom_id":"h","method":"POST","url":"/v1/chat/completions","body":{"model":"m","model":"n"}}`,
		"{\"custom_id\":\"\xff\"}",
	) + chat("b", "hi")
	got := b.mustUpload(t, "n", file)
	w := b.get(t, got)
	if w.Lines != 12 || w.Counts.Invalid != 10 || w.Counts.Waiting != 2 || w.Counts.Total() != 12 || w.Form != api.FormOpenAI || w.Kind != "llm.chat" {
		t.Errorf("got %+v", w)
	}
	type bad struct {
		Line  int
		Code  api.Code
		Field string
	}
	var told []bad
	for _, l := range w.Invalid {
		told = append(told, bad{l.Line, l.Code, l.Field})
	}
	want := []bad{
		{2, api.CodeInvalidJSON, ""},
		{3, api.CodeInvalidJSON, ""},
		{4, api.CodeInvalidJSON, ""},
		{5, api.CodeInvalidField, "method"},
		{6, api.CodeInvalidField, "method"},
		{7, api.CodeInvalidField, "url"},
		{8, api.CodeUnknownField, "more"},
		{9, api.CodeInvalidInput, ""},
		{10, api.CodeDuplicateMember, "body.model"},
		{11, api.CodeInvalidUnicode, "custom_id"},
	}
	if diff := cmp.Diff(told, want); diff != "" {
		t.Errorf("-got +want:\n%s", diff)
	}
	mine := b.mustUpload(t, "own", lines(own("a", "k", `{"f": 1.0e2}`), own("b", "nosuch", "1"), own("a", "other", "1"), `{"key":"c","kind":"k"}`, own("onefold:x", "k", "1"), own("sp ace", "k", "1")))
	if w = b.get(t, mine); w.Counts.Invalid != 4 || w.Counts.Waiting != 2 || w.Form != api.FormOnefold {
		t.Errorf("got %+v", w)
	}
	b.rounds(t)
	if n := b.count(t, `SELECT count(*) FROM onefold.tasks`); n != 4 {
		t.Errorf("%d tasks, want one for each of the four good lines", n)
	}
	if n := b.count(t, `SELECT count(*) FROM onefold.tasks WHERE key = 'batch:n:a' AND kind = 'llm.chat' AND convert_from(input, 'UTF8') = '{"model":"m","messages":[{"role":"user","content":"hi"}]}'`); n != 1 {
		t.Error("the input is not the body's bytes, or the key is another")
	}
	if n := b.count(t, `SELECT count(*) FROM onefold.tasks WHERE key = 'a' AND kind = 'k' AND convert_from(input, 'UTF8') = '{"f": 1.0e2}'`); n != 1 {
		t.Error("the input is not the line's bytes, or the key is another")
	}
}

// One key means one file: the same one folds, at any time; another is refused
// and changes nothing.
func TestSameFileAgain(t *testing.T) {
	t.Parallel()
	b := setup(t, 2, batch.Opts{})
	file := chats(1500)
	first := b[0].mustUpload(t, "n", file)
	again, created, err := b[1].upload("n", file)
	if err != nil || created || again.ID != first.ID {
		t.Errorf("the same file: %+v, %t, %v", again, created, err)
	}
	for name, u := range map[string]batch.Upload{
		"another file":    {Tenant: "a", Key: "n", Body: strings.NewReader(file + chat("z", "z"))},
		"a shorter file":  {Tenant: "a", Key: "n", Body: strings.NewReader(chats(1000))},
		"other options":   {Tenant: "a", Key: "n", Options: batch.Options{Deadline: time.Hour}, Body: strings.NewReader(file)},
		"a spelling":      {Tenant: "a", Key: "n", Body: strings.NewReader(strings.Replace(file, `"POST"`, `"POST" `, 1))},
		"a cut other one": {Tenant: "a", Key: "n", Body: strings.NewReader(chats(1000) + `{"cust`)},
	} {
		_, _, err := b[1].Upload(t.Context(), u)
		if e := asAPI(err); e.Code != api.CodeKeyReused || len(e.Mismatch) != 1 {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, _, err := b[1].upload("n", ""); asAPI(err).Code != api.CodeEmptyBatch {
		t.Errorf("an empty file: %v", err)
	}
	other, _, err := b[0].Upload(t.Context(), batch.Upload{Tenant: "b", Key: "n", Body: strings.NewReader(chats(3))})
	if err != nil || other.ID == first.ID {
		t.Errorf("another tenant's key: %+v, %v", other, err)
	}
	if _, err := b[0].Get(t.Context(), "b", first.ID); asAPI(err).Code != api.CodeNotFound {
		t.Errorf("another tenant's batch: %v", err)
	}
	// Past its retention the key is a new intent.
	b[0].exec(t, `UPDATE onefold.batches SET state = 'completed', ended_at = now(), expires_at = now() WHERE id = $1`, first.ID)
	if _, created, err := b[0].upload("n", chats(2)); err != nil || !created {
		t.Errorf("after its retention: %t, %v", created, err)
	}
}

// An upload that broke off runs nothing; the same file goes on where it stopped,
// and lines are staged once.
func TestResume(t *testing.T) {
	t.Parallel()
	b := setup(t, 2, batch.Opts{Takeover: time.Nanosecond})
	file := chats(3500)
	gone := errors.New("the caller is gone")
	at := strings.Index(file, chat("row-2600", "prompt 2600"))
	_, _, err := b[0].Upload(t.Context(), batch.Upload{Tenant: "a", Key: "n", Body: io.MultiReader(strings.NewReader(file[:at]), iotest.ErrReader(gone))})
	if !errors.Is(err, gone) {
		t.Fatalf("got %v", err)
	}
	b[0].rounds(t)
	if n := b[0].count(t, `SELECT count(*) FROM onefold.tasks`); n != 0 {
		t.Fatalf("%d tasks of a file that is not whole", n)
	}
	if n := b[0].count(t, `SELECT count(*) FROM onefold.batch_lines`); n != 2000 {
		t.Errorf("%d lines are staged, want the two whole chunks", n)
	}
	old := b[0].count(t, `SELECT count(*) FROM onefold.batch_lines WHERE xmin::text::bigint <= txid_current()`)
	got, created, err := b[1].upload("n", file)
	if err != nil || !created || got.Lines != 3500 {
		t.Fatalf("got %+v, %t, %v", got, created, err)
	}
	if n := b[0].count(t, `SELECT count(*) FROM onefold.batch_lines`); n != 3500 || old != 2000 {
		t.Errorf("%d lines are staged", n)
	}
	if n := b[0].count(t, `SELECT count(*) FROM onefold.batches`); n != 1 {
		t.Errorf("%d batches", n)
	}
}

// An upload that broke off is no promise yet: another file under its key takes
// its place once it has been silent for a while, and is told to wait before.
func TestBrokenOffThenAnotherFile(t *testing.T) {
	t.Parallel()
	b := setup(t, 1, batch.Opts{Takeover: time.Nanosecond})[0]
	gone := errors.New("the caller is gone")
	part := func() {
		_, _, err := b.Upload(t.Context(), batch.Upload{Tenant: "a", Key: "n", Body: io.MultiReader(strings.NewReader(chats(1100)), iotest.ErrReader(gone))})
		if !errors.Is(err, gone) {
			t.Fatalf("got %v", err)
		}
	}
	part()
	for name, file := range map[string]string{"another start": lines(chat("x", "y")) + chats(1200), "shorter": chats(900), "another end": chats(1000) + "\n" + lines(chat("x", "y"))} {
		_, _, err := b.upload("n", file)
		if name == "another end" { // the same file so far: it goes on with its own lines
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			b.exec(t, `UPDATE onefold.batches SET state = 'dropped'`)
			part()
			continue
		}
		if e := asAPI(err); e.Code != api.CodeConflict || e.RetryAfter == 0 {
			t.Errorf("%s: got %v", name, err)
		}
	}
	b.exec(t, `UPDATE onefold.batches SET progress_at = now() - interval '2 min'`)
	other := lines(chat("x", "y")) + chats(1200)
	if _, _, err := b.upload("n", other); asAPI(err).Code != api.CodeConflict {
		t.Errorf("got %v, want to be told that the old part was dropped", err)
	}
	if _, created, err := b.upload("n", other); err != nil || !created {
		t.Errorf("got %t, %v", created, err)
	}
}

func TestIdleUploadIsDropped(t *testing.T) {
	t.Parallel()
	b := setup(t, 1, batch.Opts{})[0]
	gone := errors.New("the caller is gone")
	_, _, err := b.Upload(t.Context(), batch.Upload{Tenant: "a", Key: "n", Body: io.MultiReader(strings.NewReader(chats(1100)), iotest.ErrReader(gone))})
	if !errors.Is(err, gone) {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- b.Run(ctx) }()
	b.exec(t, `UPDATE onefold.batches SET progress_at = now() - interval '59 min'`)
	b.mustUpload(t, "other", chats(1))
	eventually(t, "a round", func() bool { return b.count(t, `SELECT count(*) FROM onefold.tasks`) == 1 })
	if n := b.count(t, `SELECT count(*) FROM onefold.batch_lines`); n != 1001 {
		t.Errorf("%d lines, want what was staged not to be dropped before its time", n)
	}
	b.exec(t, `UPDATE onefold.batches SET progress_at = now() - interval '61 min' WHERE key = 'n'`)
	eventually(t, "the end of the idle upload", func() bool { return b.count(t, `SELECT count(*) FROM onefold.batch_lines`) == 1 })
	cancel()
	<-done
}

// Many uploads of one file at once, by several processes: one batch, one row a
// line, and everybody is told of it. Then of different files under one key: one
// of them wins.
func TestConcurrentUploads(t *testing.T) {
	t.Parallel()
	b := setup(t, 3, batch.Opts{})
	file := chats(3300)
	var all sync.WaitGroup
	var mu sync.Mutex
	ids, created := map[string]bool{}, 0
	for i := range 9 {
		all.Go(func() {
			got, mine, err := b[i%3].Upload(context.Background(), batch.Upload{Tenant: "a", Key: "n", Body: iotest.HalfReader(strings.NewReader(file))})
			if err != nil {
				t.Errorf("got %v", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			ids[got.ID.String()] = true
			if mine {
				created++
			}
		})
	}
	all.Wait()
	if len(ids) != 1 || created != 1 {
		t.Errorf("%d batches, created %d times", len(ids), created)
	}
	if n := b[0].count(t, `SELECT count(*) FROM onefold.batch_lines`); n != 3300 {
		t.Errorf("%d lines, want 3300", n)
	}
	won := make([]*store.Batch, 6)
	for i := range won {
		all.Go(func() {
			got, _, err := b[i%3].upload("m", fmt.Sprintf("%s%s\n", chats(1000*(i%2)), chat("x", fmt.Sprint(i))))
			if code := asAPI(err).Code; err != nil && code != api.CodeKeyReused && code != api.CodeConflict {
				t.Errorf("got %v", err)
			}
			if err == nil {
				won[i] = got
			}
		})
	}
	all.Wait()
	winners := 0
	for _, w := range won {
		if w != nil {
			winners++
		}
	}
	if winners != 1 {
		t.Errorf("%d of different files won the key, want 1", winners)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	b := setup(t, 1, batch.Opts{})[0]
	for name, tt := range map[string]struct {
		o      batch.Options
		tenant string
		field  string
	}{
		"a kind that is not there":        {batch.Options{Kind: "nosuch"}, "a", "kind"},
		"a destination that is not there": {batch.Options{Webhook: "nosuch"}, "a", "webhook"},
		"another tenant's destination":    {batch.Options{Webhook: "done"}, "b", "webhook"},
		"too long":                        {batch.Options{Deadline: 1000 * time.Hour}, "a", "deadline"},
	} {
		_, _, err := b.Upload(t.Context(), batch.Upload{Tenant: tt.tenant, Key: "n", Options: tt.o, Body: strings.NewReader(chats(1))})
		if e := asAPI(err); e.Field != tt.field || e.Status != 400 {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// Where there is no kind llm.chat, lines that name their own kind need none, and lines in OpenAI's form are refused with
// the file.
func TestUploadWithoutTheDefaultKind(t *testing.T) {
	t.Parallel()
	b := join(t, pgtest.New(t), strings.ReplaceAll(testConfig, "  llm.chat: {provider: p}\n", ""), batch.Opts{})
	got := b.mustUpload(t, "ours", `{"key":"a","kind":"k","input":1}`+"\n")
	if got.Lines != 1 {
		t.Errorf("got %d lines, want 1", got.Lines)
	}
	_, _, err := b.upload("theirs", `{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{"model":"m","messages":[]}}`+"\n")
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.CodeUnknownKind {
		t.Errorf("got %v, want %s", err, api.CodeUnknownKind)
	}
}

// A chunk holds at most 1,000 lines, and at most 4 MiB unless one line is larger.
func TestChunks(t *testing.T) {
	t.Parallel()
	b := setup(t, 1, batch.Opts{})[0]
	large := strings.Repeat("x", 1500<<10)
	for name, tt := range map[string]struct {
		file   string
		chunks int
	}{
		"a-thousand":  {chats(1000), 1},
		"one-more":    {chats(1001), 2},
		"large-lines": {lines(chat("a", large), chat("b", large), chat("c", large), chat("d", large), chat("e", large)), 3},
		"huge-lines":  {lines(chat("a", strings.Repeat("x", 5<<20)), chat("b", "hi"), chat("c", "hi")), 2},
	} {
		b.mustUpload(t, name, tt.file)
		if n := b.count(t, `SELECT chunks FROM onefold.batches WHERE key = $1`, name); n != tt.chunks {
			t.Errorf("%s: staged in %d chunks, want %d", name, n, tt.chunks)
		}
	}
}
