package worker

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/internal/failpoint"
	"github.com/onefold-dev/onefold/internal/gate"
	"github.com/onefold-dev/onefold/internal/provider"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
)

// errFenced says that the attempt is no longer this worker's: it writes nothing.
var errFenced = errors.New("the attempt is another's")

// Bounds of what is asked of a provider beside the calls.
const (
	// stopFor bounds the asking that a job be stopped; it saves money and no more.
	stopFor = 10 * time.Second
	// checkFor bounds one status request.
	checkFor = 10 * time.Second
)

// send makes the attempt's call. Where the provider works in the background, the
// job it started is stored before it is waited for: after a crash the stored job
// is polled, and nothing is sent again.
func (w *Worker) send(a *attempt, p provider.Provider, r provider.Request) (resp *provider.Response, err error) {
	ctx, span := w.traceCall(a, r)
	defer func() { calledBack(span, resp, err) }()
	w.Retries.Called()
	a.credential = w.Gates.Fingerprint(gate.Provider(a.row.Provider))
	a.sent = time.Now()
	bg, ok := p.(provider.Poller)
	if !ok {
		return p.Call(ctx, r)
	}
	name, err := bg.Start(ctx, r)
	if err != nil {
		return nil, err
	}
	if err := failpoint.Hit(failpoint.JobStarted); err != nil {
		return nil, err
	}
	return w.wait(a, bg, r, name)
}

// wait stores a job on the attempt and polls it.
func (w *Worker) wait(a *attempt, bg provider.Poller, r provider.Request, name string) (*provider.Response, error) {
	if !w.store(a, name) {
		if !a.resumed {
			w.stopJob(bg, r, name) // nobody would ever wait for it
		}
		return nil, errFenced
	}
	a.job = name
	a.polling.Store(true)
	if !a.sent.IsZero() && r.Timeouts.Total > 0 {
		r.Timeouts.Total = max(r.Timeouts.Total-time.Since(a.sent), time.Millisecond)
	}
	return bg.Poll(a.ctx, r, name)
}

// store notes a job on the attempt's row, for as long as this incarnation lives.
// Stopping, cancelling and the deadline wait for it: the job runs already.
func (w *Worker) store(a *attempt, name string) bool {
	for {
		noted, err := w.jobs.Do(a.inc.Ctx, store.Job{Fence: a.fence, Name: name, Resumed: a.resumed})
		if err == nil {
			return noted
		}
		w.Log.Warn("background job not stored yet", "task_id", a.row.ID, "error", err)
		select {
		case <-a.inc.Ctx.Done():
			return false
		case <-time.After(endPause):
		}
	}
}

// noteJobs is one flush: jobs stand on the rows of their attempts.
//
// Before the commit the job runs and nobody knows its id: a crash makes the
// call's outcome unknown, as it is of any other call. After it whoever claims
// the task next polls the job.
func (w *Worker) noteJobs(ctx context.Context, jobs []store.Job) ([]bool, error) {
	if err := failpoint.Hit(failpoint.JobBeforeStore); err != nil {
		return nil, err
	}
	var noted map[task.ID]bool
	err := pgx.BeginTxFunc(ctx, w.Pool, store.ReadCommitted, func(tx pgx.Tx) (err error) {
		noted, err = store.NoteJobs(ctx, tx, jobs)
		return err
	})
	if err != nil {
		return nil, err
	}
	out := make([]bool, len(jobs))
	for i, j := range jobs {
		out[i] = noted[j.ID]
	}
	return out, failpoint.Hit(failpoint.JobAfterStore)
}

// earlier asks what became of the earlier calls of this run before anything is
// sent: it polls the job that one of them left behind, or makes a status
// request. decided says that the attempt ends with e and sends nothing.
func (w *Worker) earlier(a *attempt, p provider.Provider, r provider.Request) (e *ending, decided bool) {
	if a.row.TotalAttempts == 1 {
		return nil, false
	}
	if bg, ok := p.(provider.Poller); ok {
		live, err := store.LiveJobs(a.ctx, w.Pool, []task.ID{a.row.ID})
		if err != nil {
			return w.failed(a, notSent("job_not_read", "the background job could not be read")), true
		}
		if name := live[a.row.ID]; name != "" {
			a.resumed = true
			resp, err := w.wait(a, bg, r, name)
			if errors.Is(err, errFenced) {
				return nil, true
			}
			return w.answered(a, p, r, resp, err), true
		}
	}
	s, ok := p.(provider.StatusChecker)
	if !ok || !a.row.Unclear {
		return nil, false
	}
	r.Number-- // this attempt has sent nothing yet
	switch a.checked = w.status(a, s, r); a.checked.Known {
	case provider.Done:
		if a.checked.Response != nil {
			return w.succeeded(a, a.checked.Response), true
		}
		return w.failed(a, a.checked.Err), true
	case provider.Working:
		return w.failed(a, notSent("still_working", "the provider is still at work on an earlier call")), true
	case provider.NotDone:
		a.row.Unclear = false
	case provider.CannotTell:
		if a.kind.OnUnknown == onUnknownReview {
			return w.failed(a, a.checked.Err), true
		}
	}
	a.checked = provider.Status{}
	return nil, false
}

// check asks about a call of this attempt whose outcome is not known. What comes
// back stands in the place of pe.
func (w *Worker) check(a *attempt, p provider.Provider, r provider.Request, pe *provider.Error) (*provider.Response, *provider.Error) {
	s, ok := p.(provider.StatusChecker)
	cause := context.Cause(a.ctx)
	if !ok || pe.Class != provider.Unknown || errors.Is(cause, errReleased) || errors.Is(cause, errCancelled) || a.inc.Ctx.Err() != nil {
		return nil, pe
	}
	a.checked = w.status(a, s, r)
	switch {
	case a.checked.Known == provider.Done && a.checked.Response != nil:
		return a.checked.Response, nil
	case a.checked.Known == provider.Done:
		pe = a.checked.Err
	case a.checked.Known == provider.NotDone:
		pe.Billed = provider.BilledNo
	}
	return nil, pe
}

func (w *Worker) status(a *attempt, s provider.StatusChecker, r provider.Request) provider.Status {
	ctx, cancel := context.WithTimeout(a.inc.Ctx, checkFor)
	defer cancel()
	st := s.Status(ctx, r)
	if st.Err == nil && st.Response == nil {
		st.Err = provider.New(provider.CodeStatusUnclear, "the provider cannot tell what became of an earlier call")
	}
	w.Log.Info("status checked", "task_id", a.row.ID, "known", string(st.Known))
	return st
}

// byCheck puts what a status check said into what the domain judges.
func (a *attempt) byCheck(e *task.Ended) {
	switch a.checked.Known {
	case provider.NotDone:
		e.Class = task.NotDone
	case provider.Working:
		e.Class, e.RetryAfter = task.Working, a.checked.After
	}
}

// stopUnwanted stops a job whose result nobody wants any more. It comes after
// the task's end is written: no promise rests on it.
func (w *Worker) stopUnwanted(a *attempt) {
	cause := context.Cause(a.ctx)
	if a.job == "" || !errors.Is(cause, errCancelled) && !errors.Is(cause, errDeadline) {
		return
	}
	if bg, ok := w.Providers[a.row.Provider].(provider.Poller); ok {
		w.stopJob(bg, w.request(a), a.job)
	}
}

func (w *Worker) stopJob(bg provider.Poller, r provider.Request, name string) {
	ctx, cancel := context.WithTimeout(context.Background(), stopFor)
	defer cancel()
	if err := bg.Stop(ctx, r, name); err != nil {
		w.Log.Warn("background job not stopped", "task_id", r.TaskID, "error", err)
	}
}
