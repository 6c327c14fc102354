package api

import "encoding/json"

// Retry is the body of POST /v1/tasks/{id}/retry. Epoch is the one of the task
// as the person saw it; another one is answered with 409.
type Retry struct {
	Epoch  int64  `json:"epoch"`
	Reason string `json:"reason,omitempty"`
}

// MarkDuplicate is the body of POST /v1/tasks/{id}/mark-duplicate: the task
// repeats the one named in Of, a person says.
type MarkDuplicate struct {
	Of     string `json:"of"`
	Reason string `json:"reason"`
}

// Action is what a person decides about a task whose outcome is unknown.
type Action string

// The actions of Resolve.
const (
	ResolveSucceeded Action = "succeeded" // it happened: Result is its result, effects follow
	ResolveFailed    Action = "failed"    // it did not and shall not: final, permanent
	ResolveRetry     Action = "retry"     // run it again
	ResolveFinish    Action = "finish"    // finish_failed: try the finish again, without a new call
)

// Actions lists every action of Resolve.
var Actions = []Action{ResolveSucceeded, ResolveFailed, ResolveRetry, ResolveFinish}

// Resolve is the body of POST /v1/tasks/{id}/resolve. Epoch is the one of the
// task as the person saw it; Reason goes to the audit.
type Resolve struct {
	Action Action          `json:"action"`
	Epoch  int64           `json:"epoch"`
	Reason string          `json:"reason"`
	Result json.RawMessage `json:"result,omitempty"` // with ResolveSucceeded
	// Message is what the task's error then says, with ResolveFailed.
	Message string `json:"message,omitempty"`
}

// Append adds r to dst as JSON, with Result exactly as it is; see Submit.Append.
func (r *Resolve) Append(dst []byte) ([]byte, error) {
	if len(r.Result) > 0 && !json.Valid(r.Result) {
		return nil, Errorf(CodeInvalidJSON, "result is not one well-formed JSON value").WithField("result")
	}
	bare := *r
	bare.Result = nil
	dst, err := appendObject(dst, &bare)
	if err != nil {
		return nil, err
	}
	return appendMember(dst, "result", r.Result), nil
}
