// Package submit decides what a caller may ask of a task: to be there once
// (Submit), to stop (Cancel), to run again (Retry, a reopening duplicate), or
// to be what a person says it is (Resolve). Each is one transaction.
package submit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/canon"
	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/fair"
	"github.com/onefold-dev/onefold/internal/gate"
	"github.com/onefold-dev/onefold/internal/group"
	"github.com/onefold-dev/onefold/internal/job"
	"github.com/onefold-dev/onefold/internal/kinds"
	"github.com/onefold-dev/onefold/internal/outbox"
	"github.com/onefold-dev/onefold/internal/quota"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/submission"
	"github.com/onefold-dev/onefold/internal/task"
	"github.com/onefold-dev/onefold/internal/tracing"
)

// Config is what a Service works with; all fields but Gates, Fair, Quotas, Salt and Traces are required.
type Config struct {
	Pool     *pgxpool.Pool
	Kinds    *kinds.Book
	Outbox   *outbox.Outbox
	Notifier *job.Notifier
	Log      *slog.Logger
	Gates    *gate.Board // what operators stop; nil: nothing
	Fair     *fair.Clock // gives tasks their places; nil: the order of submits
	Quotas   *quota.Book // what tenants may have; nil: all they like
	Salt     []byte      // folds callers' addresses; none: they are not kept
	// Blind leaves out what is kept and counted of submits only for people to see:
	// for measuring what it costs.
	Blind  bool
	Traces *tracing.Tracer // nil: no spans are made
}

// Service serves the acts of callers and operators.
type Service struct {
	Config
	inserts *group.Group[*store.New, landed]
	bulk    *group.Group[*store.New, landed] // apart, so that a full one delays nobody's single submit
	dups    *counter
}

// New starts a service. Close ends it.
func New(c Config) *Service {
	s := &Service{Config: c}
	size := func(n *store.New) int { return len(n.Input) + len(n.Effects) }
	s.inserts = group.New(s.insert, size, &group.Opts{Single: oneAtFault})
	s.bulk = group.New(s.insert, size, &group.Opts{Max: MaxBulk, Single: oneAtFault})
	s.dups = newCounter(c.Pool, c.Log)
	s.dups.blind = c.Blind
	return s
}

// oneAtFault says that a flush failed by one member: its data, or its key, which
// a transaction that stays open elsewhere holds (package enqueue).
func oneAtFault(err error) bool {
	return store.DataError(err) || store.SQLState(err) == "55P03"
}

// Close serves what is queued and writes the last counts.
func (s *Service) Close() {
	s.inserts.Close()
	s.bulk.Close()
	s.dups.close()
}

// Request is one submit as it came. Body is the raw JSON body; with Keyed it
// names its key itself, as items of a bulk and lines of a batch do.
type Request struct {
	Tenant      string
	Key         string
	KeySent     bool
	Keyed       bool
	Body        []byte
	TraceID     string
	Traceparent string // where in that trace it was sent, "" where it was in none
	RequestID   string
	Actor       string
	// Source is what counts are kept by: the name of a webhook's source, "" for
	// the API. Client is the caller's address, which is folded before it is kept, UserAgent is what it says it is;
	// both are for the timeline.
	Source    string
	Client    string
	UserAgent string
	blind     bool
	salt      []byte

	// Of a batch's line: the id its task gets, the batch, and the time by which
	// it must be done whatever else is asked for.
	ID     *task.ID
	Batch  *task.ID
	Before *time.Time
}

// Answer is the task a submit led to. Row has its result when there is one.
// Neither flag set means: a duplicate of the task as it stands.
type Answer struct {
	Row      *task.Row
	Created  bool
	Reopened bool
}

// Submit inserts one task, or finds the one its key already means. When it
// returns without an error the task is committed. A payload that differs from
// the first one's is refused with key_reused and changes nothing.
func (s *Service) Submit(ctx context.Context, r Request) (Answer, error) {
	r = s.folded(r)
	n, kind, err := prepare(s.Kinds.Newest, r)
	if err != nil {
		return Answer{}, err
	}
	ctx, span := s.trace(ctx, n)
	a, err := s.submit(ctx, r, n, kind)
	r.count(kind.Name, a, err)
	traced(span, a, err)
	return a, err
}

func (s *Service) submit(ctx context.Context, r Request, n *store.New, kind *config.Kind) (Answer, error) {
	if err := s.checkNew(ctx, n, kind); err != nil {
		return Answer{}, s.failed(err)
	}
	got, err := s.inserts.Do(ctx, n)
	if err != nil {
		return Answer{}, s.failed(err)
	}
	return s.answer(ctx, r, n, kind, got)
}

// answer tells what a committed submit came to.
func (s *Service) answer(ctx context.Context, r Request, n *store.New, kind *config.Kind, got landed) (Answer, error) {
	if got.refused != nil {
		return Answer{}, got.refused
	}
	if got.created {
		return Answer{Row: got.row, Created: true}, nil
	}
	if !bytes.Equal(got.row.Fingerprint, n.Fingerprint[:]) {
		s.dups.conflict(n, got.row.ID)
		s.dups.add(got.row.ID, whatRefused, &r)
		return Answer{}, s.failed(mismatch(ctx, s.Pool, got.row, n))
	}
	again := reopens(kind, got.row) && !keepsFailed(s.Gates, got.row)
	if again {
		var err error
		if again, err = s.mayReopen(ctx, got.row); err != nil {
			return Answer{}, s.failed(err)
		}
	}
	if again {
		row, reopened, err := s.reopen(ctx, got.row, kind)
		what := whatFolded
		if reopened {
			what = whatReopened
		}
		s.dups.add(got.row.ID, what, &r)
		if err != nil {
			return Answer{}, s.failed(err)
		}
		return Answer{Row: row, Reopened: reopened}, nil
	}
	s.dups.add(got.row.ID, whatFolded, &r)
	return Answer{Row: got.row}, nil
}

// Check says whether r would be taken, but for its key's being used before, and
// what kind it is of.
func Check(ctx context.Context, rules Rules, r Request) (kind string, err error) {
	n, k, err := prepare(rules.Newest, r)
	if err != nil {
		return "", err
	}
	return n.Slot.Kind, rules.wrong(ctx, n, k)
}

// prepare checks a request and makes the row it asks for. The id is made here,
// once, before the first try.
func prepare(newest Newest, r Request) (*store.New, *config.Kind, error) {
	p, err := submission.Parse(r.Body, r.Keyed)
	if err != nil {
		return nil, nil, err
	}
	if p.Key != nil {
		r.Key, r.KeySent = *p.Key, true
	}
	kind, ok := newest(p.Kind)
	if !ok {
		return nil, nil, api.Errorf(api.CodeUnknownKind, "there is no kind %q", submission.Printable(p.Kind)).WithField("kind")
	}
	if err := checkDedupe(p, kind); err != nil {
		return nil, nil, err
	}
	if err := checkKey(r, kind); err != nil {
		return nil, nil, err
	}
	if _, err := config.SubmittedEffects(p.Effects, config.Opts{}); err != nil {
		return nil, nil, err
	}
	if p.Kind == "llm.chat" {
		if err := canon.CheckChat(p.Input); err != nil {
			return nil, nil, submission.CanonError(err)
		}
	}
	sums, err := canon.Sum(p.Kind, p.Input, p.Effects)
	if err != nil {
		return nil, nil, submission.CanonError(err)
	}
	return row(r, p, kind, sums), kind, nil
}

func row(r Request, p *submission.Parsed, kind *config.Kind, sums canon.Sums) *store.New {
	n := &store.New{
		ID:         task.NewID(),
		Dedupe:     api.Dedupe(kind.Dedupe.Mode),
		Provider:   kind.Provider,
		Queue:      job.Queue(kind.Provider),
		Priority:   p.Priority,
		ConfigHash: kind.Hash(),
		TraceID:    r.TraceID, Traceparent: r.Traceparent,
		BudgetID: p.Budget.ID, BudgetSends: int32(p.Budget.Sends),
		OccurredAt: p.OccurredAt, RunAt: p.RunAt, Deadline: p.Deadline, DeadlineAfter: kind.Deadline,
		Metadata: p.Metadata, Effects: p.Effects, Input: p.Input,
		Fingerprint: sums.Fingerprint, FingerprintV: canon.FingerprintVersion, InputHash: sums.Input,
		Origin: r.origin,
	}
	if r.ID != nil {
		n.ID = *r.ID
	}
	if n.Batch = r.Batch; r.Before != nil && (n.Deadline == nil || n.Deadline.After(*r.Before)) {
		n.Deadline = r.Before
	}
	n.Slot = store.Slot{Tenant: r.Tenant, Kind: p.Kind, Key: r.Key, Slot: slot(kind, p, n.ID)}
	return n
}

// checkNew refuses times that make no sense for a new task, effects that its
// tenant may not ask for, and a budget that was begun with another number. A
// duplicate is answered whatever the clock says by now, and whatever it may ask
// for: all was right when it was new.
func (s *Service) checkNew(ctx context.Context, n *store.New, kind *config.Kind) error {
	db := s.Pool
	wrong := s.Rules().wrong(ctx, n, kind)
	if wrong == nil && n.BudgetID != "" {
		have, err := store.PutBudget(ctx, db, store.BudgetKey{Tenant: n.Slot.Tenant, ID: n.BudgetID}, n.BudgetSends)
		if err != nil {
			return err
		}
		wrong = wrongBudget(have, n.BudgetSends)
	}
	if wrong == nil {
		return nil
	}
	found, err := store.TasksBySlot(ctx, db, []store.Slot{n.Slot})
	if err != nil {
		return err
	}
	if row := found[n.Slot]; row != nil && !row.Expired() {
		return nil
	}
	return wrong
}

// wrongBudget refuses a budget that was begun with another number of sends; have
// is 0 where it was not begun.
func wrongBudget(have, says int32) error {
	if have == 0 || have == says {
		return nil
	}
	return api.Errorf(api.CodeInvalidField, "the budget has %d sends, this task says %d", have, says).WithField("budget.sends").
		WithFix("Send the number the budget was begun with; what is left of it is counted here. Another run needs another id.")
}

// slot is the place the key takes (protocols section 1): one while the task is
// kept or open, one a window of the event's own time, or the task's own.
func slot(kind *config.Kind, p *submission.Parsed, id task.ID) string {
	switch kind.Dedupe.Mode {
	case config.DedupeWindow:
		w := int64(kind.Dedupe.Window / time.Second)
		return "w" + strconv.FormatInt(w, 10) + ":" + strconv.FormatInt(p.OccurredAt.Unix()/w, 10)
	case config.DedupeNone:
		return id.String()
	}
	return ""
}

func checkKey(r Request, kind *config.Kind) error {
	if !r.KeySent {
		if kind.Dedupe.Mode == config.DedupeNone {
			return nil
		}
		return submission.CanonError(canon.MissingKey())
	}
	return submission.CanonError(canon.CheckKey(r.Key))
}

// checkDedupe lets a request repeat the kind's mode and ask for nothing else.
func checkDedupe(p *submission.Parsed, kind *config.Kind) error {
	mode := string(kind.Dedupe.Mode)
	if p.Dedupe != "" && p.Dedupe != mode {
		return api.Errorf(api.CodeDedupeMismatch, "the kind %s dedupes by %q", kind.Name, mode).WithField("dedupe")
	}
	if kind.Dedupe.Mode == config.DedupeWindow && p.OccurredAt == nil {
		return api.Errorf(api.CodeOccurredRequired, "the kind %s dedupes by the event's own time and needs occurred_at", kind.Name).WithField("occurred_at")
	}
	return nil
}

// mismatch is the refusal of a reused key. It names the fields that differ from
// the first payload, where that is still kept.
func mismatch(ctx context.Context, db store.DBTX, row *task.Row, n *store.New) error {
	e := api.Errorf(api.CodeKeyReused, "the key was used before with another payload")
	e.TaskID = row.ID.String()
	stored, err := store.Payloads(ctx, db, []task.ID{row.ID})
	if err != nil {
		return err
	}
	first, ok := stored[row.ID]
	if !ok || first[0] == nil {
		return e
	}
	paths, err := canon.Diff(canon.Payload(row.Kind, first[0], first[1]), canon.Payload(n.Slot.Kind, n.Input, n.Effects))
	if err != nil {
		return fmt.Errorf("compare payloads: %w", err)
	}
	e.Mismatch = paths
	return e
}

// refusal says whether err is an answer to the caller, not a failure.
func refusal(err error) bool {
	var e *api.Error
	return errors.As(err, &e)
}

// failed turns a database that is away, or that rolls back for conflicts however
// often it is asked, into the caller's "try again"; all else stays internal.
func (s *Service) failed(err error) error {
	var e *api.Error
	if errors.As(err, &e) || errors.Is(err, context.Canceled) {
		return err
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, group.ErrClosed) || store.Away(err) {
		s.Log.Warn("database away", "error", err)
		return api.Errorf(api.CodeUnavailable, "the database cannot be reached").WithRetryAfter(2 * time.Second)
	}
	if store.Retryable(err) {
		s.Log.Warn("conflicts without end", "error", err)
		return api.Errorf(api.CodeUnavailable, "the database rolled this back again and again, for conflicts with others").WithRetryAfter(2 * time.Second)
	}
	return err
}
