package fakellm

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"sync"
	"time"
)

// Calls counts what a server was asked. A call counts as received when its whole request was read.
type Calls struct {
	// Received = Completed + Failed + Cut + Hung + Running.
	Received  int `json:"received"`
	Completed int `json:"completed"` // the work was done to its end, whether or not anyone was there to take it
	Failed    int `json:"failed"`    // answered with an error by the script
	Cut       int `json:"cut"`       // cut or stalled by the script, or given up with "abort"
	Hung      int `json:"hung"`
	Running   int `json:"running"`
	// Polls counts the questions after responses that are made in the background. They are no calls.
	Polls int `json:"polls"`
	// ClientGone counts the calls whose client had left before the end; Orphaned those of them that were completed.
	ClientGone int `json:"client_gone"`
	Orphaned   int `json:"orphaned"`
	// Tokens is what the completed calls would have been billed for.
	Tokens   int            `json:"tokens"`
	ByModel  map[string]int `json:"by_model"`
	ByPrompt map[string]int `json:"by_prompt"` // by the first 16 hex digits of the prompt's SHA-256
	ByTask   map[string]int `json:"by_task"`   // by the Onefold-Task header
}

// Entry is one call of the log.
type Entry struct {
	N         int       `json:"n"` // from 1
	RequestID string    `json:"request_id"`
	At        time.Time `json:"at"`
	Model     string    `json:"model"`
	Prompt    string    `json:"prompt"` // hash
	Task      string    `json:"task,omitempty"`
	Run       string    `json:"run,omitempty"`
	Attempt   string    `json:"attempt,omitempty"`
	Stream    bool      `json:"stream"`
	Script    string    `json:"script,omitempty"`
	Outcome   string    `json:"outcome"` // running, completed, failed, cut, hung
	Gone      bool      `json:"client_gone"`
	Tokens    int       `json:"tokens"`
}

// maxLog is how many calls the log keeps.
const maxLog = 20_000

type counts struct {
	mu     sync.Mutex
	calls  Calls
	keys   map[string]int       // calls of a script by key
	models map[string]time.Time // last call of a model
	log    []*Entry
}

func newCounts() *counts {
	c := &counts{}
	c.reset()
	return c
}

func (c *counts) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = Calls{ByModel: map[string]int{}, ByPrompt: map[string]int{}, ByTask: map[string]int{}}
	c.keys, c.models, c.log = map[string]int{}, map[string]time.Time{}, nil
}

// begin counts a call in. It returns its number for its key, its number for its model, and how long the model had
// been idle (negative: never called).
func (c *counts) begin(e *Entry, key string) (nKey, nModel int, idle time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls.Received++
	c.calls.Running++
	c.calls.ByModel[e.Model]++
	c.calls.ByPrompt[e.Prompt]++
	if e.Task != "" {
		c.calls.ByTask[e.Task]++
	}
	c.keys[key]++
	e.N, e.Outcome = c.calls.Received, "running"
	e.RequestID = fmt.Sprintf("req-%06d", e.N)
	idle = -1
	if last, ok := c.models[e.Model]; ok {
		idle = e.At.Sub(last)
	}
	c.models[e.Model] = e.At
	if len(c.log) == maxLog {
		c.log = append(c.log[:0:0], c.log[maxLog/2:]...)
	}
	c.log = append(c.log, e)
	return c.keys[key], c.calls.ByModel[e.Model], idle
}

// polled counts a question after a background response.
func (c *counts) polled() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls.Polls++
}

// end counts a call out.
func (c *counts) end(e *Entry, outcome string, gone bool, tokens int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls.Running--
	switch outcome {
	case "completed":
		c.calls.Completed++
		c.calls.Tokens += tokens
	case "failed":
		c.calls.Failed++
	case "hung":
		c.calls.Hung++
	default:
		c.calls.Cut++
	}
	if gone {
		c.calls.ClientGone++
		if outcome == "completed" {
			c.calls.Orphaned++
		}
	}
	e.Outcome, e.Gone, e.Tokens = outcome, gone, tokens
}

func (c *counts) snapshot() Calls {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.calls
	out.ByModel, out.ByPrompt, out.ByTask = maps.Clone(out.ByModel), maps.Clone(out.ByPrompt), maps.Clone(out.ByTask)
	return out
}

// last returns the last n calls, oldest first.
func (c *counts) last(n int) []Entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]Entry, 0, min(n, len(c.log)))
	for _, e := range c.log[len(c.log)-min(n, len(c.log)):] {
		out = append(out, *e)
	}
	return out
}

// hash shortens a text to 16 hex digits.
func hash(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write([]byte(p))
		h.Write([]byte{0})
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}
