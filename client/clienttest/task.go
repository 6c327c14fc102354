package clienttest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/canon"
	"github.com/onefold-dev/onefold/internal/submission"
)

// What the real server has where nothing else is configured.
const (
	defaultDeadline = 24 * time.Hour
	retention       = 720 * time.Hour
	defaultRuns     = 3
)

// place is what a key stands for: one task at a time.
type place struct{ kind, key, slot string }

// task is one task. Its api.Task is what callers see.
type task struct {
	api.Task
	kind        Kind
	place       place
	input       []byte
	effects     []byte
	fingerprint [sha256.Size]byte
	stop        context.CancelFunc
}

// wanted is a submit as it came: its key with it, or within its body (keyed).
type wanted struct {
	body        []byte
	key         string
	sent, keyed bool
	trace       string
	batch       *batch
}

// judge makes the task that a submit asks for.
func (s *Server) judge(w wanted) (*task, *submission.Parsed, error) {
	p, err := submission.Parse(w.body, w.keyed)
	if err != nil {
		return nil, nil, err
	}
	if p.Key != nil {
		w.key, w.sent = *p.Key, true
	}
	fresh, err := s.prepare(p, w.key, w.sent)
	if err != nil {
		return nil, nil, err
	}
	fresh.TraceID = w.trace
	if b := w.batch; b != nil {
		fresh.BatchID = b.ID
		if fresh.Deadline.After(*b.Deadline) {
			fresh.Deadline = b.Deadline
		}
	}
	return fresh, p, nil
}

// submit makes a task or finds the one its key means. s.mu is held.
func (s *Server) submit(w wanted) (t *task, created, reopened bool, err error) {
	fresh, p, err := s.judge(w)
	if err != nil {
		return nil, false, false, err
	}
	if old := s.byPlace[fresh.place]; old != nil {
		reopened, err = s.meet(old, fresh)
		return old, false, reopened, err
	}
	if err := submission.WrongTimes(p.RunAt, p.Deadline, time.Now()); err != nil {
		return nil, false, false, err
	}
	s.tasks, s.byID[fresh.ID], s.byPlace[fresh.place] = append(s.tasks, fresh), fresh, fresh
	s.begin(fresh)
	return fresh, true, false, nil
}

// prepare checks a submit as the real server does, and makes its task.
func (s *Server) prepare(p *submission.Parsed, key string, sent bool) (*task, error) {
	kind, ok := s.kinds[p.Kind]
	if !ok {
		return nil, api.Errorf(api.CodeUnknownKind, "there is no kind %q", submission.Printable(p.Kind)).WithField("kind")
	}
	if kind.Dedupe == "" {
		kind.Dedupe = api.DedupeKey
	}
	if p.Dedupe != "" && p.Dedupe != string(kind.Dedupe) {
		return nil, api.Errorf(api.CodeDedupeMismatch, "the kind %s dedupes by %q", p.Kind, kind.Dedupe).WithField("dedupe")
	}
	if kind.Dedupe == api.DedupeWindow && p.OccurredAt == nil {
		return nil, api.Errorf(api.CodeOccurredRequired, "the kind %s dedupes by the event's own time and needs occurred_at", p.Kind).WithField("occurred_at")
	}
	if sent {
		if err := canon.CheckKey(key); err != nil {
			return nil, submission.CanonError(err)
		}
	} else if kind.Dedupe != api.DedupeNone {
		return nil, submission.CanonError(canon.MissingKey())
	}
	if p.Kind == "llm.chat" {
		if err := canon.CheckChat(p.Input); err != nil {
			return nil, submission.CanonError(err)
		}
	}
	sums, err := canon.Sum(p.Kind, p.Input, p.Effects)
	if err != nil {
		return nil, submission.CanonError(err)
	}
	return newTask(p, kind, key, sums), nil
}

func newTask(p *submission.Parsed, kind Kind, key string, sums canon.Sums) *task {
	now := time.Now().UTC()
	t := &task{
		Task: api.Task{
			ID: uuid.Must(uuid.NewV7()).String(), Kind: p.Kind, Key: key, State: api.Pending, Run: 1, InputHash: hex.EncodeToString(sums.Input[:]),
			Priority: int(p.Priority), RunAt: now, CreatedAt: now, Metadata: bytes.Clone(p.Metadata),
		},
		kind: kind, input: bytes.Clone(p.Input), effects: bytes.Clone(p.Effects), fingerprint: sums.Fingerprint,
		stop: func() {},
	}
	if p.RunAt != nil {
		t.RunAt = *p.RunAt
	}
	deadline := now.Add(defaultDeadline)
	if p.Deadline != nil {
		deadline = *p.Deadline
	}
	t.Deadline = &deadline
	t.place = place{kind: p.Kind, key: key}
	switch kind.Dedupe {
	case api.DedupeNone:
		t.place.slot = t.ID
	case api.DedupeWindow:
		t.place.slot = strconv.FormatInt(p.OccurredAt.Unix()/int64(kind.Window/time.Second), 10)
	}
	return t
}

// meet is what a duplicate does to the task it finds. s.mu is held.
func (s *Server) meet(old, fresh *task) (reopened bool, err error) {
	if old.fingerprint != fresh.fingerprint {
		e := api.Errorf(api.CodeKeyReused, "the key was used before with another payload")
		e.TaskID = old.ID
		e.Mismatch, err = canon.Diff(canon.Payload(old.Kind, old.input, old.effects), canon.Payload(fresh.Kind, fresh.input, fresh.effects))
		if err != nil {
			return false, fmt.Errorf("compare payloads: %w", err)
		}
		return false, e
	}
	old.Duplicates++
	runs := old.kind.MaxRuns
	if runs == 0 {
		runs = defaultRuns
	}
	if old.State != api.Failed || old.Error.Permanent || old.Run >= runs || old.kind.Dedupe == api.DedupeOpen {
		return false, nil
	}
	s.rerun(old)
	return true, nil
}

// rerun starts a new run of a task, to be done by a day from now. s.mu is held.
func (s *Server) rerun(t *task) { s.rerunUntil(t, time.Now().UTC().Add(defaultDeadline)) }

func (s *Server) rerunUntil(t *task, deadline time.Time) {
	t.State, t.Run, t.Epoch, t.Attempts = api.Pending, t.Run+1, t.Epoch+1, 0
	t.Error, t.FinishedAt, t.ExpiresAt, t.CancelAsked = nil, nil, nil, false
	t.Deadline = &deadline
	s.byPlace[t.place] = t
	s.begin(t)
}

// begin lets a pending task run at its time, and not beyond its deadline. s.mu
// is held.
func (s *Server) begin(t *task) {
	ctx, stop := context.WithDeadline(context.Background(), *t.Deadline)
	t.stop = stop
	run, wait := t.Run, time.Until(t.RunAt)
	s.works.Go(func() {
		defer stop()
		if wait > 0 {
			timer := time.NewTimer(wait)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
		}
		s.work(ctx, t, run)
	})
	s.moved()
}

// work is one run of a task.
func (s *Server) work(ctx context.Context, t *task, run int) {
	s.mu.Lock()
	if t.State != api.Pending || t.Run != run || s.closed {
		s.mu.Unlock()
		return
	}
	if ctx.Err() != nil {
		s.late(t)
		s.mu.Unlock()
		return
	}
	now := time.Now().UTC()
	t.State, t.Epoch, t.Attempts, t.StartedAt = api.Running, t.Epoch+1, t.Attempts+1, &now
	call := Call{TaskID: t.ID, Kind: t.Kind, Key: t.Key, Run: t.Run, Input: bytes.Clone(t.input)}
	s.calls = append(s.calls, call)
	epoch := t.Epoch
	s.moved()
	s.mu.Unlock()

	var out Outcome
	if t.kind.Do != nil {
		out = t.kind.Do(ctx, call)
	} else {
		<-ctx.Done() // Settle ended it, or a cancel, or its time
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case t.State != api.Running || t.Epoch != epoch || s.closed:
		return
	case t.CancelAsked:
		t.cancelled()
	case ctx.Err() != nil:
		s.late(t)
		return
	default:
		t.settle(out)
	}
	s.freed(t)
	s.moved()
}

// late ends a task at its deadline. s.mu is held.
func (s *Server) late(t *task) {
	t.settle(failure(api.CodeDeadline, "the deadline passed before the task was done", false))
	s.freed(t)
	s.moved()
}

// freed gives the key of a finished task free, where its kind says so. s.mu is
// held.
func (s *Server) freed(t *task) {
	if t.kind.Dedupe == api.DedupeOpen && t.State.Final() && s.byPlace[t.place] == t {
		delete(s.byPlace, t.place)
	}
}

// settle ends a task as an outcome says.
func (t *task) settle(o Outcome) {
	now := time.Now().UTC()
	t.FinishedAt, t.CancelAsked, t.Usage = &now, false, o.Usage
	if t.Usage == nil {
		t.Usage = &api.Usage{Billed: api.BilledYes}
	}
	switch {
	case o.Unknown:
		t.State, t.Error = api.Unknown, o.Error
		t.Usage.Billed = api.BilledUnknown
	case o.Error != nil:
		t.State, t.Error = api.Failed, o.Error
	default:
		t.State, t.Error, t.Result = api.Succeeded, nil, o.Result
		if len(t.Result) == 0 {
			t.Result = json.RawMessage("null")
		}
	}
	if t.State.Final() {
		t.expire(now)
	}
	t.stop()
}

func (t *task) expire(now time.Time) {
	at := now.Add(retention)
	t.ExpiresAt = &at
}

func (t *task) cancelled() {
	now := time.Now().UTC()
	t.State, t.FinishedAt, t.CancelAsked, t.Error = api.Cancelled, &now, false, nil
	t.expire(now)
	t.stop()
}
