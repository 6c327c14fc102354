// Package failpoint decides where a process can be killed, stalled or made to
// fail on purpose. In a normal build every point is an empty inlined call; with
// the build tag "failpoints" the environment says what happens at which point.
//
// A point stands at every line where a crash could break a promise. Its name is
// a constant here, so that a test can demand that each was reached.
package failpoint

import "errors"

// ErrInjected is what a point returns in mode "error".
var ErrInjected = errors.New("injected failure")

// Point is the name of one place in the code: package.step.
type Point string

// The points, in the order a task meets them.
const (
	SubmitBeforeInsert  Point = "submit.before_insert"
	SubmitAfterInsert   Point = "submit.after_insert"
	SubmitAfterCommit   Point = "submit.after_commit"
	SubmitBeforeNotify  Point = "submit.before_notify"
	ReopenBeforeCommit  Point = "submit.reopen_before_commit"
	CancelBeforeCommit  Point = "submit.cancel_before_commit"
	ResolveBeforeCommit Point = "submit.resolve_before_commit"
	EraseBeforeCommit   Point = "submit.erase_before_commit"
	ActAfterCommit      Point = "submit.act_after_commit"

	EffectActBeforeCommit Point = "review.act_before_commit"
	EffectActAfterCommit  Point = "review.act_after_commit"

	WorkFetched          Point = "worker.fetched"
	ClaimBeforeUpdate    Point = "worker.claim_before_update"
	ClaimBeforeCommit    Point = "worker.claim_before_commit"
	ClaimAfterCommit     Point = "worker.claim_after_commit"
	DispatchBeforeMark   Point = "worker.dispatch_before_mark"
	DispatchAfterMark    Point = "worker.dispatch_after_mark"
	JobStarted           Point = "worker.job_started"
	JobBeforeStore       Point = "worker.job_before_store"
	JobAfterStore        Point = "worker.job_after_store"
	CallAfter            Point = "worker.call_after"
	FinishBeforeUpdate   Point = "worker.finish_before_update"
	FinishAfterUpdate    Point = "worker.finish_after_update"
	FinishAfterEffects   Point = "worker.finish_after_effects"
	FinishAfterCommit    Point = "worker.finish_after_commit"
	RequeueBeforeCommit  Point = "worker.requeue_before_commit"
	HeartbeatBefore      Point = "worker.heartbeat_before"
	IncarnationRegisters Point = "worker.incarnation_registers"
	LateBeforeKeep       Point = "worker.late_before_keep"
	SignOffBefore        Point = "worker.sign_off_before"

	ReapBeforeCommit         Point = "upkeep.reap_before_commit"
	ReapAfterCommit          Point = "upkeep.reap_after_commit"
	SweepBeforeCommit        Point = "upkeep.sweep_before_commit"
	PurgeBeforeCommit        Point = "upkeep.purge_before_commit"
	PurgePayloadBeforeCommit Point = "upkeep.purge_payload_before_commit"
	ExpireBeforeCommit       Point = "upkeep.expire_before_commit"
	EffectsBeforeCommit      Point = "upkeep.effects_before_commit"
	UnparkBeforeCommit       Point = "upkeep.unpark_before_commit"

	ReconcileBeforeCommit Point = "upkeep.reconcile_before_commit"

	GateMoved           Point = "gate.moved"
	GateActBeforeCommit Point = "gate.act_before_commit"
	ShareBeforeCommit   Point = "gate.share_before_commit"

	BatchStageBeforeCommit   Point = "batch.stage_before_commit"
	BatchStartBeforeCommit   Point = "batch.start_before_commit"
	BatchStartAfterCommit    Point = "batch.start_after_commit"
	BatchReleaseBeforeCommit Point = "batch.release_before_commit"
	BatchReleaseAfterCommit  Point = "batch.release_after_commit"
	BatchCollectBeforeCommit Point = "batch.collect_before_commit"
	BatchEndBeforeCommit     Point = "batch.end_before_commit"

	SQLEffectAfter      Point = "outbox.sql_effect_after"
	EffectFetched       Point = "outbox.fetched"
	MarkBeforeCommit    Point = "outbox.mark_before_commit"
	MarkAfterCommit     Point = "outbox.mark_after_commit"
	SendBefore          Point = "outbox.send_before"
	SendAfter           Point = "outbox.send_after"
	OutcomeBeforeCommit Point = "outbox.outcome_before_commit"
	OutcomeAfterCommit  Point = "outbox.outcome_after_commit"
)

// Points lists every point there is.
var Points = []Point{
	SubmitBeforeInsert, SubmitAfterInsert, SubmitAfterCommit, SubmitBeforeNotify,
	ReopenBeforeCommit, CancelBeforeCommit, ResolveBeforeCommit, EraseBeforeCommit, ActAfterCommit, EffectActBeforeCommit, EffectActAfterCommit,
	WorkFetched, ClaimBeforeUpdate, ClaimBeforeCommit, ClaimAfterCommit,
	DispatchBeforeMark, DispatchAfterMark,
	JobStarted, JobBeforeStore, JobAfterStore, CallAfter,
	FinishBeforeUpdate, FinishAfterUpdate, FinishAfterEffects, FinishAfterCommit,
	RequeueBeforeCommit,
	HeartbeatBefore, IncarnationRegisters, LateBeforeKeep, SignOffBefore,
	ReapBeforeCommit, ReapAfterCommit, SweepBeforeCommit, PurgeBeforeCommit, PurgePayloadBeforeCommit, ExpireBeforeCommit, EffectsBeforeCommit, UnparkBeforeCommit, ReconcileBeforeCommit,
	GateMoved, GateActBeforeCommit, ShareBeforeCommit,
	BatchStageBeforeCommit, BatchStartBeforeCommit, BatchStartAfterCommit, BatchReleaseBeforeCommit,
	BatchReleaseAfterCommit, BatchCollectBeforeCommit, BatchEndBeforeCommit,
	SQLEffectAfter, EffectFetched, MarkBeforeCommit, MarkAfterCommit,
	SendBefore, SendAfter, OutcomeBeforeCommit, OutcomeAfterCommit,
}
