package api

import "time"

// ReviewWhat says what an item of the review queue is.
type ReviewWhat string

// What waits for a person.
const (
	ReviewTask   ReviewWhat = "task"
	ReviewEffect ReviewWhat = "effect"
)

// ReviewReason says why something is in the review queue.
type ReviewReason string

// The reasons.
const (
	ReviewUnknown   ReviewReason = "unknown"   // nobody knows whether it happened
	ReviewDead      ReviewReason = "dead"      // the receiver does not take the effect
	ReviewExhausted ReviewReason = "exhausted" // attempts, deadline or quota are used up
	ReviewOverdue   ReviewReason = "overdue"   // due for longer than the compensation window, and not begun
	ReviewStuck     ReviewReason = "stuck"     // woken again and again, and it does not move
)

// ReviewReasons lists every reason.
var ReviewReasons = []ReviewReason{ReviewUnknown, ReviewDead, ReviewExhausted, ReviewOverdue, ReviewStuck}

// ReviewAge is how long something has been in the review queue.
type ReviewAge string

// The ages: up to an hour, up to a day, longer.
const (
	AgeHour  ReviewAge = "1h"
	AgeDay   ReviewAge = "24h"
	AgeOlder ReviewAge = "older"
)

// ReviewAges lists every age, the youngest first.
var ReviewAges = []ReviewAge{AgeHour, AgeDay, AgeOlder}

// ReviewAction is what a person can do about an item.
type ReviewAction string

// The actions. The first four are those of Resolve.
const (
	ReviewSucceeded ReviewAction = "succeeded" // task: it happened, with this result
	ReviewFailed    ReviewAction = "failed"    // task: it did not and shall not
	ReviewRetry     ReviewAction = "retry"     // task: run it again
	ReviewFinish    ReviewAction = "finish"    // task: store the reply that is there, without another call
	ReviewDelivered ReviewAction = "delivered" // effect: it arrived
	ReviewRedeliver ReviewAction = "redeliver" // effect: send it again, under the same id
	ReviewDiscard   ReviewAction = "discard"   // effect: never send it; task: cancel it, or leave it failed for good
)

// ReviewItem is a task or an effect that waits for a person, with what is known
// of it. Epoch is to be sent back with whatever is decided.
type ReviewItem struct {
	What   ReviewWhat   `json:"what" enum:"task,effect"`
	ID     string       `json:"id"`
	TaskID string       `json:"task_id"`
	Tenant string       `json:"tenant"`
	Kind   string       `json:"kind"`
	Key    string       `json:"key,omitempty"`
	State  string       `json:"state"`
	Run    int          `json:"run"`
	Epoch  int64        `json:"epoch"`
	Reason ReviewReason `json:"reason" enum:"unknown,dead,exhausted,overdue,stuck"`
	// Since is when it came into the queue, Age how long ago that is.
	Since     time.Time  `json:"since"`
	Age       ReviewAge  `json:"age" enum:"1h,24h,older"`
	CreatedAt time.Time  `json:"created_at"`
	DueAt     time.Time  `json:"due_at"`
	Error     *TaskError `json:"error,omitempty"`

	// Of an effect.
	Name        string `json:"name,omitempty"`
	Type        string `json:"type,omitempty"`
	Destination string `json:"destination,omitempty"`
	Reference   string `json:"reference,omitempty"`
	// Behind counts the effects of its order that wait for it, up to a thousand.
	Behind int64 `json:"behind,omitempty"`
	// Unclear: a delivery of it may have arrived.
	Unclear bool `json:"unclear,omitempty"`

	Attempts int `json:"attempts"`
	// Compensations counts the fresh wake-ups it was given while it was due.
	Compensations int `json:"compensations,omitempty"`
	// LastAttempt is the evidence for a task, LastDelivery that for an effect. The
	// text of a cut reply is not in it; Parts and PartialBytes say what is kept.
	LastAttempt  *Attempt  `json:"last_attempt,omitempty"`
	LastDelivery *Delivery `json:"last_delivery,omitempty"`
	// Actions are what can be done about it.
	Actions []ReviewAction `json:"actions" enum:"succeeded,failed,retry,finish,delivered,redeliver,discard"`
}

// ReviewPage is a page of the review queue, the longest in it first. Count is
// there where it was asked for.
type ReviewPage struct {
	Items []ReviewItem `json:"items"`
	Next  *string      `json:"next"`
	Count *ReviewCount `json:"count,omitempty"`
}

// ReviewCount counts what a filter finds.
type ReviewCount struct {
	Total int64 `json:"total"`
	// AtLeast: there are more; beyond a hundred thousand nothing is counted.
	AtLeast bool               `json:"at_least,omitempty"`
	Ages    []ReviewCountByAge `json:"ages"`
}

// ReviewCountByAge is how many of one sort are of one age.
type ReviewCountByAge struct {
	What   ReviewWhat   `json:"what" enum:"task,effect"`
	Reason ReviewReason `json:"reason" enum:"unknown,dead,exhausted,overdue,stuck"`
	Age    ReviewAge    `json:"age" enum:"1h,24h,older"`
	Count  int64        `json:"count"`
}

// ReviewDetail is an item with all that is known of it: every attempt of a task
// or delivery of an effect, and what people did about it.
type ReviewDetail struct {
	ReviewItem
	TriedAttempts []Attempt    `json:"attempts_made,omitempty"`
	Deliveries    []Delivery   `json:"deliveries,omitempty"`
	Acts          []AuditEntry `json:"acts"`
}

// Delivery is one try at an effect. Outcome is empty while it is under way, and
// lost where nobody reported it.
type Delivery struct {
	Epoch     int64      `json:"epoch"` // names the delivery within its effect
	Number    int        `json:"number"`
	Outcome   string     `json:"outcome,omitempty"`
	Status    int        `json:"status,omitempty"` // the receiver's HTTP status
	Code      string     `json:"code,omitempty"`
	Message   string     `json:"message,omitempty"`
	StartedAt time.Time  `json:"started_at"`
	ClosedAt  *time.Time `json:"closed_at,omitempty"`
	TotalMS   int64      `json:"total_ms,omitempty"`
	// Answer is what the destination's check said of an earlier delivery.
	Answer       string `json:"answer,omitempty"`
	AnswerStatus int    `json:"answer_status,omitempty"`
	// LateOutcome is what its worker reported when the effect was no longer this
	// delivery's: it changed nothing.
	LateAt      *time.Time `json:"late_at,omitempty"`
	LateOutcome string     `json:"late_outcome,omitempty"`
	LateStatus  int        `json:"late_status,omitempty"`
	// Reply is the beginning of what the receiver said, at most 2 KiB of it;
	// ReplyBytes is how much is kept.
	Reply      string `json:"reply,omitempty"`
	ReplyBytes int    `json:"reply_bytes,omitempty"`
}

// AuditEntry is one act of a person: who did what, and why.
type AuditEntry struct {
	At     time.Time `json:"at"`
	Actor  string    `json:"actor"`
	Action string    `json:"action"`
	Reason string    `json:"reason,omitempty"`
}

// EffectAct is the body of a redeliver, discard or resolve of an effect. Epoch
// is the one of the effect as the person saw it; the same act for the same epoch
// is answered the same, however often it comes. Reason goes to the audit.
type EffectAct struct {
	Action ReviewAction `json:"action,omitempty"` // with resolve: delivered
	Epoch  int64        `json:"epoch"`
	Reason string       `json:"reason"`
}

// ReviewActs is the body of POST /v1/review/acts: one decision about up to a
// thousand items, each with the epoch that was seen.
type ReviewActs struct {
	Action ReviewAction `json:"action" enum:"failed,retry,finish,delivered,redeliver,discard"`
	Reason string       `json:"reason"`
	Items  []ReviewSeen `json:"items"`
}

// ReviewSeen names an item as it was seen.
type ReviewSeen struct {
	ID    string `json:"id"`
	Epoch int64  `json:"epoch"`
}

// ReviewActed is the answer for one item, in the order of the request: the state
// it came to, or why nothing was done.
type ReviewActed struct {
	ID    string     `json:"id"`
	What  ReviewWhat `json:"what,omitempty"`
	State string     `json:"state,omitempty"`
	Epoch int64      `json:"epoch,omitempty"`
	Error *Error     `json:"error,omitempty"`
}
