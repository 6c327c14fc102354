// Package outbox decides what becomes of a task's side effects: they come into being with the outcome they belong to,
// leave through a sender of their type, and end where the answer and the destination's repeat rule say.
//
// [Outbox.Settle] is the first half: every transaction that moves a task into succeeded, failed, unknown or cancelled
// calls it. [Outbox.Work] is the second: mark (own transaction), send (no transaction), outcome (guarded by id, state,
// epoch and token).
package outbox
