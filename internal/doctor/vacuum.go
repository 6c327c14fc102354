package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/onefold-dev/onefold/internal/store"
)

const (
	// deadWorth is how many dead rows of a table are worth a word, where they are
	// more than half of it.
	deadWorth = 10_000
	// openLong is how long a transaction may be open: vacuum stands still meanwhile.
	openLong = 10 * time.Minute
	// heldBack is how many transactions the oldest snapshot may be old.
	heldBack = 1_000_000
	// frozenWarn and frozenFail are ages of the oldest row, of two thousand million.
	frozenWarn, frozenFail = 1_000_000_000, 1_600_000_000
)

// Vacuum looks at what keeps vacuum from its work, and at what it has left.
func Vacuum(ctx context.Context, e Env) ([]Finding, error) {
	tables, err := store.DeadRows(ctx, e.DB)
	if err != nil {
		return nil, err
	}
	h, err := store.ReadHealth(ctx, e.DB)
	if err != nil {
		return nil, err
	}
	age, err := store.Frozen(ctx, e.DB)
	if err != nil {
		return nil, err
	}
	return judgeVacuum(tables, h, age), nil
}

func judgeVacuum(tables []store.TableRows, h store.Health, frozen int64) (out []Finding) {
	for _, t := range tables {
		if t.Dead > deadWorth && t.Dead > t.Live {
			out = append(out, Finding{
				Level: Warn, Subject: "table " + t.Table, Text: fmt.Sprintf("%d of its rows are dead, %d live", t.Dead, t.Live),
				Fix: "see what holds vacuum back; then VACUUM ANALYZE onefold." + t.Table,
			})
		}
	}
	if h.XminFor > openLong {
		out = append(out, Finding{
			Level: Warn, Subject: "the oldest transaction", Text: fmt.Sprintf("it has been open for %s: vacuum cannot take what died since", short(h.XminFor)),
			Fix: "find it in pg_stat_activity by xact_start and end it: pg_terminate_backend(pid)",
		})
	}
	if h.XminAge > heldBack {
		out = append(out, Finding{
			Level: Warn, Subject: "the oldest snapshot", Text: fmt.Sprintf("%d transactions began since: vacuum cannot take what they left", h.XminAge),
			Fix: "look for an open transaction, a stale replication slot (pg_replication_slots) or a prepared transaction (pg_prepared_xacts)",
		})
	}
	if frozen > frozenWarn {
		f := Finding{
			Level: Warn, Subject: "the oldest row", Text: fmt.Sprintf("%d transactions old; at 2,000,000,000 the server takes no more writes", frozen),
			Fix: "VACUUM FREEZE the tables with the greatest age(relfrozenxid)",
		}
		if frozen > frozenFail {
			f.Level = Fail
		}
		out = append(out, f)
	}
	if len(out) == 0 {
		out = []Finding{{Level: OK, Subject: "vacuum", Text: fmt.Sprintf("the oldest transaction is %s old, no table of %d is mostly dead rows", short(h.XminFor), len(tables))}}
	}
	return out
}
