package upkeep

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/gate"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/telemetry"
)

// What one process reads from the database for all. Whoever sums them over
// instances counts nothing twice.
var (
	shown = telemetry.NewSnapshot()

	depth       = shown.Gauge("queue_depth", "Unfinished tasks: due (to be run now), scheduled (later), running.", "kind", "state")
	oldest      = shown.Gauge("queue_oldest_seconds", "Since the oldest task that is due was due.", "kind")
	review      = shown.Gauge("review_items", "What waits for a person, by how long it has waited: up to 15m, 1h, 1d, 1w, or older.", "type", "state", "age")
	unknown     = shown.Gauge("tasks_unknown", "Tasks whose outcome is unknown.")
	effects     = shown.Gauge("effects_open", "Effects that are not delivered yet.", "destination", "state")
	outboxOld   = shown.Gauge("outbox_oldest_seconds", "Since the oldest effect that waits was due.", "destination")
	gateState   = shown.Gauge("gate_state", "1 for the state that a gate is in.", "scope", "name", "state", "code")
	gateFails   = shown.Gauge("gate_consecutive_failures", "Failures in a row at a provider or destination.", "scope", "name")
	gateBehind  = shown.Gauge("gate_waiting", "Tasks or effects that wait behind a gate that is not open.", "scope", "name")
	workers     = shown.Gauge("workers", "Incarnations: alive, or lost within the last hour (the lease ran out, nobody signed off).", "state")
	rotated     = shown.Gauge("rotation_age_seconds", "How long a source's newest secret has been there beside older ones: since it was valid, else since it first verified a delivery, else since this process began.", "source")
	rotation    = shown.Gauge("rotation_coverage_ratio", "The part of a source's deliveries of the last 24 hours that its newest secret verified; 1 when the old one can go.", "source")
	xminAge     = shown.Gauge("postgres_oldest_xmin_transactions", "Transactions since the oldest snapshot that keeps vacuum from its work.")
	xminSeconds = shown.Gauge("postgres_oldest_transaction_seconds", "How long the oldest transaction has been open, as far as the role may see.")
	deadRows    = shown.Gauge("postgres_dead_rows", "Dead rows of a table of ours, as Postgres counts them.", "table")
	liveRows    = shown.Gauge("postgres_live_rows", "Live rows of a table of ours, as Postgres counts them.", "table")
	repeats     = shown.Histogram("key_repeats", "Duplicates a key, of keys that were repeated at all and are kept.")
	readAt      = shown.Gauge("gauges_read_timestamp_seconds", "When these gauges were read.")
	readFor     = shown.Gauge("gauges_read_seconds", "How long reading them took.")
)

// GaugesEvery is how often the gauges are read; when that takes long, less often, so that
// it is never more than a twentieth of one connection's time.
const (
	GaugesEvery  = 10 * time.Second
	gaugesShare  = 20
	gaugesLimit  = 25 * time.Second
	gaugesName   = "gauges"
	rotationOver = 24 * time.Hour
)

// RunGauges reads the gauges until ctx ends, while this process is the one that does.
func (u *Upkeep) RunGauges(ctx context.Context, db store.DBTX) {
	defer shown.Show()
	wait := time.Duration(0)
	for {
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
		wait = max(GaugesEvery, gaugesShare*u.showGauges(ctx, db))
	}
}

// showGauges reads the gauges once and says how long that took.
func (u *Upkeep) showGauges(ctx context.Context, db store.DBTX) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, gaugesLimit)
	defer cancel()
	began := u.Clock()
	mine, err := store.Elect(ctx, db, gaugesName, u.process, gaugesShare*gaugesLimit)
	if err != nil || !mine {
		if err != nil && ctx.Err() == nil {
			u.Log.Debug("gauges not read", "error", err)
		}
		shown.Show()
		return 0
	}
	values, err := u.readGauges(ctx, db)
	took := u.Clock() - began
	if err != nil {
		if ctx.Err() == nil {
			u.Log.Warn("gauges not read", "error", err)
		}
		shown.Show()
		return took
	}
	shown.Show(append(values, readAt.Is(float64(time.Now().UnixMilli())/1e3), readFor.Is(took.Seconds()))...)
	if _, err := store.Elect(ctx, db, gaugesName, u.process, 3*max(GaugesEvery, gaugesShare*took)); err != nil {
		u.Log.Debug("gauges' reader not renewed", "error", err)
	}
	return took
}

func (u *Upkeep) readGauges(ctx context.Context, db store.DBTX) (all []prometheus.Metric, err error) {
	for _, read := range []func(context.Context, store.DBTX) ([]prometheus.Metric, error){
		readQueues, readReview, readEffects, readGates, readWorkers, u.readRotation, readPostgres, readRepeats,
	} {
		values, err := read(ctx, db)
		if err != nil {
			return nil, err
		}
		all = append(all, values...)
	}
	return all, nil
}

func readQueues(ctx context.Context, db store.DBTX) (out []prometheus.Metric, err error) {
	depths, err := store.TaskDepths(ctx, db)
	for _, d := range depths {
		out = append(out, depth.Is(float64(d.Count), d.Kind, d.What))
		if d.What == "due" {
			out = append(out, oldest.Is(d.Oldest.Seconds(), d.Kind))
		}
	}
	return out, err
}

func readReview(ctx context.Context, db store.DBTX) (out []prometheus.Metric, err error) {
	ages, err := store.ReviewAges(ctx, db)
	n := 0.0
	for _, a := range ages {
		out = append(out, review.Is(float64(a.Count), a.What, a.State, a.Age))
		if a.What == "task" {
			n += float64(a.Count)
		}
	}
	return append(out, unknown.Is(n)), err
}

func readEffects(ctx context.Context, db store.DBTX) (out []prometheus.Metric, err error) {
	depths, err := store.EffectDepths(ctx, db)
	for _, d := range depths {
		out = append(out, effects.Is(float64(d.Count), d.Destination, d.State))
		if d.State == string(api.EffectWaiting) {
			out = append(out, outboxOld.Is(d.Oldest.Seconds(), d.Destination))
		}
	}
	return out, err
}

func readGates(ctx context.Context, db store.DBTX) (out []prometheus.Metric, err error) {
	gates, now, err := store.Gates(ctx, db)
	if err != nil {
		return nil, err
	}
	for _, g := range gates {
		w := gate.Wire(g, now)
		out = append(out, gateState.Is(1, g.Scope, g.Name, string(w.State), w.Code), gateFails.Is(float64(g.Failures), g.Scope, g.Name))
	}
	behind, err := store.WaitingBehindGates(ctx, db)
	for _, b := range behind {
		out = append(out, gateBehind.Is(float64(b.Count), b.Scope, b.Name))
	}
	return out, err
}

func readWorkers(ctx context.Context, db store.DBTX) ([]prometheus.Metric, error) {
	alive, lost, err := store.WorkerStates(ctx, db)
	return []prometheus.Metric{workers.Is(float64(alive), "alive"), workers.Is(float64(lost), "lost")}, err
}

func readPostgres(ctx context.Context, db store.DBTX) ([]prometheus.Metric, error) {
	h, err := store.ReadHealth(ctx, db)
	if err != nil {
		return nil, err
	}
	out := []prometheus.Metric{xminAge.Is(float64(h.XminAge)), xminSeconds.Is(h.XminFor.Seconds())}
	tables, err := store.DeadRows(ctx, db)
	for _, t := range tables {
		out = append(out, deadRows.Is(float64(t.Dead), t.Table), liveRows.Is(float64(t.Live), t.Table))
	}
	return out, err
}

func readRepeats(ctx context.Context, db store.DBTX) ([]prometheus.Metric, error) {
	r, err := store.KeyRepeats(ctx, db)
	if err != nil {
		return nil, err
	}
	upTo := map[float64]uint64{}
	for i, b := range store.RepeatBounds {
		upTo[b] = uint64(r.UpTo[i])
	}
	return []prometheus.Metric{repeats.Are(uint64(r.Keys), float64(r.Sum), upTo)}, nil
}
