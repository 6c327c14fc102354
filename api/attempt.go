package api

import "time"

// Attempt is one entry of the ledger: one try at a task, with what is known of
// the call it made. Outcome is empty while the call is out.
type Attempt struct {
	Epoch    int64  `json:"epoch"` // names the attempt within its task
	Run      int    `json:"run"`
	Number   int    `json:"number"` // counted over all runs
	Outcome  string `json:"outcome,omitempty"`
	Counted  bool   `json:"counted"` // it used one of the run's attempts
	Provider string `json:"provider"`
	Model    string `json:"model,omitempty"`

	// Code and Message say how it ended when not well; Status is the provider's
	// HTTP status, where one came.
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
	Status  int    `json:"status,omitempty"`
	// Phase is how far the call came: resolving, dialing, tls, writing, written,
	// headers, first_token, body or done.
	Phase string `json:"phase,omitempty"`
	// RequestID is the provider's id of the call, ProviderJob that of a job it
	// runs in the background: by these its support finds them.
	RequestID   string `json:"request_id,omitempty"`
	ProviderJob string `json:"provider_job,omitempty"`

	ClaimedAt   time.Time  `json:"claimed_at"`
	SentAt      *time.Time `json:"sent_at,omitempty"`
	ClosedAt    *time.Time `json:"closed_at,omitempty"`
	ConnectMS   int64      `json:"connect_ms,omitempty"`
	FirstByteMS int64      `json:"first_byte_ms,omitempty"` // from the send
	TotalMS     int64      `json:"total_ms,omitempty"`      // from the send
	Bytes       int64      `json:"bytes"`                   // of the reply's body

	// Usage is what the provider counted, of a cut reply the tokens that came;
	// absent where nothing is known.
	Usage  *Usage `json:"usage,omitempty"`
	Billed Billed `json:"billed"`
	// Sends is what it cost of a budget: 0 where nothing was sent or the provider
	// turned it away at the gate, more than 1 where a service reported more.
	Sends int `json:"sends"`
	// Regeneration: an earlier call of the run may have been carried out.
	Regeneration bool `json:"regeneration,omitempty"`
	// Orphaned: the call was given up while the provider may have been at work.
	Orphaned     bool   `json:"orphaned,omitempty"`
	FinishReason string `json:"finish_reason,omitempty"`
	Truncated    bool   `json:"truncated,omitempty"`

	// Partial is the beginning of the text that had come when a reply was cut, at
	// most 64 KiB of it; PartialBytes is its whole length.
	Partial      string `json:"partial,omitempty"`
	PartialBytes int64  `json:"partial_bytes,omitempty"`
	// LateAt is when a whole reply came that was too late to be the result.
	LateAt *time.Time `json:"late_at,omitempty"`
	// Parts are what is kept of the attempt: partial, reply, late_result,
	// kept_result.
	Parts []AttemptPart `json:"parts,omitempty"`
}

// AttemptPart is what can be kept of an attempt, byte for byte.
type AttemptPart string

// The parts of an attempt.
const (
	PartPartial AttemptPart = "partial"     // the text of a reply that was cut
	PartReply   AttemptPart = "reply"       // the provider's whole reply, where it is not the result itself
	PartLate    AttemptPart = "late_result" // a reply that came when the task was no longer this attempt's, or was cancelled
	PartKept    AttemptPart = "kept_result" // a result whose effects could not be stored: resolve with finish
)

// Cancelling is what the answer to a cancel says besides the task.
type Cancelling struct {
	// Asked: the task runs still, and cancelling is asked for. False: it is
	// cancelled.
	Asked bool `json:"asked"`
	// MayStillBill: a call is out, or was and nobody knows its outcome. It cannot
	// be called back, so the provider may bill for it.
	MayStillBill bool   `json:"may_still_bill"`
	Note         string `json:"note"`
}
