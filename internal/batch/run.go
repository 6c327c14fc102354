package batch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/failpoint"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
)

// Bounds of a round.
const (
	mostBatches = 100              // looked at in one round; the longest untouched ones come first
	stepTimeout = 20 * time.Second // of one transaction
	tidyEvery   = 5 * time.Second
	tidyLines   = 5000 // removed of dropped batches in one transaction
)

// Run takes steps for open batches until ctx ends. Any number of processes may
// run it: each step is taken under the lock of its batch.
func (s *Service) Run(ctx context.Context) error {
	tick := time.NewTicker(s.Opts.Every)
	defer tick.Stop()
	var tidied time.Time
	for {
		busy, err := s.Round(ctx)
		if err == nil && time.Since(tidied) > tidyEvery {
			tidied = time.Now()
			err = s.tidy(ctx)
		}
		if err != nil && ctx.Err() == nil {
			s.Log.Warn("batches not moved on", "error", err)
		}
		if ctx.Err() != nil {
			return nil
		}
		if busy && err == nil {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-s.kick:
		}
	}
}

// Round takes one step for each open batch. busy says that there is more to do
// at once.
func (s *Service) Round(ctx context.Context) (busy bool, err error) {
	ids, err := store.OpenBatches(ctx, s.Pool, mostBatches)
	if err != nil {
		return false, err
	}
	var errs []error
	for _, id := range ids {
		more, err := s.step(ctx, id)
		busy = busy || more
		if err != nil && !store.Retryable(err) {
			errs = append(errs, fmt.Errorf("batch %s: %w", id, err))
		}
		if ctx.Err() != nil {
			return false, nil
		}
	}
	return busy, errors.Join(errs...)
}

// step collects what has settled, then moves the batch on.
func (s *Service) step(ctx context.Context, id task.ID) (busy bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*stepTimeout)
	defer cancel()
	collected, err := s.collect(ctx, id)
	if err != nil {
		return false, err
	}
	moved, asking, err := s.advance(ctx, id)
	if err != nil {
		return false, err
	}
	if asking {
		if err := s.cancelTasks(ctx, id); err != nil {
			return false, err
		}
	}
	return collected || moved, nil
}

// locked runs f under the lock of a batch that is running or being cancelled,
// unless another process holds the lock.
func (s *Service) locked(ctx context.Context, id task.ID, f func(ctx context.Context, tx pgx.Tx, b *store.Batch) error) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	return pgx.BeginTxFunc(ctx, s.Pool, store.ReadCommitted, func(tx pgx.Tx) error {
		b, err := store.LockBatch(ctx, tx, id, true)
		if err != nil || b == nil {
			return err
		}
		if b.State != api.BatchRunning && b.State != api.BatchCancelling {
			return nil
		}
		return f(ctx, tx, b)
	})
}

// collect is one transaction: it notes which lines have settled, each once and
// in a place of its own. If the process dies before the commit they are found
// again.
func (s *Service) collect(ctx context.Context, id task.ID) (full bool, err error) {
	err = s.locked(ctx, id, func(ctx context.Context, tx pgx.Tx, b *store.Batch) error {
		n, err := store.CollectLines(ctx, tx, b, s.Opts.Chunk)
		if err != nil || n == 0 {
			return err
		}
		full = n == s.Opts.Chunk
		b.Finished += int32(n)
		if err := store.MoveBatch(ctx, tx, b); err != nil {
			return err
		}
		return failpoint.Hit(failpoint.BatchCollectBeforeCommit)
	})
	return full && err == nil, err
}

// advance is one transaction: the next lines are handed over; or, once the batch
// is cancelled or past its deadline, those that wait are closed; or the batch
// ends. asking says that tasks of a cancelled batch are to be cancelled.
func (s *Service) advance(ctx context.Context, id task.ID) (moved, asking bool, err error) {
	var queues []string
	err = s.locked(ctx, id, func(ctx context.Context, tx pgx.Tx, b *store.Batch) (err error) {
		before := *b
		switch {
		case b.State == api.BatchCancelling:
			err = s.closeLines(ctx, tx, b, lineCancelled)
			asking = true
		case !b.Deadline.After(b.Now):
			err = s.closeLines(ctx, tx, b, lineExpired)
		case b.Released < b.LastLine:
			queues, err = s.release(ctx, tx, b)
		}
		if err != nil {
			return err
		}
		if moved = b.Released != before.Released || b.Finished != before.Finished; moved {
			return store.MoveBatch(ctx, tx, b)
		}
		if b.Released < b.LastLine {
			return nil
		}
		return s.end(ctx, tx, b)
	})
	if err != nil {
		return false, false, err
	}
	if err := failpoint.Hit(failpoint.BatchReleaseAfterCommit); err != nil {
		return false, false, err
	}
	s.Notifier.Queues(queues...)
	return moved, asking, nil
}

// closeLines settles a chunk of the lines that wait, and those that only met a
// task of someone else's, which goes its way.
func (s *Service) closeLines(ctx context.Context, tx pgx.Tx, b *store.Batch, state string) error {
	n, err := store.CloseLines(ctx, tx, b, state, s.Opts.Chunk)
	if err != nil {
		return err
	}
	if b.Finished += int32(n); n == s.Opts.Chunk {
		return nil
	}
	b.Released = b.LastLine
	if n, err = store.DetachLines(ctx, tx, b, state, s.Opts.Chunk); err != nil {
		return err
	}
	b.Finished += int32(n)
	return nil
}

// tidy drops what was given up or is past its retention, and removes a bit of
// what was dropped.
func (s *Service) tidy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	if err := store.DropIdleBatches(ctx, s.Pool, s.Opts.Idle); err != nil {
		return err
	}
	for {
		var n int64
		err := pgx.BeginTxFunc(ctx, s.Pool, store.ReadCommitted, func(tx pgx.Tx) (err error) {
			n, err = store.PurgeDropped(ctx, tx, tidyLines)
			return err
		})
		if err != nil || n < tidyLines {
			return err
		}
	}
}
