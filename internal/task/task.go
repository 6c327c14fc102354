// Package task decides what a task is: its row, its states and the moves they
// allow, and what happens next after an attempt. It does no I/O.
package task

import (
	"time"

	"github.com/google/uuid"

	"github.com/onefold-dev/onefold/api"
)

// ID names a task, an effect, an incarnation or a token.
type ID = uuid.UUID

// NewID makes a UUIDv7: ids sort by the time they were made.
func NewID() ID { return uuid.Must(uuid.NewV7()) }

// NewToken makes a random fence token or incarnation.
func NewToken() ID { return uuid.New() }

// Row is one row of onefold.tasks as most readers need it. Input and Effects
// are left nil by readers that do not need them.
type Row struct {
	ID          ID
	Tenant      string
	Kind        string
	Key         string
	Slot        string
	Dedupe      api.Dedupe
	Provider    string
	Priority    int16
	Fingerprint []byte
	InputHash   []byte
	ConfigHash  string
	TraceID     string
	Traceparent string
	ParentID    *ID
	DuplicateOf *ID // a person says that it repeats this one
	BatchID     *ID
	BudgetID    string
	BudgetSends int32
	Metadata    []byte
	Effects     []byte
	Input       []byte

	State           api.State
	Run             int32
	Epoch           int64
	Owner           *ID
	Token           *ID
	JobID           *int64
	Attempts        int32 // counted attempts of this run
	TotalAttempts   int32
	NotSent         int16 // in a row
	Released        int16
	Lost            int16 // in a row
	Unclear         bool  // a call of this run has no known outcome
	CancelRequested bool
	LastError       string // of this run's last attempt, "" before there was one
	Same            int16  // attempts in a row that ended with it, where it looks final
	Reported        int32  // sends of this run that a service reported beyond ours

	RunAt           time.Time
	Deadline        time.Time
	CreatedAt       time.Time
	VirtualAt       time.Time
	StartedAt       *time.Time
	FinishedAt      *time.Time
	ExpiresAt       *time.Time
	PayloadPurgedAt *time.Time

	Usage          api.Usage
	Result         []byte
	ResultHash     []byte
	FinishReason   string
	Truncated      bool
	ErrorCode      string
	ErrorMessage   string
	ErrorPermanent *bool

	Duplicates int64
	Now        time.Time // the database's time when the row was read
}

// Expired says whether the row is past its retention at the time it was read.
func (r *Row) Expired() bool { return r.ExpiresAt != nil && !r.ExpiresAt.After(r.Now) }

// Permanent says whether a failed row is final for ever: the request itself was
// at fault, or a person said so.
func (r *Row) Permanent() bool { return r.ErrorPermanent != nil && *r.ErrorPermanent }

// Fence is what every write of a worker is guarded by, beside the state.
type Fence struct {
	ID    ID
	Epoch int64
	Token ID
}

// ParseID reads an id in its usual form.
func ParseID(s string) (ID, error) { return uuid.Parse(s) }
