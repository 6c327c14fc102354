package upkeep

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/internal/failpoint"
	"github.com/onefold-dev/onefold/internal/kinds"
	"github.com/onefold-dev/onefold/internal/store"
)

const (
	// purgeEvery is how long a purge that found nothing left waits.
	purgeEvery = time.Second
	// purgePause is the least rest between two batches of a backlog; it rests at
	// least as long as the batch took, so that half its time belongs to others.
	purgePause = 20 * time.Millisecond
	// spanDays is how far back the longest spans of duplicates are kept.
	spanDays = 90
	// secretDays is how far back is kept how often a source's secrets verified: what judges a rotation looks at a day.
	secretDays = 90
	// rarely is how many rounds pass between two looks at what grows slowly.
	rarely = 30
)

// Purger deletes what is past its retention: payloads first, then tasks, of
// which a tombstone stays, then the tombstones. It works in small batches on a
// connection of its own, and skips whatever others hold.
type Purger struct {
	Connect func(ctx context.Context) (*pgx.Conn, error)
	Kinds   *kinds.Book
	Log     *slog.Logger
	// Batch bounds the rows of one transaction. Default 200.
	Batch int

	conn  *pgx.Conn
	round int
}

// Run purges until ctx ends. Any number of processes may run it: each batch is
// taken by one of them.
func (p *Purger) Run(ctx context.Context) {
	defer p.close()
	wait := purgeEvery
	for {
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		start := time.Now()
		more, err := p.Round(ctx)
		wait = purgeEvery
		switch {
		case err != nil && ctx.Err() == nil:
			p.Log.Warn("purge round not done", "error", err)
		case more:
			wait = max(purgePause, time.Since(start))
		}
	}
}

// Round takes one batch of everything. It says whether there may be more.
//
// Each batch is one transaction: if the process dies before its commit all of it
// is still there, after it none, and nobody waits for it meanwhile but who wants
// just these rows, which are past their time.
func (p *Purger) Round(ctx context.Context) (more bool, err error) {
	limit, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if p.conn == nil || p.conn.IsClosed() {
		if p.conn, err = p.Connect(limit); err != nil {
			p.conn = nil
			return false, fmt.Errorf("connect for the purge: %w", err)
		}
	}
	if p.Batch <= 0 {
		p.Batch = most
	}
	steps := []func(context.Context, pgx.Tx) (int, error){p.payloads, p.tasks, p.tombstones}
	if p.round++; p.round%rarely == 1 {
		steps = append(steps, p.rest)
	}
	var errs []error
	for _, step := range steps {
		n := 0
		err := electedOn(limit, p.conn, lockPurge, func(tx pgx.Tx) (err error) {
			n, err = step(limit, tx)
			return err
		})
		errs = append(errs, err)
		more = more || n >= p.Batch
	}
	if err = errors.Join(errs...); err != nil && (p.conn.IsClosed() || store.Away(err)) {
		p.close()
	}
	return more, err
}

// payloads goes before tasks: what a task holds is often wanted gone long before
// its key may be forgotten.
func (p *Purger) payloads(ctx context.Context, tx pgx.Tx) (int, error) {
	cfg := p.Kinds.Config()
	seen, err := store.KindsSeen(ctx, tx)
	if err != nil {
		return 0, err
	}
	var names []string
	var keep []time.Duration
	for _, name := range seen {
		payload, all := cfg.Retention.Payload, cfg.Retention.Tasks
		if k := cfg.Kinds[name]; k != nil {
			payload, all = cfg.PayloadRetentionOf(k), cfg.RetentionOf(k)
		}
		if payload > 0 && payload < all {
			names, keep = append(names, name), append(keep, payload)
		}
	}
	if len(names) == 0 {
		return 0, nil
	}
	ids, err := store.PayloadsDue(ctx, tx, names, keep, p.Batch)
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	if err := store.PurgePayloads(ctx, tx, ids); err != nil {
		return 0, err
	}
	return len(ids), failpoint.Hit(failpoint.PurgePayloadBeforeCommit)
}

func (p *Purger) tasks(ctx context.Context, tx pgx.Tx) (int, error) {
	ids, err := store.Expired(ctx, tx, p.Batch)
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	if err := store.RetireExpired(ctx, tx, ids); err != nil {
		return 0, err
	}
	return len(ids), failpoint.Hit(failpoint.PurgeBeforeCommit)
}

func (p *Purger) tombstones(ctx context.Context, tx pgx.Tx) (int, error) {
	n, err := store.ForgetTombstones(ctx, tx, p.Kinds.Config().Retention.Tombstones, p.Batch)
	return int(n), err
}

func (p *Purger) rest(ctx context.Context, tx pgx.Tx) (int, error) {
	if err := store.ForgetDuplicateSpans(ctx, tx, spanDays); err != nil {
		return 0, err
	}
	if err := store.ForgetSecretUses(ctx, tx, secretDays); err != nil {
		return 0, err
	}
	return 0, store.ForgetBudgets(ctx, tx, p.Kinds.Config().Retention.Tasks, p.Batch)
}

func (p *Purger) close() {
	if p.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = p.conn.Close(ctx)
	p.conn = nil
}
