package submit

import (
	"errors"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/task"
	"github.com/onefold-dev/onefold/internal/telemetry"
)

// What submits come to. Each submit that got as far as its key is counted once in
// submits_total, and in at most one of hit, conflict, mismatch, created and reopened.
var (
	submitsTotal   = telemetry.Counter("submits_total", "Submits that were well-formed, whatever they came to.", "kind", "source")
	createdTotal   = telemetry.Counter("tasks_created_total", "Submits that made a task.", "kind")
	reopenedTotal  = telemetry.Counter("tasks_reopened_total", "Duplicates that ran a failed task again.", "kind")
	hitTotal       = telemetry.Counter("idempotency_hit_total", "Duplicates answered from a task that had settled.", "kind")
	conflictTotal  = telemetry.Counter("idempotency_inflight_conflict_total", "Duplicates folded onto a task that was not done: pending, running or unknown.", "kind")
	mismatchTotal  = telemetry.Counter("idempotency_mismatch_total", "Submits refused because their key came before with another payload.", "kind")
	refusedTotal   = telemetry.Counter("submits_refused_total", "Submits refused for what the system is like now: held, or the database away.", "kind", "code")
	discardedTotal = telemetry.Counter("duplicates_discarded_total", "Submits that made no work: hits, in-flight folds and mismatches.", "kind", "source")
	savedCalls     = telemetry.Counter("saved_calls_total", "Calls that duplicates would have cost: hits on a result that is stored.", "kind")
	savedTokens    = telemetry.Counter("saved_tokens_total", "Tokens of those calls.", "kind", "direction")
)

const (
	sourceAPI       = "api"
	directionInput  = "input"
	directionOutput = "output"
)

// count counts what a submit came to.
func (r *Request) count(kind string, a Answer, err error) {
	if r.blind {
		return
	}
	source := r.Source
	if source == "" {
		source = sourceAPI
	}
	submitsTotal.WithLabelValues(kind, source).Inc()
	var e *api.Error
	switch {
	case errors.As(err, &e) && e.Code == api.CodeKeyReused:
		mismatchTotal.WithLabelValues(kind).Inc()
	case errors.As(err, &e):
		refusedTotal.WithLabelValues(kind, string(e.Code)).Inc()
		return
	case err != nil:
		refusedTotal.WithLabelValues(kind, string(api.CodeInternal)).Inc()
		return
	case a.Created:
		createdTotal.WithLabelValues(kind).Inc()
		return
	case a.Reopened:
		reopenedTotal.WithLabelValues(kind).Inc()
		return
	case a.Row.State.Settled() && a.Row.State != api.Unknown:
		hitTotal.WithLabelValues(kind).Inc()
		countSaved(a.Row)
	default:
		conflictTotal.WithLabelValues(kind).Inc()
	}
	discardedTotal.WithLabelValues(kind, source).Inc()
}

// countSaved counts what a hit on a stored result would have cost.
func countSaved(r *task.Row) {
	if r.State != api.Succeeded {
		return
	}
	savedCalls.WithLabelValues(r.Kind).Inc()
	savedTokens.WithLabelValues(r.Kind, directionInput).Add(float64(r.Usage.InputTokens))
	savedTokens.WithLabelValues(r.Kind, directionOutput).Add(float64(r.Usage.OutputTokens))
}
