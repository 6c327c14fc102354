package api

import (
	"encoding/json"
	"time"
)

// DestinationSource says where a destination is configured.
type DestinationSource string

// Where destinations are configured.
const (
	SourceFile   DestinationSource = "file"   // onefold.yaml
	SourceStored DestinationSource = "stored" // the database, through the API
	// SourceElsewhere is one that effects or workers name and this process does not know: another process's onefold.yaml
	// has it, or it is gone.
	SourceElsewhere DestinationSource = "elsewhere"
)

// Destination is where effects go: its gate, what waits behind it, and what signs.
type Destination struct {
	Gate
	Source DestinationSource `json:"source" enum:"file,stored,elsewhere"`
	// URL is the address without its secret parts.
	URL          string     `json:"url,omitempty"`
	Repeat       string     `json:"repeat,omitempty"`
	AllowPrivate bool       `json:"allow_private,omitempty"`
	Tenants      []string   `json:"tenants,omitempty"`
	UpdatedAt    *time.Time `json:"updated_at,omitempty"`
	// Problem says why a stored destination cannot be used here.
	Problem string `json:"problem,omitempty"`
	// The effects there that have not ended; Unknown and dead ones are for a person.
	Waiting    int64               `json:"waiting"`
	Delivering int64               `json:"delivering"`
	Held       int64               `json:"held"`
	Unknown    int64               `json:"unknown"`
	Secrets    []DestinationSecret `json:"secrets"`
}

// DestinationSecret is what is known of a secret that signs; the secret itself is never shown.
type DestinationSecret struct {
	// ID is what deliveries record; of a secret of onefold.yaml it is the beginning of a hash.
	ID string `json:"id"`
	// Since is when it was stored; of a secret of onefold.yaml, when it first signed.
	Since     time.Time  `json:"since"`
	RetiresAt *time.Time `json:"retires_at,omitempty"`
	// LastAt is when it last signed, Deliveries how often.
	LastAt     *time.Time `json:"last_at,omitempty"`
	Deliveries int64      `json:"deliveries"`
	// Old says that it has been in use for 90 days or more: rotate it.
	Old bool `json:"old,omitempty"`
}

// PutDestination is the body of PUT /v1/destinations/{name}: the fields of onefold.yaml, and secrets, which are sealed
// and never shown again.
type PutDestination struct {
	URL               string          `json:"url"`
	Repeat            string          `json:"repeat,omitempty"`
	AllowPrivate      bool            `json:"allow_private,omitempty"`
	Tenants           []string        `json:"tenants,omitempty"`
	Concurrency       int             `json:"concurrency,omitempty"`
	Rate              string          `json:"rate,omitempty"`
	IdempotencyHeader string          `json:"idempotency_header,omitempty"`
	AuthHeader        string          `json:"auth_header,omitempty"`
	Username          string          `json:"username,omitempty"`
	From              string          `json:"from,omitempty"`
	Plaintext         bool            `json:"plaintext,omitempty"`
	Check             json.RawMessage `json:"check,omitempty"`
	// Secret signs, when the destination is made; later ones come by a rotation. Without it one is made and shown once.
	Secret string `json:"secret,omitempty"`
	// Unsigned makes a destination whose deliveries are not signed.
	Unsigned bool `json:"unsigned,omitempty"`
	// Auth is the credential; absent it stays as it is.
	Auth *string `json:"auth,omitempty"`
}

// DestinationPut is the answer: the destination, and the signing secret where one was made. It is shown this once.
type DestinationPut struct {
	Destination
	Created bool   `json:"created"`
	Secret  string `json:"secret,omitempty"`
}

// RotateSecret is the body of a rotation.
type RotateSecret struct {
	// Secret is the new one; without it one is made and shown once.
	Secret string `json:"secret,omitempty"`
	// Overlap is how long the former ones sign, too, as in 168h, the default; 0s ends them at once.
	Overlap string `json:"overlap,omitempty"`
	Reason  string `json:"reason,omitempty"`
}

// SecretRotated is the answer to a rotation.
type SecretRotated struct {
	Destination string `json:"destination"`
	ID          string `json:"id"`
	// Secret is the new one where it was made here. It is shown this once.
	Secret string `json:"secret,omitempty"`
	// Overlap is how long the former ones sign, too.
	Overlap string `json:"overlap"`
}

// TestDestination is the body of a test. To is who gets the mail, at a mail server.
type TestDestination struct {
	To string `json:"to,omitempty"`
}

// DestinationTest is what came of a test: one signed event, sent once by a worker, that no effect and no gate counts.
type DestinationTest struct {
	ID          string `json:"id"`
	Destination string `json:"destination"`
	// Class is answered, not_sent, blocked or unclear; Accepted says that it was answered with a success.
	Class    string   `json:"class" enum:"answered,not_sent,blocked,unclear"`
	Accepted bool     `json:"accepted"`
	Status   int      `json:"status,omitempty"`
	Code     string   `json:"code,omitempty"`
	Message  string   `json:"message,omitempty"`
	TotalMS  int64    `json:"total_ms"`
	SignedBy []string `json:"signed_by"`
	// Reply is the beginning of what the receiver said, where it was no success.
	Reply string `json:"reply,omitempty"`
}
