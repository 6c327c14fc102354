package api

import (
	"encoding/json"
	"time"
)

// Limits of a batch's file.
const (
	MaxBatchLines = 1_000_000
	MaxBatchBytes = 1 << 30
	MaxBatchLine  = 8 << 20
)

// BatchState is where a batch stands.
type BatchState string

// The states of a batch. The last three are its ends.
const (
	BatchStaging    BatchState = "staging"    // being uploaded: nothing of it runs
	BatchRunning    BatchState = "running"    // its lines wait or run
	BatchCancelling BatchState = "cancelling" // what waits is cancelled, calls under way end
	BatchCompleted  BatchState = "completed"  // every line has settled
	BatchCancelled  BatchState = "cancelled"
	BatchExpired    BatchState = "expired" // its deadline passed before every line had settled
)

// Ended says whether nothing more happens to the batch by itself.
func (s BatchState) Ended() bool {
	return s == BatchCompleted || s == BatchCancelled || s == BatchExpired
}

// BatchForm is the form of a batch's lines, and of its results.
type BatchForm string

// The forms of lines.
const (
	FormOnefold BatchForm = "onefold" // {"key","kind","input", ...}
	FormOpenAI  BatchForm = "openai"  // {"custom_id","method","url","body"}
)

// Batch is a batch as callers see it.
type Batch struct {
	ID        string      `json:"id"`
	Key       string      `json:"key"`
	State     BatchState  `json:"state"`
	Run       int         `json:"run"` // to be sent back with a retry; 2 after the first one
	Created   *bool       `json:"created,omitempty"`
	Form      BatchForm   `json:"form,omitempty"`
	Kind      string      `json:"kind,omitempty"`    // of lines in the OpenAI form
	Webhook   string      `json:"webhook,omitempty"` // the destination that is told of its end
	Lines     int         `json:"lines"`             // blank ones apart
	Bytes     int64       `json:"bytes"`
	Counts    BatchCounts `json:"counts"`
	Usage     Usage       `json:"usage"`             // of the tasks this batch made; a line that met a task costs it nothing
	Invalid   []BadLine   `json:"invalid,omitempty"` // the first lines that are no valid request
	CreatedAt time.Time   `json:"created_at"`
	StartedAt *time.Time  `json:"started_at,omitempty"`
	Deadline  *time.Time  `json:"deadline,omitempty"`
	EndedAt   *time.Time  `json:"ended_at,omitempty"`
	ExpiresAt *time.Time  `json:"expires_at,omitempty"`
}

// BatchCounts are the lines by where they stand; together they are all of them.
type BatchCounts struct {
	Waiting   int `json:"waiting"` // not handed over yet
	Pending   int `json:"pending"`
	Running   int `json:"running"`
	Succeeded int `json:"succeeded"`
	Failed    int `json:"failed"`
	Unknown   int `json:"unknown"`
	Cancelled int `json:"cancelled"`
	Expired   int `json:"expired"` // not handed over before the batch's deadline
	Invalid   int `json:"invalid"` // no valid request: failed without a task
}

// Settled is how many lines have an outcome.
func (c BatchCounts) Settled() int {
	return c.Succeeded + c.Failed + c.Unknown + c.Cancelled + c.Expired + c.Invalid
}

// Total is how many lines there are.
func (c BatchCounts) Total() int { return c.Waiting + c.Pending + c.Running + c.Settled() }

// BadLine is a line that is no valid request, and why.
type BadLine struct {
	Line    int    `json:"line"`
	Code    Code   `json:"code"`
	Message string `json:"message"`
	Field   string `json:"field,omitempty"`
}

// BatchRetry is the body of POST /v1/batches/{id}/retry. Run is the one of the
// batch as you saw it; another one is answered with 409.
type BatchRetry struct {
	Run    int    `json:"run"`
	Reason string `json:"reason,omitempty"`
}

// BatchOrder is the order in which results come.
type BatchOrder string

// The orders of results.
const (
	OrderInput    BatchOrder = "input"    // as the lines stand in the file
	OrderFinished BatchOrder = "finished" // as they settled
)

// BatchResult is one line of a batch's results in our form.
type BatchResult struct {
	Line     int             `json:"line"`     // in the file, from 1
	Finished int             `json:"finished"` // its place in the order of finishing, from 1; grows when a line runs again
	Key      string          `json:"key,omitempty"`
	Kind     string          `json:"kind,omitempty"`
	TaskID   string          `json:"task_id,omitempty"`
	State    string          `json:"state"` // of the task, or expired, invalid
	Error    *TaskError      `json:"error,omitempty"`
	Usage    *Usage          `json:"usage,omitempty"`
	Result   json.RawMessage `json:"result,omitempty"`
}

// Append adds r to dst as one line of JSON without its end, the result as it is
// but for line breaks between its tokens, which become spaces.
func (r *BatchResult) Append(dst []byte) ([]byte, error) {
	bare := *r
	bare.Result = nil
	dst, err := appendObject(dst, &bare)
	if err != nil {
		return nil, err
	}
	return appendMember(dst, "result", OneLine(r.Result)), nil
}

// OneLine is a JSON value without line breaks: in JSON they stand between tokens
// only. What needs no change is returned as it is.
func OneLine(raw []byte) []byte {
	for i, c := range raw {
		if c != '\n' && c != '\r' {
			continue
		}
		out := append([]byte(nil), raw...)
		for ; i < len(out); i++ {
			if out[i] == '\n' || out[i] == '\r' {
				out[i] = ' '
			}
		}
		return out
	}
	return raw
}

// OpenAIResult is one line of a batch's results in the form of OpenAI's Batch
// API. ID is batch_req_<batch>_<line>_<finished>.
type OpenAIResult struct {
	ID       string          `json:"id"`
	CustomID *string         `json:"custom_id"`
	Response *OpenAIResponse `json:"response"`
	Error    *OpenAIError    `json:"error"`
}

// OpenAIResponse is the answer to a line that succeeded.
type OpenAIResponse struct {
	StatusCode int             `json:"status_code"`
	RequestID  string          `json:"request_id"` // the task's id
	Body       json.RawMessage `json:"body"`
}

// OpenAIError says why a line has no response.
type OpenAIError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Append adds r to dst as one line of JSON without its end; see BatchResult.Append.
func (r *OpenAIResult) Append(dst []byte) ([]byte, error) {
	if r.Response == nil {
		return appendObject(dst, r)
	}
	bare := struct {
		ID       string  `json:"id"`
		CustomID *string `json:"custom_id"`
	}{r.ID, r.CustomID}
	dst, err := appendObject(dst, &bare)
	if err != nil {
		return nil, err
	}
	response := struct {
		StatusCode int    `json:"status_code"`
		RequestID  string `json:"request_id"`
	}{r.Response.StatusCode, r.Response.RequestID}
	inner, err := appendObject(nil, &response)
	if err != nil {
		return nil, err
	}
	dst = appendMember(dst, "response", appendMember(inner, "body", OneLine(r.Response.Body)))
	return appendMember(dst, "error", []byte("null")), nil
}
