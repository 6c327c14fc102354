package clienttest

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/batchfile"
)

// The states of a line that are no states of a task.
const (
	lineOpen    = "open"
	lineInvalid = "invalid"
)

const maxShown = 20 // invalid lines that a batch shows

// batch is one batch. What callers see of its lines is counted when they look.
type batch struct {
	api.Batch
	asked    options
	file     []byte // hash of its bytes
	lines    []*line
	finished int
	traceID  string
}

// options are what a caller asks of a batch besides its lines.
type options struct {
	kind, webhook string
	deadline      time.Duration
}

// line is one line of a file.
type line struct {
	number   int
	id, kind string
	task     *task
	folded   bool // the task was there before
	state    string
	finished int
	bad      *api.Error
	want     batchfile.Submit
}

// outcome is how a line stands: as its task does, unless it ended apart from it.
func (l *line) outcome() string {
	switch l.state {
	case lineOpen, string(api.Failed), string(api.Unknown):
		return string(l.task.State)
	}
	return l.state
}

func (l *line) settled() bool {
	o := l.outcome()
	return o == lineInvalid || api.State(o).Settled()
}

// start lets the lines run. s.mu is held.
func (s *Server) start(b *batch) {
	now := time.Now().UTC()
	deadline := now.Add(b.asked.deadline)
	b.ID, b.State, b.Run, b.CreatedAt, b.StartedAt, b.Deadline = uuid.Must(uuid.NewV7()).String(), api.BatchRunning, 1, now, &now, &deadline
	b.Lines = len(b.lines)
	s.batches = append(s.batches, b)
	for _, l := range b.lines {
		if l.state == lineInvalid {
			continue
		}
		t, created, _, err := s.submit(wanted{body: l.want.Body, key: l.want.Key, sent: !l.want.Keyed, keyed: l.want.Keyed, trace: b.traceID, batch: b})
		if err != nil {
			l.state, l.bad = lineInvalid, asError(err)
			continue
		}
		l.task, l.kind, l.folded = t, t.Kind, !created
	}
}

// tend notes which lines have settled, in the order in which they did, and
// whether the batch has ended. s.mu is held.
func (s *Server) tend(b *batch) {
	var fresh []*line
	open := 0
	last := *b.StartedAt
	for _, l := range b.lines {
		switch {
		case !l.settled():
			open++
			continue
		case l.task != nil && l.task.FinishedAt != nil && l.task.FinishedAt.After(last):
			last = *l.task.FinishedAt
		}
		if l.finished == 0 {
			fresh = append(fresh, l)
		}
	}
	slices.SortStableFunc(fresh, func(a, b *line) int { return a.at().Compare(b.at()) })
	for _, l := range fresh {
		b.finished++
		l.finished, l.state = b.finished, l.outcome()
	}
	if open > 0 || b.State.Ended() {
		return
	}
	switch {
	case b.State == api.BatchCancelling:
		b.State = api.BatchCancelled
	case !b.Deadline.After(last) && slices.ContainsFunc(b.lines, func(l *line) bool { return l.state == string(api.Failed) }):
		b.State = api.BatchExpired
	default:
		b.State = api.BatchCompleted
	}
	expires := last.Add(retention)
	b.EndedAt, b.ExpiresAt = &last, &expires
}

// at is when a line settled; the zero time of one that never was a task.
func (l *line) at() time.Time {
	if l.task == nil || l.task.FinishedAt == nil {
		return time.Time{}
	}
	return *l.task.FinishedAt
}

// view is a batch as callers see it now. s.mu is held.
func (s *Server) view(b *batch) *api.Batch {
	s.tend(b)
	w := b.Batch
	w.Usage = api.Usage{Billed: api.BilledNo}
	for _, l := range b.lines {
		*map[string]*int{
			string(api.Pending): &w.Counts.Pending, string(api.Running): &w.Counts.Running, string(api.Succeeded): &w.Counts.Succeeded,
			string(api.Failed): &w.Counts.Failed, string(api.Unknown): &w.Counts.Unknown, string(api.Cancelled): &w.Counts.Cancelled,
			lineInvalid: &w.Counts.Invalid,
		}[l.outcome()]++
		if l.bad != nil && len(w.Invalid) < maxShown {
			w.Invalid = append(w.Invalid, api.BadLine{Line: l.number, Code: l.bad.Code, Message: l.bad.Message, Field: l.bad.Field})
		}
		if l.task != nil && !l.folded && l.task.Usage != nil {
			add(&w.Usage, l.task.Usage)
		}
	}
	return &w
}

// add sums usage up; costs, which a test's outcomes seldom have, are left out.
func add(to, u *api.Usage) {
	to.InputTokens += u.InputTokens
	to.CachedTokens += u.CachedTokens
	to.OutputTokens += u.OutputTokens
	to.ReasoningTokens += u.ReasoningTokens
	if u.Billed == api.BilledUnknown || to.Billed == api.BilledNo {
		to.Billed = u.Billed
	}
}

// same says whether another file under a batch's key is the same again.
func (b *batch) same(o options, file []byte) error {
	what := ""
	switch {
	case b.asked != o:
		what = "options"
	case !bytes.Equal(b.file, file):
		what = "file"
	default:
		return nil
	}
	e := api.Errorf(api.CodeKeyReused, "the key was used before with another file or other options").WithField("Idempotency-Key")
	e.Mismatch = []string{what}
	return e
}

// byKey is the batch under a key. s.mu is held.
func (s *Server) byKey(key string) *batch {
	for _, b := range s.batches {
		if b.Key == key {
			return b
		}
	}
	return nil
}

// halt cancels a batch. s.mu is held.
func (s *Server) halt(b *batch) error {
	s.tend(b)
	switch b.State {
	case api.BatchRunning:
	case api.BatchCancelling, api.BatchCancelled:
		return nil
	default:
		return api.Errorf(api.CodeConflict, "the batch has %s", b.State)
	}
	b.State = api.BatchCancelling
	for _, l := range b.lines {
		switch {
		case l.settled():
		case l.folded:
			l.state = string(api.Cancelled) // the task is another's, and goes its way
		default:
			_ = s.stop(l.task) // one that has settled meanwhile stays as it is
		}
	}
	s.moved()
	return nil
}

// runAgain runs the failed lines of a batch again. s.mu is held.
func (s *Server) runAgain(b *batch, run *int64) error {
	s.tend(b)
	switch {
	case run == nil:
		return api.Errorf(api.CodeInvalidField, "run is missing").WithField("run")
	case *run != int64(b.Run):
		return api.Errorf(api.CodeConflict, "the batch is at run %d, the act is for %d", b.Run, *run)
	case !b.State.Ended():
		return api.Errorf(api.CodeConflict, "the batch is %s", b.State)
	}
	var failed []*line
	for _, l := range b.lines {
		if l.state == string(api.Failed) {
			failed = append(failed, l)
		}
	}
	if len(failed) == 0 {
		return api.Errorf(api.CodeConflict, "no line of the batch has failed or expired")
	}
	now := time.Now().UTC()
	deadline := now.Add(b.asked.deadline)
	b.Run, b.State, b.Deadline, b.EndedAt, b.ExpiresAt = b.Run+1, api.BatchRunning, &deadline, nil, nil
	for _, l := range failed {
		l.state, l.finished = lineOpen, 0
		if l.task.State == api.Failed {
			s.rerunUntil(l.task, deadline)
		}
	}
	return nil
}

// result is a line's result in our form.
func (l *line) result() *api.BatchResult {
	r := &api.BatchResult{Line: l.number, Finished: l.finished, Key: l.id, Kind: l.kind, State: l.outcome()}
	if l.task != nil {
		r.TaskID = l.task.ID
		if l.task.Attempts > 0 || l.task.Run > 1 {
			r.Usage = l.task.Usage
		}
	}
	switch {
	case r.State == lineInvalid:
		r.Error = &api.TaskError{
			Code: string(l.bad.Code), Message: fmt.Sprintf("line %d: %s", l.number, l.bad.Message), Permanent: true, Fix: api.Codes[l.bad.Code].Fix,
		}
	case r.State == string(api.Cancelled):
		r.Error = failure(api.CodeCancelled, "the batch or the task was cancelled", false).Error
	case r.State == string(api.Succeeded):
		r.Result = l.task.Result
	default:
		r.Error = l.task.Error
	}
	return r
}

// openAI is the same in the form of OpenAI's Batch API.
func (l *line) openAI(id string) *api.OpenAIResult {
	r := l.result()
	out := &api.OpenAIResult{ID: fmt.Sprintf("batch_req_%s_%d_%d", id, l.number, l.finished)}
	if l.id != "" {
		out.CustomID = &l.id
	}
	if r.Error == nil {
		out.Response = &api.OpenAIResponse{StatusCode: 200, RequestID: r.TaskID, Body: r.Result}
		return out
	}
	out.Error = &api.OpenAIError{Code: r.Error.Code, Message: r.Error.Message}
	return out
}

// sorted are the lines in an order, behind a place in it, that have an outcome
// to be shown: in input order up to the first that has none.
func (b *batch) sorted(order api.BatchOrder, after int) (out []*line) {
	for _, l := range b.lines {
		switch {
		case order == api.OrderInput && !l.settled():
			return out
		case order == api.OrderInput && l.number > after, order == api.OrderFinished && l.settled() && l.finished > after:
			out = append(out, l)
		}
	}
	if order == api.OrderFinished {
		slices.SortFunc(out, func(a, b *line) int { return cmp.Compare(a.finished, b.finished) })
	}
	return out
}
