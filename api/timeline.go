package api

import "time"

// Timeline is everything that is known of one task, oldest first: who asked for
// it, what was called, what it led to, who acted on it.
type Timeline struct {
	TaskID     string     `json:"task_id"`
	Kind       string     `json:"kind"`
	Key        string     `json:"key,omitempty"`
	State      State      `json:"state"`
	Run        int        `json:"run"`
	Provider   string     `json:"provider"`
	TraceID    string     `json:"trace_id,omitempty"`
	InputHash  string     `json:"input_hash"`
	CreatedAt  time.Time  `json:"created_at"`
	RunAt      time.Time  `json:"run_at"`
	Deadline   time.Time  `json:"deadline"`
	FinishedAt *time.Time `json:"finished_at,omitempty"`
	Error      *TaskError `json:"error,omitempty"`
	// Duplicates folded onto the task and submits Refused for another payload, all
	// of them; among Events stand the first twenty of each.
	Duplicates int64   `json:"duplicates"`
	Refused    int64   `json:"refused"`
	Events     []Event `json:"events"`
}

// EventWhat says what an event of a timeline is.
type EventWhat string

// What happens to a task.
const (
	EventSubmitted EventWhat = "submitted" // the submit that made it
	EventFolded    EventWhat = "folded"    // a duplicate that was answered with it
	EventReopened  EventWhat = "reopened"  // a duplicate that ran it again
	EventRefused   EventWhat = "refused"   // a submit of its key with another payload
	EventAttempt   EventWhat = "attempt"   // one try, with its call
	EventGate      EventWhat = "gate"      // its provider's or a destination's gate moved while it was there
	EventEffect    EventWhat = "effect"    // a side effect came into being
	EventDelivery  EventWhat = "delivery"  // one try at an effect
	EventAct       EventWhat = "act"       // an operator's act
	EventSettled   EventWhat = "settled"   // it reached the state it is in
)

// EventWhats lists them all.
var EventWhats = []EventWhat{
	EventSubmitted, EventFolded, EventReopened, EventRefused, EventAttempt, EventGate, EventEffect, EventDelivery, EventAct, EventSettled,
}

// Event is one of a timeline. Which fields are set depends on What.
type Event struct {
	At   time.Time `json:"at"`
	What EventWhat `json:"what" enum:"submitted,folded,reopened,refused,attempt,gate,effect,delivery,act,settled"`

	// Of submits. Client tells callers' addresses apart and does not name them.
	RequestID string `json:"request_id,omitempty"`
	Client    string `json:"client,omitempty"`
	UserAgent string `json:"user_agent,omitempty"`
	TraceID   string `json:"trace_id,omitempty"`
	Actor     string `json:"actor,omitempty"` // of submits and acts

	// Action and Reason of acts and gates; Target names the provider or destination.
	Action string `json:"action,omitempty"`
	Reason string `json:"reason,omitempty"`
	Target string `json:"target,omitempty"`

	Attempt  *Attempt  `json:"attempt,omitempty"`
	QueueMS  int64     `json:"queue_ms,omitempty"` // of an attempt: from due, or the end of the one before, to the claim
	Effect   *Effect   `json:"effect,omitempty"`
	Delivery *Delivery `json:"delivery,omitempty"` // with Effect's name in Target
	State    State     `json:"state,omitempty"`
}

// Diagnosis is what a task's timeline, and other tasks around it, look like.
type Diagnosis struct {
	TaskID string `json:"task_id"`
	Kind   string `json:"kind"`
	Key    string `json:"key,omitempty"`
	// Findings are the rows of the diagnosis table that fit, the likeliest first;
	// where none does, CannotTell says so.
	Findings   []Finding   `json:"findings"`
	CannotTell string      `json:"cannot_tell,omitempty"`
	Neighbours []Neighbour `json:"neighbours,omitempty"`
}

// Finding is one row of the table (docs/diagnosis.md) with what speaks for it.
type Finding struct {
	Row      string   `json:"row"`
	Title    string   `json:"title"`
	Evidence []string `json:"evidence"`
	Do       string   `json:"do"`
}

// Neighbour is another task of the kind within an hour, with the same input or
// in the same trace.
type Neighbour struct {
	TaskID    string    `json:"task_id"`
	Key       string    `json:"key,omitempty"`
	State     State     `json:"state"`
	CreatedAt time.Time `json:"created_at"`
	SameInput bool      `json:"same_input"`
	SameTrace bool      `json:"same_trace"`
	Client    string    `json:"client,omitempty"`
	UserAgent string    `json:"user_agent,omitempty"`
}
