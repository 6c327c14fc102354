package api

// State is where a task stands. Its legal moves are in internal/task.
type State string

// The states of a task.
const (
	Pending   State = "pending"
	Running   State = "running"
	Succeeded State = "succeeded"
	Failed    State = "failed"
	Unknown   State = "unknown"
	Cancelled State = "cancelled"
)

// States lists every task state, in the order a task meets them.
var States = []State{Pending, Running, Unknown, Failed, Succeeded, Cancelled}

// Final says whether the task can leave s only by a person's or a duplicate's act.
func (s State) Final() bool { return s == Succeeded || s == Failed || s == Cancelled }

// Settled says whether polling may stop: the task is final, or its outcome is
// unknown and waits for a person or a check.
func (s State) Settled() bool { return s.Final() || s == Unknown }

// Valid says whether s is one of the states.
func (s State) Valid() bool {
	for _, v := range States {
		if s == v {
			return true
		}
	}
	return false
}

// EffectState is where one side effect of a task stands.
type EffectState string

// The states of an effect.
const (
	EffectWaiting    EffectState = "waiting"
	EffectDelivering EffectState = "delivering"
	EffectDelivered  EffectState = "delivered"
	EffectHeld       EffectState = "held"
	EffectUnknown    EffectState = "unknown"
	EffectDead       EffectState = "dead"
	EffectDiscarded  EffectState = "discarded"
)

// Dedupe says how long a key keeps meaning the same task.
type Dedupe string

// The dedupe modes. The kind's configuration fixes which one holds.
const (
	DedupeKey    Dedupe = "key"    // while the task is kept
	DedupeOpen   Dedupe = "open"   // while the task is unfinished
	DedupeWindow Dedupe = "window" // within a window of the event's own time
	DedupeNone   Dedupe = "none"   // never: every submit is a new task
)

// Billed says whether the provider charged for a send.
type Billed string

// What is known about the money.
const (
	BilledYes     Billed = "yes"
	BilledNo      Billed = "no"
	BilledUnknown Billed = "unknown"
)
