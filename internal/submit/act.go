package submit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/canon"
	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/failpoint"
	"github.com/onefold-dev/onefold/internal/job"
	"github.com/onefold-dev/onefold/internal/outbox"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/submission"
	"github.com/onefold-dev/onefold/internal/task"
)

// Act is what someone asks of an existing task. Epoch is the one they saw;
// retry and resolve need it. An empty Tenant is an instance key's.
type Act struct {
	Tenant    string
	ID        task.ID
	Epoch     *int64
	Reason    string
	Actor     string
	RequestID string

	said string // what a resolution brought with it, for the audit
}

// Resolution is what a person, or a check, says of a task: succeeded with the
// result given, failed, retry, or finish: store the reply that is already
// there, without another call.
type Resolution struct {
	Action  string
	Result  []byte
	Message string
}

// digest stands for what a resolution brings with it, so that the same one is
// known again.
func (how Resolution) digest() string {
	if how.Result == nil && how.Message == "" {
		return ""
	}
	sum := sha256.Sum256(append([]byte(how.Message+"\x00"), how.Result...))
	return hex.EncodeToString(sum[:])
}

// Cancel stops a task that has not settled: pending and unknown become
// cancelled at once, running is flagged and whoever moves it next honours the
// flag. Cancelling twice is no error; a finished task answers conflict.
func (s *Service) Cancel(ctx context.Context, a Act) (*task.Row, error) {
	return s.act(ctx, a, failpoint.CancelBeforeCommit, func(ctx context.Context, tx pgx.Tx, r *task.Row) ([]string, error) {
		if r.State == api.Cancelled {
			return nil, nil
		}
		from := r.State
		if a.Epoch != nil && *a.Epoch != r.Epoch {
			return nil, moved(a, r)
		}
		switch r.State {
		case api.Running:
			if _, err := store.RequestCancel(ctx, tx, r.ID, r.Epoch); err != nil {
				return nil, err
			}
			return nil, s.audit(ctx, tx, a, r, "cancel", from)
		case api.Pending, api.Unknown:
			m := store.Stay(r)
			m.To, m.NewEpoch, m.Cancel = api.Cancelled, r.Epoch+1, true
			queues, err := s.settle(ctx, tx, r, m)
			if err != nil {
				return nil, err
			}
			return queues, s.audit(ctx, tx, a, r, "cancel", from)
		}
		return nil, tooLate(r)
	})
}

// Retry runs an unknown or failed task again: a new run with fresh attempts and
// a fresh deadline.
func (s *Service) Retry(ctx context.Context, a Act) (*task.Row, error) {
	return s.retry(ctx, a, "retry", api.Unknown, api.Failed)
}

func (s *Service) retry(ctx context.Context, a Act, action string, legal ...api.State) (*task.Row, error) {
	return s.act(ctx, a, failpoint.ResolveBeforeCommit, func(ctx context.Context, tx pgx.Tx, r *task.Row) ([]string, error) {
		if done, err := a.seen(ctx, tx, r, action, ""); done || err != nil {
			return nil, err
		}
		if !slices.Contains(legal, r.State) {
			if action == "retry" {
				return nil, conflict(r, "a %s task cannot be retried", r.State)
			}
			return nil, conflict(r, "a %s task has nothing to resolve", r.State)
		}
		from := r.State
		queue, err := s.Rules().rerun(ctx, tx, r, r.ConfigHash, r.Provider)
		if err != nil {
			return nil, err
		}
		return []string{queue}, s.audit(ctx, tx, a, r, action, from)
	})
}

// Resolve settles an unknown task by a person's word, or runs it again. Failed
// is also said of a task that failed by the system's fault: it then stays so.
func (s *Service) Resolve(ctx context.Context, a Act, how Resolution) (*task.Row, error) {
	if a.Reason == "" {
		return nil, api.Errorf(api.CodeInvalidField, "reason is missing").WithField("reason").WithFix("Say in a few words how you know.")
	}
	switch how.Action {
	case "retry":
		return s.retry(ctx, a, "resolve retry", api.Unknown)
	case "succeeded":
		if err := canon.Check(how.Result); err != nil {
			return nil, submission.CanonError(err)
		}
	case "failed", "finish":
	default:
		return nil, api.Errorf(api.CodeInvalidField, "action is not succeeded, failed, retry or finish").WithField("action")
	}
	return s.act(ctx, a, failpoint.ResolveBeforeCommit, func(ctx context.Context, tx pgx.Tx, r *task.Row) ([]string, error) {
		said := how.digest()
		if done, err := a.seen(ctx, tx, r, "resolve "+how.Action, said); done || err != nil {
			return nil, err
		}
		a.said = said
		if r.State == api.Failed && !r.Permanent() && how.Action == "failed" {
			if err := store.LetFailed(ctx, tx, r.ID, r.Epoch); err != nil {
				return nil, err
			}
			return nil, s.audit(ctx, tx, a, r, "resolve failed", r.State)
		}
		if r.State != api.Unknown {
			return nil, conflict(r, "a %s task has nothing to resolve", r.State)
		}
		m, err := s.resolution(ctx, tx, r, how)
		if err != nil {
			return nil, err
		}
		queues, err := s.settle(ctx, tx, r, m)
		if err != nil {
			return nil, err
		}
		return queues, s.audit(ctx, tx, a, r, "resolve "+how.Action, api.Unknown)
	})
}

// MarkDuplicate notes that a task repeats another one of its tenant, which changes
// neither. The same word again is no error; another one answers conflict.
func (s *Service) MarkDuplicate(ctx context.Context, a Act, of task.ID) (*task.Row, error) {
	if a.Reason == "" {
		return nil, api.Errorf(api.CodeInvalidField, "reason is missing").WithField("reason").WithFix("Say in a few words how you know.")
	}
	if of == a.ID {
		return nil, api.Errorf(api.CodeInvalidField, "a task is no duplicate of itself").WithField("of")
	}
	return s.act(ctx, a, failpoint.ResolveBeforeCommit, func(ctx context.Context, tx pgx.Tx, r *task.Row) ([]string, error) {
		first, err := store.Task(ctx, tx, r.Tenant, of)
		switch {
		case err != nil:
			return nil, err
		case first == nil:
			return nil, api.Errorf(api.CodeInvalidField, "of is no task of the same tenant").WithField("of")
		case r.DuplicateOf != nil && *r.DuplicateOf == of:
			return nil, nil
		case r.DuplicateOf != nil:
			return nil, conflict(r, "it is marked as a duplicate of %s already", *r.DuplicateOf)
		case first.DuplicateOf != nil:
			return nil, conflict(first, "%s is a duplicate itself", of).WithFix("Name the one that stays: %s.", *first.DuplicateOf)
		}
		if err := store.MarkDuplicate(ctx, tx, r.ID, of); err != nil {
			return nil, err
		}
		return nil, store.InsertAudit(ctx, tx, store.AuditEntry{
			Tenant: r.Tenant, Actor: a.Actor, Action: "mark duplicate", TargetType: "task", TargetID: r.ID.String(),
			Reason: a.Reason, RequestID: a.RequestID, Details: map[string]string{"of": of.String()},
		})
	})
}

// resolution is the move that a person's word asks for.
func (s *Service) resolution(ctx context.Context, tx pgx.Tx, r *task.Row, how Resolution) (store.Move, error) {
	m := store.Stay(r)
	m.NewEpoch, m.Unclear = r.Epoch+1, false
	if how.Action == "failed" {
		m.To, m.Code, m.Permanent = api.Failed, string(api.CodeRefusedByPerson), true
		if m.Message = how.Message; m.Message == "" {
			m.Message = "resolved as failed"
		}
		return m, nil
	}
	m.To, m.Result = api.Succeeded, how.Result
	kind, err := s.version(ctx, tx, r)
	if err != nil {
		return m, err
	}
	if how.Action == "succeeded" {
		if err := kind.CheckResult(how.Result); err != nil {
			return m, err
		}
	} else {
		kept, err := store.KeptResult(ctx, tx, r.ID, r.Run)
		if err != nil {
			return m, err
		}
		m.Result, m.FinishReason, m.Truncated, m.Effects = kept.Result, kept.FinishReason, kept.Truncated, kept.Effects
		if m.Result == nil {
			return m, conflict(r, "there is no kept result to finish with")
		}
	}
	hash := sha256.Sum256(m.Result)
	m.ResultHash = hash[:]
	return m, nil
}

// settle moves r as m says, with that outcome's effects and without its
// wake-up. It leaves r as it stands afterwards.
func (s *Service) settle(ctx context.Context, tx pgx.Tx, r *task.Row, m store.Move) ([]string, error) {
	kind, err := s.version(ctx, tx, r)
	if err != nil {
		return nil, err
	}
	m.Retention = s.Kinds.Config().RetentionOf(kind)
	moved, queues, err := s.Outbox.Move(ctx, tx, []outbox.Moved{{Row: r, Kind: kind, Move: m}})
	if err != nil {
		return nil, effectError(r, err)
	}
	if !moved[r.ID] {
		return nil, conflict(r, "the task moved meanwhile")
	}
	return queues, nil
}

func (s *Service) version(ctx context.Context, tx pgx.Tx, r *task.Row) (*config.Kind, error) {
	kind, err := s.Kinds.Version(ctx, tx, r.Kind, r.ConfigHash)
	if err != nil {
		return nil, err
	}
	if kind == nil {
		return nil, api.Errorf(api.CodeUnavailable, "this server cannot read the configuration the task runs under").
			WithFix("Ask a server of the newest version, or upgrade this one.").WithRetryAfter(5 * time.Second)
	}
	return kind, nil
}

// rerun starts a new run of r: epoch and run rise, the attempt counters start
// anew, the deadline is fresh, and an open task takes its key's slot again. It
// takes its place anew, too: with its old one, a thousand tasks that are run
// again would come before everybody else's.
func (rules Rules) rerun(ctx context.Context, tx pgx.Tx, r *task.Row, hash, provider string) (queue string, err error) {
	if r.PayloadPurgedAt != nil {
		return "", conflict(r, "the payload was purged, so the task cannot run again")
	}
	jobs, err := store.NextJobIDs(ctx, tx, 1)
	if err != nil {
		return "", err
	}
	place, err := rules.placeRun(ctx, tx, r, provider)
	if err != nil {
		return "", err
	}
	m := store.Stay(r)
	m.NewVirtual = &place
	m.To, m.NewEpoch, m.Run, m.FreshDeadline, m.JobID = api.Pending, r.Epoch+1, r.Run+1, true, &jobs[0]
	m.Attempts, m.NotSent, m.Released, m.Lost, m.Unclear, m.Cancel = 0, 0, 0, 0, false, false
	m.LastError, m.Same, m.Reported = "", 0, 0
	m.NewConfigHash, m.NewProvider = hash, provider
	if r.Dedupe == api.DedupeOpen {
		m.Slot = ""
	}
	moved, err := store.MoveTasks(ctx, tx, []store.Move{m})
	if err != nil {
		if store.SQLState(err) == "23505" {
			return "", api.Errorf(api.CodeSuperseded, "another unfinished task holds the key").WithField("key")
		}
		return "", err
	}
	if !moved[r.ID] {
		return "", conflict(r, "the task moved meanwhile")
	}
	if r.JobID != nil {
		if err := store.DeleteWakes(ctx, tx, []int64{*r.JobID}); err != nil {
			return "", err
		}
	}
	queue = job.Queue(provider)
	return queue, store.InsertWakes(ctx, tx, store.WakeTask, []store.Wake{{JobID: jobs[0], ID: r.ID, Queue: queue, Virtual: place}})
}

// Rerun runs a failed task again, under the configuration given, in a transaction
// of the caller's that holds the row's lock. It returns the queue to notify.
func (s *Service) Rerun(ctx context.Context, tx pgx.Tx, r *task.Row, kind *config.Kind) (queue string, err error) {
	return s.Rules().rerun(ctx, tx, r, kind.Hash(), kind.Provider)
}

// reopens says whether a duplicate of r runs it again: it failed by the
// system's fault, and the kind allows another run.
func reopens(kind *config.Kind, r *task.Row) bool {
	return r.State == api.Failed && !r.Permanent() && kind.ReopenFailed && int(r.Run) < kind.MaxRuns &&
		r.Dedupe != api.DedupeOpen && r.PayloadPurgedAt == nil
}

// reopen runs a failed task again for a duplicate, under the newest
// configuration. The loser of two reopens gets the task as the winner left it.
func (s *Service) reopen(ctx context.Context, seen *task.Row, kind *config.Kind) (row *task.Row, reopened bool, err error) {
	a := Act{Tenant: seen.Tenant, ID: seen.ID}
	row, err = s.act(ctx, a, failpoint.ReopenBeforeCommit, func(ctx context.Context, tx pgx.Tx, r *task.Row) ([]string, error) {
		reopened = false
		if r.Epoch != seen.Epoch || !reopens(kind, r) {
			return nil, nil
		}
		queue, err := s.Rules().rerun(ctx, tx, r, kind.Hash(), kind.Provider)
		if err != nil {
			return nil, err
		}
		reopened = true
		return []string{queue}, nil
	})
	return row, reopened, err
}

// act runs one act on one locked task in one transaction and returns the task
// as it stands after the commit. If the process dies before the commit nothing
// happened; after it, the act is done whether or not anyone hears the answer,
// and asking again says so.
func (s *Service) act(ctx context.Context, a Act, point failpoint.Point,
	f func(ctx context.Context, tx pgx.Tx, r *task.Row) (queues []string, err error),
) (*task.Row, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
	defer cancel()
	var queues []string
	var settled *task.Row
	err := Again(ctx, func() (err error) {
		queues, settled, err = s.actOnce(ctx, a, point, f)
		return err
	})
	if err != nil {
		return nil, s.failed(err)
	}
	if err := failpoint.Hit(failpoint.ActAfterCommit); err != nil {
		return nil, s.failed(err)
	}
	s.Notifier.Queues(queues...)
	if settled != nil {
		outbox.CountSettled(settled.Kind, settled.State)
	}
	s.Notifier.Settled(a.ID) // a hint too many costs one look
	row, err := store.Task(ctx, s.Pool, a.Tenant, a.ID)
	if err != nil {
		return nil, s.failed(err)
	}
	if row == nil {
		return nil, notFound()
	}
	return row, nil
}

func (s *Service) actOnce(ctx context.Context, a Act, point failpoint.Point,
	f func(ctx context.Context, tx pgx.Tx, r *task.Row) (queues []string, err error),
) (queues []string, settled *task.Row, err error) {
	err = pgx.BeginTxFunc(ctx, s.Pool, store.ReadCommitted, func(tx pgx.Tx) error {
		rows, err := store.LockTasks(ctx, tx, []task.ID{a.ID}, false)
		if err != nil {
			return err
		}
		if len(rows) == 0 || (a.Tenant != "" && rows[0].Tenant != a.Tenant) {
			return notFound()
		}
		was := rows[0].State
		if queues, err = f(ctx, tx, rows[0]); err != nil {
			return err
		}
		if rows[0].State != was && rows[0].State.Settled() {
			settled = rows[0]
		}
		return failpoint.Hit(point)
	})
	return queues, settled, err
}

// audit notes an act; from is the state it found the task in.
func (s *Service) audit(ctx context.Context, tx pgx.Tx, a Act, r *task.Row, action string, from api.State) error {
	details := map[string]string{"from": string(from)}
	if a.Epoch != nil {
		details["epoch"] = strconv.FormatInt(*a.Epoch, 10)
	}
	if a.said != "" {
		details["said"] = a.said
	}
	return store.InsertAudit(ctx, tx, store.AuditEntry{
		Tenant: r.Tenant, Actor: a.Actor, Action: action, TargetType: "task", TargetID: r.ID.String(),
		Reason: a.Reason, RequestID: a.RequestID, Details: details,
	})
}

// tooLate refuses to cancel a task that has ended, and says what is known of the
// money.
func tooLate(r *task.Row) error {
	billed := map[api.Billed]string{
		api.BilledYes: "its calls were billed", api.BilledUnknown: "whether all its calls were billed is not known",
	}[r.Usage.Billed]
	if billed == "" {
		billed = "nothing was billed"
	}
	return conflict(r, "a %s task cannot be cancelled; %s", r.State, billed).WithFix("It is too late: read the task for what it came to.")
}

func notFound() error { return api.Errorf(api.CodeNotFound, "there is no such task") }

func conflict(r *task.Row, format string, args ...any) *api.Error {
	e := api.Errorf(api.CodeConflict, format, args...)
	e.TaskID = r.ID.String()
	return e
}

// seen refuses an act decided on another state of the task than it has, but for
// the same act that was done to that state before: done then says that it
// stands. said is what the act brings with it.
func (a Act) seen(ctx context.Context, tx pgx.Tx, r *task.Row, action, said string) (done bool, err error) {
	if a.Epoch == nil {
		return false, api.Errorf(api.CodeInvalidField, "epoch is missing").WithField("epoch").WithFix("Send the epoch of the task you read, so that nothing is decided on an old state.")
	}
	if *a.Epoch == r.Epoch {
		return false, nil
	}
	was, details, err := store.ActDone(ctx, tx, "task", r.ID.String(), *a.Epoch)
	if err != nil {
		return false, err
	}
	if was == action && details["said"] == said {
		return true, nil
	}
	return false, moved(a, r)
}

func moved(a Act, r *task.Row) error {
	return conflict(r, "the task is at epoch %d, the act is for %d", r.Epoch, *a.Epoch)
}

// effectError tells a person which effect keeps a task from succeeding.
func effectError(r *task.Row, err error) error {
	var e *outbox.EffectError
	if !errors.As(err, &e) {
		return err
	}
	return conflict(r, "effect %s still fails: %s", e.Name, e.Message).WithFix("Mend what the message names, then resolve again.")
}
