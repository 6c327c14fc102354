package batch

import (
	"context"
	"fmt"
	"io"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
)

// Want says which results are wanted, and where they begin.
type Want struct {
	Order api.BatchOrder
	// After is the last line had already: its number in input order, its place
	// in order of finishing. 0 begins at the start.
	After int32
	// Only narrows to lines that succeeded or did not; "" takes all.
	Only string
}

// The values of Want.Only.
const (
	OnlySucceeded = "succeeded"
	OnlyErrors    = "errors"
)

// Results are read a page of lines at a time, and of a page as many results at
// once as fit into pageBytes; one always fits, however large.
const (
	pageLines = 200
	pageBytes = 4 << 20
)

// Results writes the results of a batch as JSONL, in the form of its lines, and
// returns when there are no more for now. In input order that is at the first
// line that has not settled. Nothing is held in the database while w is slow.
func (s *Service) Results(ctx context.Context, b *store.Batch, want Want, w io.Writer) error {
	out := &writer{s: s, b: b, want: want, w: w}
	after := want.After
	for {
		page, err := store.ResultLines(ctx, s.Pool, b, want.Order == api.OrderFinished, after, pageLines)
		if err != nil {
			return s.failed(err)
		}
		last := len(page) < pageLines
		if want.Order == api.OrderInput {
			for i := range page {
				if !settled(&page[i]) {
					page, last = page[:i], true
					break
				}
			}
		}
		if err := out.page(ctx, page); err != nil {
			return s.failed(err)
		}
		if last {
			return nil
		}
		end := page[len(page)-1]
		if after = end.Number; want.Order == api.OrderFinished {
			after = end.Finished
		}
	}
}

// settled says whether a line has an outcome: its task's, where there is one, for
// that may have moved since the line was noted.
func settled(l *store.ResultLine) bool {
	switch {
	case l.Waiting:
		return false
	case l.There && (l.State == lineOpen || l.State == lineFailed || l.State == string(api.Unknown)):
		return l.Task.State.Settled()
	}
	return l.State != lineOpen
}

// writer writes results in the form of the batch.
type writer struct {
	s    *Service
	b    *store.Batch
	want Want
	w    io.Writer
}

// page writes a page of lines, as many at once as their results fit.
func (o *writer) page(ctx context.Context, page []store.ResultLine) error {
	kept := page[:0:0]
	for _, l := range page {
		good := outcome(&l) == string(api.Succeeded)
		if settled(&l) && (o.want.Only == "" || good == (o.want.Only == OnlySucceeded)) {
			kept = append(kept, l)
		}
	}
	for len(kept) > 0 {
		n, size := 0, 0
		var ids []task.ID
		for n < len(kept) {
			if size += kept[n].ResultSize; n > 0 && size > pageBytes {
				break
			}
			if kept[n].ResultSize > 0 && outcome(&kept[n]) == string(api.Succeeded) {
				ids = append(ids, kept[n].TaskID)
			}
			n++
		}
		if err := o.some(ctx, kept[:n], ids); err != nil {
			return err
		}
		kept = kept[n:]
	}
	return nil
}

func (o *writer) some(ctx context.Context, lines []store.ResultLine, ids []task.ID) error {
	results := map[task.ID][]byte{}
	if len(ids) > 0 {
		var err error
		if results, err = store.Results(ctx, o.s.Pool, ids); err != nil {
			return err
		}
	}
	var buf []byte
	for i := range lines {
		var err error
		if o.b.Form == api.FormOpenAI {
			buf, err = o.openAI(&lines[i], results[lines[i].TaskID]).Append(buf)
		} else {
			buf, err = o.onefold(&lines[i], results[lines[i].TaskID]).Append(buf)
		}
		if err != nil {
			return err
		}
		buf = append(buf, '\n')
	}
	_, err := o.w.Write(buf)
	return err
}

// outcome is how a line ended: its task's state, or its own where it is final
// whatever its task did.
func outcome(l *store.ResultLine) string {
	if l.There && (l.State == lineOpen || l.State == lineFailed || l.State == string(api.Unknown)) {
		return string(l.Task.State)
	}
	return l.State
}

func (o *writer) onefold(l *store.ResultLine, result []byte) *api.BatchResult {
	r := &api.BatchResult{
		Line: int(l.Number), Finished: int(l.Finished), Key: l.LineID, Kind: l.Kind, State: outcome(l), Result: result,
	}
	if l.There && l.State != lineInvalid {
		r.TaskID = l.TaskID.String()
		if l.Task.TotalAttempts > 0 {
			r.Usage = &l.Task.Usage
		}
	}
	if r.State != string(api.Succeeded) || result == nil {
		r.Error = problem(l)
	}
	return r
}

func (o *writer) openAI(l *store.ResultLine, result []byte) *api.OpenAIResult {
	r := &api.OpenAIResult{ID: fmt.Sprintf("batch_req_%s_%d_%d", o.b.ID, l.Number, l.Finished)}
	if l.LineID != "" {
		r.CustomID = &l.LineID
	}
	if outcome(l) == string(api.Succeeded) && result != nil {
		r.Response = &api.OpenAIResponse{StatusCode: 200, RequestID: l.TaskID.String(), Body: result}
		return r
	}
	e := problem(l)
	r.Error = &api.OpenAIError{Code: e.Code, Message: e.Message}
	return r
}

// problem says why a line has no result.
func problem(l *store.ResultLine) *api.TaskError {
	switch state := outcome(l); {
	case state == lineInvalid:
		message := fmt.Sprintf("line %d: %s", l.Number, l.Message)
		return &api.TaskError{Code: l.Code, Message: message, Permanent: true, Fix: api.Codes[api.Code(l.Code)].Fix}
	case state == lineExpired:
		return task.WireError(string(api.CodeBatchExpired), "the batch's deadline passed before this line was run", false)
	case state == lineCancelled:
		return task.WireError(string(api.CodeCancelled), "the batch or the task was cancelled", false)
	case !l.There, state == string(api.Succeeded):
		return task.WireError(string(api.CodeResultExpired), "the task succeeded or failed, and was purged since", false)
	}
	return task.WireError(l.Task.ErrorCode, l.Task.ErrorMessage, l.Task.Permanent())
}
