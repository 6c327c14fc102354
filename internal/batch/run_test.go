package batch_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/batch"
	"github.com/onefold-dev/onefold/internal/pg/pgtest"
	"github.com/onefold-dev/onefold/internal/submit"
)

// The lines wait outside the queue and come into it as there is room.
func TestBacklog(t *testing.T) {
	t.Parallel()
	b := setup(t, 1, batch.Opts{Backlog: 30, Chunk: 20})[0]
	got := b.mustUpload(t, "n", chats(100))
	b.rounds(t)
	if n := b.count(t, `SELECT count(*) FROM onefold.tasks`); n != 30 {
		t.Errorf("%d tasks, want the 30 there is room for", n)
	}
	if n := b.count(t, `SELECT count(*) FROM onefold.tasks AS t JOIN onefold.river_job AS j ON j.id = t.job_id AND j.state = 'available' WHERE t.batch_id = $1`, got.ID); n != 30 {
		t.Errorf("%d wake-ups", n)
	}
	b.settle(t, api.Succeeded, `key IN ('batch:n:row-3', 'batch:n:row-7')`)
	b.exec(t, `UPDATE onefold.tasks SET state = 'running', owner = id, token = id WHERE key = 'batch:n:row-1'`)
	b.rounds(t)
	want := api.BatchCounts{Waiting: 67, Pending: 30, Running: 1, Succeeded: 2}
	if diff := cmp.Diff(b.get(t, got).Counts, want); diff != "" {
		t.Errorf("-got +want:\n%s", diff)
	}
	if n := b.count(t, `SELECT count(*) FROM onefold.batch_bodies`); n != 67 {
		t.Errorf("%d texts are kept, want those of the lines that wait", n)
	}
	for range 100 {
		b.settle(t, api.Succeeded, `true`)
		b.rounds(t)
	}
	w := b.get(t, got)
	if w.State != api.BatchCompleted || w.Counts != (api.BatchCounts{Succeeded: 100}) || w.EndedAt == nil || w.ExpiresAt == nil {
		t.Errorf("got %+v", w)
	}
	if w.Usage != (api.Usage{InputTokens: 1000, OutputTokens: 500, Cost: "25.00", Billed: api.BilledYes}) {
		t.Errorf("got %+v", w.Usage)
	}
}

// Results come in the order of the file up to the first line that has not
// settled, or as they finished; each once, in the form of the input.
func TestResults(t *testing.T) {
	t.Parallel()
	b := setup(t, 1, batch.Opts{})[0]
	got := b.mustUpload(t, "n", lines(own("a", "k", "1"), own("b", "k", "2"), `[]`, own("c", "k", "3"), own("d", "k", "4"), own("e", "k", "5")))
	b.rounds(t)
	if out := b.results(t, got, batch.Want{}); len(out) != 0 {
		t.Errorf("got %q before anything has settled", out)
	}
	b.settle(t, api.Succeeded, `key = 'c'`)
	b.rounds(t)
	b.settle(t, api.Succeeded, `key = 'a'`)
	short := func(all []string) (out []string) {
		for _, l := range all {
			var r api.BatchResult
			if err := json.Unmarshal([]byte(l), &r); err != nil {
				t.Fatal(err)
			}
			code := ""
			if r.Error != nil {
				code = " " + r.Error.Code
			}
			out = append(out, fmt.Sprintf("%d %s %s%s", r.Line, r.Key, r.State, code))
		}
		return out
	}
	// a is not noted yet, but its task has settled.
	if diff := cmp.Diff(short(b.results(t, got, batch.Want{})), []string{"1 a succeeded"}); diff != "" {
		t.Errorf("-got +want:\n%s", diff)
	}
	b.rounds(t)
	if diff := cmp.Diff(short(b.results(t, got, batch.Want{Order: api.OrderFinished})), []string{"3  invalid invalid_json", "4 c succeeded", "1 a succeeded"}); diff != "" {
		t.Errorf("-got +want:\n%s", diff)
	}
	if diff := cmp.Diff(short(b.results(t, got, batch.Want{Order: api.OrderFinished, After: 2})), []string{"1 a succeeded"}); diff != "" {
		t.Errorf("-got +want:\n%s", diff)
	}
	b.settle(t, api.Failed, `key = 'b'`)
	b.settle(t, api.Unknown, `key = 'd'`)
	b.settle(t, api.Cancelled, `key = 'e'`)
	b.rounds(t)
	all := []string{"1 a succeeded", "2 b failed attempts_exhausted", "3  invalid invalid_json", "4 c succeeded", "5 d unknown outcome_unknown", "6 e cancelled cancelled"}
	if diff := cmp.Diff(short(b.results(t, got, batch.Want{})), all); diff != "" {
		t.Errorf("-got +want:\n%s", diff)
	}
	if diff := cmp.Diff(short(b.results(t, got, batch.Want{After: 4})), all[4:]); diff != "" {
		t.Errorf("-got +want:\n%s", diff)
	}
	if diff := cmp.Diff(short(b.results(t, got, batch.Want{Only: batch.OnlySucceeded})), []string{all[0], all[3]}); diff != "" {
		t.Errorf("-got +want:\n%s", diff)
	}
	if diff := cmp.Diff(short(b.results(t, got, batch.Want{Only: batch.OnlyErrors, After: 2})), []string{all[2], all[4], all[5]}); diff != "" {
		t.Errorf("-got +want:\n%s", diff)
	}
	w := b.get(t, got)
	if w.State != api.BatchCompleted || w.Counts != (api.BatchCounts{Succeeded: 2, Failed: 1, Unknown: 1, Cancelled: 1, Invalid: 1}) {
		t.Errorf("got %+v", w)
	}
	line := b.results(t, got, batch.Want{})[0]
	if !strings.HasSuffix(line, `"result":{"of": "a", "n":1.0}}`) || !strings.Contains(line, `"cost":"0.25"`) {
		t.Errorf("got %s", line)
	}
	// A person decides the unknown one: results and counts say so, though the batch has ended.
	var id string
	var epoch int64
	if err := b.pool.QueryRow(t.Context(), `SELECT id::text, epoch FROM onefold.tasks WHERE key = 'd'`).Scan(&id, &epoch); err != nil {
		t.Fatal(err)
	}
	b.exec(t, `UPDATE onefold.tasks SET state = 'succeeded', error_code = NULL, error_message = NULL, result = '7', result_hash = sha256('7') WHERE key = 'd'`)
	if w = b.get(t, got); w.Counts.Succeeded != 3 || w.Counts.Unknown != 0 {
		t.Errorf("got %+v", w.Counts)
	}
	if out := b.results(t, got, batch.Want{})[4]; !strings.HasSuffix(out, `"result":7}`) {
		t.Errorf("got %s", out)
	}
}

func TestOpenAIResults(t *testing.T) {
	t.Parallel()
	b := setup(t, 1, batch.Opts{})[0]
	got := b.mustUpload(t, "n", lines(chat("é b", "hi"), `null`, chat("b", "hi")))
	b.rounds(t)
	b.settle(t, api.Succeeded, `key LIKE 'batch:n:\%%'`)
	b.settle(t, api.Failed, `true`)
	b.rounds(t)
	ids := map[string]string{}
	rows, err := b.pool.Query(t.Context(), `SELECT line_id, task_id::text FROM onefold.batch_lines`)
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		var line, id string
		if err := rows.Scan(&line, &id); err != nil {
			t.Fatal(err)
		}
		ids[line] = id
	}
	want := []string{
		fmt.Sprintf(`{"id":"batch_req_%s_1_2","custom_id":"é b","response":{"status_code":200,"request_id":%q,"body":{"of": "batch:n:%%C3%%A9%%20b", "n":1.0}},"error":null}`, got.ID, ids["é b"]),
		fmt.Sprintf(`{"id":"batch_req_%s_2_1","custom_id":null,"response":null,"error":{"code":"invalid_json","message":"line 2: the JSON value is not an object (byte 0)"}}`, got.ID),
		fmt.Sprintf(`{"id":"batch_req_%s_3_3","custom_id":"b","response":null,"error":{"code":"attempts_exhausted","message":"no luck"}}`, got.ID),
	}
	if diff := cmp.Diff(b.results(t, got, batch.Want{}), want); diff != "" {
		t.Errorf("-got +want:\n%s", diff)
	}
}

// A line whose key means a task already meets it, and nothing is called or paid
// for twice; another payload under the key fails that line alone.
func TestFold(t *testing.T) {
	t.Parallel()
	b := setup(t, 1, batch.Opts{})[0]
	for key, input := range map[string]string{"done": "1", "open": "1", "reused": "2"} {
		_, err := b.submit.Submit(t.Context(), submit.Request{Tenant: "a", Key: key, KeySent: true, Body: []byte(`{"kind":"k","input":` + input + `}`)})
		if err != nil {
			t.Fatal(err)
		}
	}
	b.settle(t, api.Succeeded, `key = 'done'`)
	got := b.mustUpload(t, "n", lines(own("done", "k", "1"), own("open", "k", "1.0"), own("reused", "k", "1"), own("new", "k", "1")))
	b.rounds(t)
	if n := b.count(t, `SELECT count(*) FROM onefold.tasks`); n != 4 {
		t.Errorf("%d tasks, want 4", n)
	}
	want := api.BatchCounts{Pending: 2, Succeeded: 1, Invalid: 1}
	if diff := cmp.Diff(b.get(t, got).Counts, want); diff != "" {
		t.Errorf("-got +want:\n%s", diff)
	}
	second := b.mustUpload(t, "m", lines(own("new", "k", "1")))
	b.rounds(t)
	b.settle(t, api.Succeeded, `true`)
	b.rounds(t)
	w := b.get(t, got)
	if w.State != api.BatchCompleted || w.Counts != (api.BatchCounts{Succeeded: 3, Invalid: 1}) || w.Usage.Cost != "0.25" || w.Usage.InputTokens != 10 {
		t.Errorf("got %+v", w)
	}
	if len(w.Invalid) != 1 || w.Invalid[0].Code != api.CodeKeyReused || w.Invalid[0].Line != 3 {
		t.Errorf("got %+v", w.Invalid)
	}
	if w = b.get(t, second); w.Counts.Succeeded != 1 || w.Usage.Cost != "" || w.Usage.Billed != api.BilledNo {
		t.Errorf("a batch that made no task: %+v", w)
	}
}

// Several processes take steps for several batches at once: every line becomes
// one task, also under kinds that fold nothing, and settles once.
func TestManyRunners(t *testing.T) {
	t.Parallel()
	b := setup(t, 3, batch.Opts{Backlog: 40, Chunk: 25, Every: time.Millisecond})
	const n = 400
	var free strings.Builder
	for i := range n {
		free.WriteString(own(fmt.Sprint("f", i), "free", "1") + "\n")
	}
	first, second := b[0].mustUpload(t, "n", chats(n)), b[0].mustUpload(t, "m", free.String())
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for _, s := range b {
		all.Go(func() { _ = s.Run(ctx) })
	}
	eventually(t, "the end of both batches", func() bool {
		b[0].settle(t, api.Succeeded, `true`)
		return b[0].get(t, first).State.Ended() && b[0].get(t, second).State.Ended()
	})
	cancel()
	all.Wait()
	if got := b[0].count(t, `SELECT count(*) FROM onefold.tasks`); got != 2*n {
		t.Errorf("%d tasks for %d lines", got, 2*n)
	}
	if got := b[0].count(t, `SELECT count(*) FROM onefold.batch_lines AS l JOIN onefold.tasks AS t ON t.id = l.task_id AND t.batch_id = l.batch_id WHERE l.state = 'succeeded' AND NOT l.folded`); got != 2*n {
		t.Errorf("%d lines with a task of their own, want %d", got, 2*n)
	}
	if got := b[0].count(t, `SELECT count(DISTINCT (batch_id, finished))::int + max(finished) - $1 FROM onefold.batch_lines`, n); got != 2*n {
		t.Error("the places in the order of finishing have gaps or come twice")
	}
	if diff := cmp.Diff(len(b[0].results(t, second, batch.Want{Order: api.OrderFinished})), n); diff != "" {
		t.Errorf("-got +want:\n%s", diff)
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	b := setup(t, 1, batch.Opts{Backlog: 20, Chunk: 7})[0]
	_, err := b.submit.Submit(t.Context(), submit.Request{Tenant: "a", Key: "batch:n:row-2", KeySent: true, Body: []byte(
		`{"kind":"llm.chat","input":{"model":"m","messages":[{"role":"user","content":"prompt 2"}]}}`)})
	if err != nil {
		t.Fatal(err)
	}
	got := b.mustUpload(t, "n", chats(100))
	b.rounds(t)
	b.settle(t, api.Succeeded, `key = 'batch:n:row-1'`)
	b.exec(t, `UPDATE onefold.tasks SET state = 'running', owner = id, token = id WHERE key IN ('batch:n:row-3', 'batch:n:row-4')`)
	act := batch.Act{Tenant: "a", ID: got.ID, Actor: "test", Reason: "enough"}
	foreign := act
	foreign.Tenant = "b"
	if _, err := b.Cancel(t.Context(), foreign); asAPI(err).Code != api.CodeNotFound {
		t.Errorf("another tenant: %v", err)
	}
	w, err := b.Cancel(t.Context(), act)
	if err != nil || w.State != api.BatchCancelling {
		t.Fatalf("got %+v, %v", w, err)
	}
	b.rounds(t)
	b.rounds(t)
	w = b.get(t, got)
	if w.State != api.BatchCancelling || w.Counts != (api.BatchCounts{Running: 2, Succeeded: 1, Cancelled: 97}) {
		t.Errorf("got %+v, want calls under way to be waited for", w)
	}
	if n := b.count(t, `SELECT count(*) FROM onefold.tasks WHERE cancel_requested AND state = 'running'`); n != 2 {
		t.Errorf("%d calls under way were asked to end", n)
	}
	if n := b.count(t, `SELECT count(*) FROM onefold.tasks WHERE state = 'pending' AND key = 'batch:n:row-2' AND NOT cancel_requested`); n != 1 {
		t.Error("a task that a line only met was cancelled")
	}
	if n := b.count(t, `SELECT count(*) FROM onefold.audit WHERE action = 'cancel' AND target_type = 'task'`); n != b.count(t, `SELECT count(*) FROM onefold.tasks WHERE state = 'cancelled' OR cancel_requested`) {
		t.Errorf("%d entries in the audit: each task is to be asked once", n)
	}
	b.settle(t, api.Cancelled, `key = 'batch:n:row-3'`)
	b.settle(t, api.Succeeded, `key = 'batch:n:row-4'`)
	b.rounds(t)
	w, err = b.Cancel(t.Context(), act)
	if err != nil || w.State != api.BatchCancelled || w.Counts != (api.BatchCounts{Succeeded: 2, Cancelled: 98}) {
		t.Errorf("a second cancel: %+v, %v", w, err)
	}
	if out := b.results(t, got, batch.Want{}); len(out) != 100 {
		t.Errorf("%d results, want one a line", len(out))
	}
	done := b.mustUpload(t, "m", lines(own("x", "k", "1")))
	b.rounds(t)
	b.settle(t, api.Succeeded, `key = 'x'`)
	b.rounds(t)
	act.ID = done.ID
	if _, err := b.Cancel(t.Context(), act); asAPI(err).Code != api.CodeConflict {
		t.Errorf("a completed batch: %v", err)
	}
}

// At its deadline what has not run expires, the results so far are there, and a
// retry runs the failed and expired lines again and no others.
func TestExpiryAndRetry(t *testing.T) {
	t.Parallel()
	b := setup(t, 1, batch.Opts{Backlog: 10, Chunk: 4})[0]
	got := b.mustUpload(t, "n", chats(30)+"[]\n")
	b.rounds(t)
	b.settle(t, api.Succeeded, `key IN ('batch:n:row-1', 'batch:n:row-2')`)
	b.settle(t, api.Unknown, `key = 'batch:n:row-3'`)
	b.settle(t, api.Failed, `key = 'batch:n:row-4'`)
	if n := b.count(t, `SELECT count(*) FROM onefold.tasks AS t JOIN onefold.batches AS b ON b.id = t.batch_id WHERE t.deadline = b.deadline`); n != 10 {
		t.Errorf("%d tasks have the batch's deadline, want 10", n)
	}
	act := batch.Act{Tenant: "a", ID: got.ID, Actor: "test"}
	one, two := int32(1), int32(2)
	if _, err := b.Retry(t.Context(), act); asAPI(err).Field != "run" {
		t.Errorf("a retry without the run: %v", err)
	}
	if act.Run = &one; true {
		if _, err := b.Retry(t.Context(), act); asAPI(err).Code != api.CodeConflict {
			t.Errorf("a retry of a running batch: %v", err)
		}
	}
	b.exec(t, `UPDATE onefold.batches SET deadline = now() - interval '1 s'`)
	b.rounds(t)
	if w := b.get(t, got); w.State != api.BatchRunning || w.Counts != (api.BatchCounts{Pending: 6, Succeeded: 2, Unknown: 1, Failed: 1, Expired: 20, Invalid: 1}) {
		t.Errorf("got %+v, want tasks in the queue to be waited for", w)
	}
	b.settle(t, api.Failed, `state = 'pending'`) // the sweep does so at their deadline
	b.rounds(t)
	w := b.get(t, got)
	if w.State != api.BatchExpired || w.Counts != (api.BatchCounts{Succeeded: 2, Unknown: 1, Failed: 7, Expired: 20, Invalid: 1}) {
		t.Errorf("got %+v", w)
	}
	if out := b.results(t, got, batch.Want{}); len(out) != 31 || !strings.Contains(out[29], `"code":"batch_expired"`) {
		t.Errorf("got %d results: %s", len(out), out[29])
	}
	calls := b.count(t, `SELECT sum(total_attempts) FROM onefold.tasks`)
	if w, err := b.Retry(t.Context(), act); err != nil || w.State != api.BatchRunning || w.Run != 2 || w.Counts.Waiting != 27 || w.Deadline.Before(time.Now()) {
		t.Errorf("got %+v, %v", w, err)
	}
	if _, err := b.Retry(t.Context(), act); asAPI(err).Code != api.CodeConflict {
		t.Errorf("the same retry again: %v", err)
	}
	for range 20 {
		b.rounds(t)
		b.settle(t, api.Succeeded, `true`)
	}
	w = b.get(t, got)
	if w.State != api.BatchCompleted || w.Counts != (api.BatchCounts{Succeeded: 29, Unknown: 1, Invalid: 1}) {
		t.Errorf("got %+v", w)
	}
	if n := b.count(t, `SELECT sum(total_attempts) FROM onefold.tasks`); n != calls+27 {
		t.Errorf("%d calls more, want one for each failed or expired line", n-calls)
	}
	if n := b.count(t, `SELECT count(*) FROM onefold.tasks WHERE run > 2`); n != 0 {
		t.Errorf("%d tasks ran too often", n)
	}
	if out := b.results(t, got, batch.Want{Order: api.OrderFinished}); len(out) != 31 {
		t.Errorf("%d results in order of finishing, want each line once", len(out))
	}
	if act.Run = &two; true {
		if _, err := b.Retry(t.Context(), act); asAPI(err).Code != api.CodeConflict {
			t.Errorf("nothing to retry: %v", err)
		}
	}
}

// A process that does not know a line's kind leaves it to one that does.
func TestKindUnknownHere(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	newer := join(t, db, testConfig, batch.Opts{})
	older := join(t, db, strings.Replace(testConfig, "  other: {provider: p}\n", "", 1), batch.Opts{})
	got := newer.mustUpload(t, "n", lines(own("a", "k", "1"), own("b", "other", "1"), own("c", "k", "1")))
	older.rounds(t)
	if n := older.count(t, `SELECT count(*) FROM onefold.tasks`); n != 1 {
		t.Errorf("%d tasks, want the lines before the unknown kind", n)
	}
	newer.rounds(t)
	if w := newer.get(t, got); w.Counts != (api.BatchCounts{Pending: 3}) {
		t.Errorf("got %+v", w.Counts)
	}
}

// The end of a batch is told once, to a destination its tenant may use, as one
// of its effects.
func TestWebhook(t *testing.T) {
	t.Parallel()
	b := setup(t, 2, batch.Opts{})
	got, _, err := b[0].Upload(t.Context(), batch.Upload{
		Tenant: "a", Key: "n", Options: batch.Options{Webhook: "done"}, Body: strings.NewReader(lines(chat("a", "hi"), `[]`, chat("b", "hi"))),
	})
	if err != nil {
		t.Fatal(err)
	}
	b[0].rounds(t)
	if n := b[0].count(t, `SELECT count(*) FROM onefold.effects`); n != 0 {
		t.Errorf("%d effects before the end", n)
	}
	b[0].settle(t, api.Failed, `key LIKE '%:b'`)
	b[0].settle(t, api.Succeeded, `true`)
	var all sync.WaitGroup
	for _, s := range b {
		all.Go(func() { s.rounds(t) })
	}
	all.Wait()
	told := func() (out []batch.Ended) {
		t.Helper()
		rows, err := b[0].pool.Query(t.Context(), `
SELECT e.body
FROM onefold.effects AS e
JOIN onefold.tasks AS t ON t.id = e.task_id AND t.state = 'succeeded' AND t.result = e.body
JOIN onefold.river_job AS j ON j.id = e.job_id
WHERE e.destination = 'done' AND e.type = 'webhook' AND e.state = 'waiting' AND e.tenant = 'a'
ORDER BY e.id`)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var body []byte
			var e batch.Ended
			if err := rows.Scan(&body); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(body, &e); err != nil {
				t.Fatal(err)
			}
			out = append(out, e)
		}
		return out
	}
	first := told()
	if len(first) != 1 || first[0].Type != "batch.completed" || first[0].Data.ID != got.ID.String() || first[0].Data.State != api.BatchCompleted ||
		first[0].Data.Counts != (api.BatchCounts{Succeeded: 1, Failed: 1, Invalid: 1}) || first[0].Timestamp.IsZero() {
		t.Fatalf("got %+v", first)
	}
	one := int32(1)
	if _, err := b[0].Retry(t.Context(), batch.Act{Tenant: "a", ID: got.ID, Run: &one, Actor: "test"}); err != nil {
		t.Fatal(err)
	}
	b[0].rounds(t)
	b[0].settle(t, api.Succeeded, `true`)
	b[0].rounds(t)
	if both := told(); len(both) != 2 || both[1].Data.Run != 2 || both[1].Data.Counts.Succeeded != 2 {
		t.Errorf("after the second run: %+v", both)
	}
}
