package gate

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/internal/failpoint"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
)

// How often shares are looked at: idle, while somebody waits, and at most.
const (
	shareEvery   = time.Second
	shareWaiting = 200 * time.Millisecond
	sharePause   = 20 * time.Millisecond
	shareTimeout = 5 * time.Second
	turnEvery    = 5 * time.Second
)

// errBusy says that another process moves shares just now.
var errBusy = errors.New("shares are being moved")

// run moves this process's shares and corrects tokens until ctx ends.
func (l *limits) run(ctx context.Context) {
	var taking sync.WaitGroup
	defer taking.Wait()
	begun := map[*rate]bool{}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-l.kick:
		}
		_, rates := l.all()
		for _, r := range rates {
			if !begun[r] {
				begun[r] = true
				taking.Go(func() { r.run(ctx) })
			}
		}
		next := l.round(ctx)
		select { // kicks that come meanwhile are served by the next round
		case <-ctx.Done():
			return
		case <-time.After(sharePause):
		}
		timer.Reset(next)
	}
}

func (l *limits) round(ctx context.Context) (next time.Duration) {
	limit, cancel := context.WithTimeout(ctx, shareTimeout)
	defer cancel()
	slots, rates := l.all()
	for _, r := range rates {
		if err := r.correct(limit); err != nil && ctx.Err() == nil {
			l.b.Log.Warn("tokens not corrected", "name", r.name.Name, "error", err)
		}
	}
	if len(slots) == 0 {
		return shareEvery
	}
	inc := l.b.Incarnation()
	if inc == (task.ID{}) {
		return shareEvery
	}
	err := l.move(limit, inc)
	switch {
	case errors.Is(err, errBusy):
		return sharePause + time.Duration(l.b.Random()*float64(sharePause))
	case err != nil && ctx.Err() == nil:
		l.b.Log.Warn("shares not moved", "error", err)
	}
	for _, s := range slots {
		if s.waits() {
			return shareWaiting
		}
	}
	return shareEvery
}

// move is one transaction: this process's shares become what is fair, as far as
// the others' shares leave room. It gives up what it gives up before the commit
// and uses what it gains after it, so that all shares together never exceed the
// bound, wherever a process dies; those of the dead end with their leases.
func (l *limits) move(ctx context.Context, inc task.ID) error {
	var mine, moved []store.Share
	err := pgx.BeginTxFunc(ctx, l.b.Pool, store.ReadCommitted, func(tx pgx.Tx) error {
		free, err := store.LockShares(ctx, tx)
		if err != nil {
			return err
		}
		if !free {
			return errBusy
		}
		all, err := store.Shares(ctx, tx)
		if err != nil {
			return err
		}
		mine, moved = l.fair(inc, all)
		if err := store.PutShares(ctx, tx, moved); err != nil {
			return err
		}
		return failpoint.Hit(failpoint.ShareBeforeCommit)
	})
	if err != nil {
		return err
	}
	slots, _ := l.all()
	for _, s := range mine {
		if at := slots[s.GateKey]; at != nil {
			at.set(s.Slots)
		}
	}
	return nil
}

// fair is what this process may let in of each bound, and the rows to write for
// it: those that say something else now. A row holds room for what is under
// way, even where that is more.
func (l *limits) fair(inc task.ID, all []store.Share) (mine, moved []store.Share) {
	l.b.mu.RLock()
	turn := int(l.b.clock().Unix() / int64(turnEvery/time.Second))
	l.b.mu.RUnlock()
	slots, _ := l.all()
	for n, s := range slots {
		wanted, limit := s.demand()
		var wants []int
		others, place := 0, -1
		var before store.Share
		for _, o := range all {
			switch {
			case o.GateKey != n:
				continue
			case o.Incarnation == inc:
				place, before = len(wants), o
				wants = append(wants, wanted)
			default:
				wants = append(wants, o.Wanted)
				others += o.Slots
			}
		}
		if place < 0 {
			place, wants = len(wants), append(wants, wanted)
		}
		share := store.Share{GateKey: n, Incarnation: inc, Wanted: wanted}
		share.Slots = max(0, min(divide(limit, wants, turn)[place], limit-others))
		share.Used = s.lower(share.Slots)
		mine = append(mine, share)
		row := share
		row.Slots = max(share.Slots, share.Used)
		if before != row {
			moved = append(moved, row)
		}
	}
	slices.SortFunc(moved, func(a, b store.Share) int {
		return cmp.Or(strings.Compare(a.Scope, b.Scope), strings.Compare(a.Name, b.Name))
	})
	return mine, moved
}
