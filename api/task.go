package api

import (
	"encoding/json"
	"time"
)

// Task is a task as callers see it. Result holds exactly the stored bytes.
type Task struct {
	ID           string          `json:"id"`
	Kind         string          `json:"kind"`
	Key          string          `json:"key,omitempty"`
	State        State           `json:"state"`
	Run          int             `json:"run"`
	Epoch        int64           `json:"epoch"` // to be sent back with retry and resolve
	Created      *bool           `json:"created,omitempty"`
	Reopened     bool            `json:"reopened,omitempty"`
	InputHash    string          `json:"input_hash"`
	Result       json.RawMessage `json:"result,omitempty"`
	FinishReason string          `json:"finish_reason,omitempty"`
	Truncated    bool            `json:"truncated,omitempty"`
	Error        *TaskError      `json:"error,omitempty"`
	Attempts     int             `json:"attempts"`
	Duplicates   int64           `json:"duplicates"`
	Priority     int             `json:"priority"`
	CancelAsked  bool            `json:"cancel_requested,omitempty"`
	RunAt        time.Time       `json:"run_at"`
	Deadline     *time.Time      `json:"deadline,omitempty"`
	CreatedAt    time.Time       `json:"created_at"`
	StartedAt    *time.Time      `json:"started_at,omitempty"`
	FinishedAt   *time.Time      `json:"finished_at,omitempty"`
	ExpiresAt    *time.Time      `json:"expires_at,omitempty"`
	// Once the payload was purged or erased: the result is gone, its hash stays.
	ResultExpired   bool       `json:"result_expired,omitempty"`
	ResultHash      string     `json:"result_hash,omitempty"` // hex SHA-256 of the result's bytes
	PayloadPurgedAt *time.Time `json:"payload_purged_at,omitempty"`

	Usage       *Usage          `json:"usage,omitempty"`
	BatchID     string          `json:"batch_id,omitempty"` // the batch whose line made it
	TraceID     string          `json:"trace_id,omitempty"`
	ParentID    string          `json:"parent_id,omitempty"`    // the task that this one follows
	DuplicateOf string          `json:"duplicate_of,omitempty"` // the task that a person says this one repeats
	Metadata    json.RawMessage `json:"metadata,omitempty"`
	Queue       *Queue          `json:"queue,omitempty"`
	Cancel      *Cancelling     `json:"cancel,omitempty"` // in the answer to a cancel

	// ETag is set by the client from the answer's header, for the next Get.
	ETag string `json:"-"`
}

// TaskError says why a task failed or is unknown. Permanent true means the
// request itself was at fault (or a person said so) and is replayed for ever.
type TaskError struct {
	Code      string `json:"code"`
	Message   string `json:"message"`
	Permanent bool   `json:"permanent"`
	Fix       string `json:"fix,omitempty"`
}

// Usage is what a task's calls consumed. Cost is a decimal in the provider's
// currency, as text; empty where no price is configured.
type Usage struct {
	InputTokens     int64  `json:"input_tokens"`
	CachedTokens    int64  `json:"cached_tokens"`
	OutputTokens    int64  `json:"output_tokens"`
	ReasoningTokens int64  `json:"reasoning_tokens"`
	Cost            string `json:"cost,omitempty"`
	Billed          Billed `json:"billed"`
}

// Queue is an approximate place in the tenant's own queue.
type Queue struct {
	Position   int64   `json:"position"`
	ETASeconds float64 `json:"eta_seconds,omitempty"`
}

// Submit is the body of POST /v1/tasks. Input and Effects travel verbatim.
type Submit struct {
	Kind       string          `json:"kind"`
	Input      json.RawMessage `json:"input"`
	Effects    json.RawMessage `json:"effects,omitempty"`
	Priority   *int            `json:"priority,omitempty"` // 0 (last) to 9 (first); nil is 4
	RunAt      *time.Time      `json:"run_at,omitempty"`
	Deadline   *time.Time      `json:"deadline,omitempty"`
	OccurredAt *time.Time      `json:"occurred_at,omitempty"`
	Dedupe     string          `json:"dedupe,omitempty"`
	Budget     *Budget         `json:"budget,omitempty"`
	Metadata   json.RawMessage `json:"metadata,omitempty"`
}

// Budget is a named number of sends shared by many tasks.
type Budget struct {
	ID    string `json:"id"`
	Sends int    `json:"sends"`
}

// List is one page. Next is empty on the last page.
type List[T any] struct {
	Items []T     `json:"items"`
	Next  *string `json:"next"`
}

// Effect is one side effect of a task.
type Effect struct {
	ID          string      `json:"id"`
	TaskID      string      `json:"task_id"`
	Run         int         `json:"run"`
	Name        string      `json:"name"`
	Type        string      `json:"type"`
	Destination string      `json:"destination,omitempty"`
	Reference   string      `json:"reference,omitempty"` // what the receiver knows it by where that is not its id; the follow-up task of type task
	State       EffectState `json:"state"`
	Epoch       int64       `json:"epoch"` // to be sent back with redeliver, discard and resolve
	Attempts    int         `json:"attempts"`
	NextAt      *time.Time  `json:"next_at,omitempty"`
	CreatedAt   time.Time   `json:"created_at"`
	FinishedAt  *time.Time  `json:"finished_at,omitempty"`
	Error       *TaskError  `json:"error,omitempty"`
	Deliveries  []Delivery  `json:"deliveries,omitempty"` // in a list of a task's effects, oldest first
}

// Scope is what an API key may do.
type Scope string

// The scopes. ScopeAdmin belongs to instance keys (tenant "*").
const (
	ScopeSubmit  Scope = "submit"  // submit, cancel
	ScopeRead    Scope = "read"    // poll, list
	ScopeOperate Scope = "operate" // retry, resolve, redeliver, erase
	ScopeAdmin   Scope = "admin"   // kinds, providers, holds, keys, every tenant
)

// Scopes lists every scope.
var Scopes = []Scope{ScopeSubmit, ScopeRead, ScopeOperate, ScopeAdmin}
