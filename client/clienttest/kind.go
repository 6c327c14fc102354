package clienttest

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/onefold-dev/onefold/api"
)

// Kind is a sort of work that the server knows.
type Kind struct {
	// Do is the work, called once for each run of a task, in a goroutine of its
	// own. ctx ends when the task is cancelled or the server closes. Without Do a
	// task runs until Server.Settle says how it ended.
	Do func(ctx context.Context, c Call) Outcome
	// Dedupe is api.DedupeKey when empty.
	Dedupe api.Dedupe
	// Window is that of api.DedupeWindow.
	Window time.Duration
	// MaxRuns is how often a task may be run by duplicates of it after it failed
	// by the system's fault; 3 when 0, 1 for never again.
	MaxRuns int
}

// Call is one run of a task.
type Call struct {
	TaskID string
	Kind   string
	Key    string
	Run    int // 1 at first
	Input  json.RawMessage
}

// Outcome is how a run ended. The zero value is a success with the result null.
type Outcome struct {
	Result json.RawMessage
	Error  *api.TaskError // failed, unless Unknown
	// Unknown says that nobody knows what became of the call.
	Unknown bool
	Usage   *api.Usage
}

// Succeed is a success with a result, which has to be JSON.
func Succeed(result string) Outcome {
	if !json.Valid([]byte(result)) {
		panic("clienttest: the result is no JSON: " + result)
	}
	return Outcome{Result: json.RawMessage(result)}
}

// Reject is a failure for good: the request itself was at fault. A duplicate is
// answered with it for ever.
func Reject(message string) Outcome {
	return failure(api.CodeRejected, message, true)
}

// Exhaust is a failure by the system's fault, after all attempts. A duplicate
// runs the task again, as often as Kind.MaxRuns allows.
func Exhaust(message string) Outcome {
	return failure(api.CodeAttemptsExhaust, message, false)
}

// NotKnown is an outcome that nobody knows: the task waits for a person.
func NotKnown(message string) Outcome {
	o := failure(api.CodeOutcomeUnknown, message, false)
	o.Unknown = true
	return o
}

func failure(code api.Code, message string, permanent bool) Outcome {
	return Outcome{Error: &api.TaskError{Code: string(code), Message: message, Permanent: permanent, Fix: api.Codes[code].Fix}}
}

// Always is work that always ends in the same way.
func Always(o Outcome) func(context.Context, Call) Outcome {
	return func(context.Context, Call) Outcome { return o }
}

// Sequence is work that ends each run of a task in the next way; the last one
// repeats.
func Sequence(all ...Outcome) func(context.Context, Call) Outcome {
	if len(all) == 0 {
		panic("clienttest: a sequence of no outcomes")
	}
	var mu sync.Mutex
	runs := map[string]int{}
	return func(_ context.Context, c Call) Outcome {
		mu.Lock()
		defer mu.Unlock()
		n := runs[c.TaskID]
		runs[c.TaskID]++
		return all[min(n, len(all)-1)]
	}
}
