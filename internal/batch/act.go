package batch

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/submit"
	"github.com/onefold-dev/onefold/internal/task"
)

// Act is what someone asks of a batch. An empty Tenant is an instance key's.
type Act struct {
	Tenant    string
	ID        task.ID
	Run       *int32
	Reason    string
	Actor     string
	RequestID string
}

// Cancel stops a batch: what waits is cancelled, calls under way are asked to
// end, and tasks that its lines only met go their way. One that is still being
// uploaded is dropped. Cancelling twice is no error; a batch that ended in
// another way answers conflict.
func (s *Service) Cancel(ctx context.Context, a Act) (*api.Batch, error) {
	return s.act(ctx, a, "cancel", func(ctx context.Context, tx pgx.Tx, b *store.Batch) (done bool, err error) {
		switch b.State {
		case api.BatchStaging:
			return true, store.DropBatch(ctx, tx, b.ID)
		case api.BatchRunning:
			b.State = api.BatchCancelling
			return true, store.MoveBatch(ctx, tx, b)
		case api.BatchCancelling, api.BatchCancelled:
			return false, nil
		}
		return false, api.Errorf(api.CodeConflict, "the batch has %s", word(b.State))
	})
}

// Retry runs the failed and expired lines of a batch that has ended again, and
// no others, with a fresh deadline.
func (s *Service) Retry(ctx context.Context, a Act) (*api.Batch, error) {
	return s.act(ctx, a, "retry", func(ctx context.Context, tx pgx.Tx, b *store.Batch) (done bool, err error) {
		switch {
		case a.Run == nil:
			return false, api.Errorf(api.CodeInvalidField, "run is missing").WithField("run").
				WithFix("Send the run of the batch you read, so that nothing is decided on an old state.")
		case *a.Run != b.Run:
			return false, api.Errorf(api.CodeConflict, "the batch is at run %d, the act is for %d", b.Run, *a.Run)
		case !b.State.Ended():
			return false, api.Errorf(api.CodeConflict, "the batch is %s", b.State).WithFix("Wait until it has ended.")
		}
		some, err := store.HasLines(ctx, tx, b.ID, lineFailed, lineExpired)
		if err != nil {
			return false, err
		}
		if !some {
			return false, api.Errorf(api.CodeConflict, "no line of the batch has failed or expired").
				WithFix("Invalid lines have to be corrected and sent in a file of their own; unknown ones are decided with resolve.")
		}
		return true, store.RerunBatch(ctx, tx, b.ID)
	})
}

// word says how a batch ended.
func word(s api.BatchState) string {
	if s == api.BatchCancelled {
		return "been cancelled"
	}
	return string(s)
}

// act runs one act on one locked batch in one transaction and returns the batch
// as it stands after the commit.
func (s *Service) act(ctx context.Context, a Act, name string, f func(ctx context.Context, tx pgx.Tx, b *store.Batch) (bool, error)) (*api.Batch, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stepTimeout)
	defer cancel()
	var after *store.Batch
	err := pgx.BeginTxFunc(ctx, s.Pool, store.ReadCommitted, func(tx pgx.Tx) error {
		b, err := store.LockBatch(ctx, tx, a.ID, false)
		if err != nil {
			return err
		}
		if b == nil || b.State == batchDropped || a.Tenant != "" && a.Tenant != b.Tenant || past(b) {
			return notFound()
		}
		done, err := f(ctx, tx, b)
		if err != nil {
			return err
		}
		if after, err = store.LockBatch(ctx, tx, a.ID, false); err != nil || !done {
			return err
		}
		return store.InsertAudit(ctx, tx, store.AuditEntry{
			Tenant: b.Tenant, Actor: a.Actor, Action: name, TargetType: "batch", TargetID: b.ID.String(),
			Reason: a.Reason, RequestID: a.RequestID, Details: map[string]string{"key": b.Key},
		})
	})
	if err != nil {
		return nil, s.failed(err)
	}
	s.wake()
	if after.State == batchDropped {
		after.State = api.BatchCancelled
	}
	return s.Wire(ctx, after)
}

// batchDropped is the state of a batch that is out of sight.
const batchDropped api.BatchState = "dropped"

// cancelTasks asks for the tasks of a cancelled batch to be cancelled, those that
// it made. Asking twice changes nothing; one that has settled meanwhile is let be.
func (s *Service) cancelTasks(ctx context.Context, id task.ID) error {
	lines, err := store.UncancelledTasks(ctx, s.Pool, id, s.Opts.Chunk)
	if err != nil {
		return err
	}
	for _, l := range lines {
		_, err := s.Submit.Cancel(ctx, submit.Act{ID: l, Reason: "its batch was cancelled", Actor: "batch:" + id.String()})
		if err != nil && !settledMeanwhile(err) {
			return err
		}
	}
	return nil
}

func settledMeanwhile(err error) bool {
	code := asError(err).Code
	return code == api.CodeConflict || code == api.CodeNotFound
}
