//go:build failpoints

package failpoints

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/onefold-dev/onefold/api"
)

// batchLines is how many lines each file has.
const batchLines = 4

// batches hands file after file over until the point is hit; who takes which
// step of a batch is not fixed. Afterwards the same files are sent again, and
// each has ended with one result a line.
func (r *run) batches() {
	n := 0
	for ; !r.struck(); n++ {
		b, err := r.upload(n)
		if err != nil && !r.struck() && !r.gone() {
			r.t.Fatalf("%s is not reached in %d batches: %v", r.point, n, err)
		}
		for err == nil && !b.State.Ended() && !r.struck() && r.ctx.Err() == nil {
			r.pause()
			b, err = r.client().Batch(r.ctx, b.ID)
		}
	}
	r.after = func() {
		for i := range n {
			r.ended(i)
		}
		if got := r.w.Count(r.t, `SELECT count(*) FROM onefold.batches WHERE state <> 'dropped'`); got != n {
			r.t.Errorf("%d files became %d batches", n, got)
		}
	}
}

func (r *run) upload(n int) (*api.Batch, error) {
	var file strings.Builder
	for i := range batchLines {
		fmt.Fprintf(&file, `{"key":"batch-%d-%d","kind":"plain","input":{"model":"fake:stamp","text":"line %d of %d"}}`+"\n", n, i, i, n)
	}
	return r.client().UploadBatch(r.ctx, fmt.Sprint("batch-", n), strings.NewReader(file.String()), nil)
}

// ended sends a file again and waits until its batch has ended.
func (r *run) ended(n int) {
	r.t.Helper()
	for {
		b, err := r.upload(n)
		if err == nil && b.State.Ended() {
			r.complete(b)
			return
		}
		if r.ctx.Err() != nil {
			r.t.Fatalf("batch %d has not ended: %+v, %v", n, b, err)
		}
		r.pause()
	}
}

// complete checks a batch that has ended: one result a line, each once.
func (r *run) complete(b *api.Batch) {
	r.t.Helper()
	var lines []int
	for l, err := range r.client().BatchResults(r.ctx, b.ID, nil) {
		if err != nil {
			r.t.Fatal(err)
		}
		var got api.BatchResult
		if err := json.Unmarshal(l.Text, &got); err != nil || got.State != string(api.Succeeded) || len(got.Result) == 0 {
			r.t.Errorf("batch %s, line %d: got %s, %v", b.Key, l.Line, l.Text, err)
		}
		lines = append(lines, l.Line)
	}
	want := make([]int, batchLines)
	for i := range want {
		want[i] = i + 1
	}
	if !slices.Equal(lines, want) || b.State != api.BatchCompleted || b.Counts != (api.BatchCounts{Succeeded: batchLines}) {
		r.t.Errorf("batch %s: %s with the results of lines %v, counts %+v", b.Key, b.State, lines, b.Counts)
	}
	if n := r.w.Count(r.t, `SELECT count(*) FROM onefold.tasks WHERE batch_id = $1::text::uuid`, b.ID); n != batchLines {
		r.t.Errorf("batch %s made %d tasks", b.Key, n)
	}
}
