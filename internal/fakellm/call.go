package fakellm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"
)

// call is one call being answered.
type call struct {
	h      *Handler
	w      http.ResponseWriter
	r      *http.Request
	q      request
	s      step
	id     string
	prompt string
	text   string
	sent   int // body bytes written
}

// tokens counts as the common rule of thumb does: four characters each.
func tokens(text string) int { return (utf8.RuneCountInString(text) + 3) / 4 }

// reply makes the text of a reply from the last user message or the whole prompt.
func (s step) reply(last, all string) string {
	switch {
	case s.text != "":
		return s.text
	case s.extract:
		return extractJSON(last)
	case s.tokens > 0:
		return strings.TrimSpace(strings.Repeat("word ", s.tokens))
	case last == "":
		return "(nothing to echo)"
	}
	return last
}

// play answers the call and says how it went.
func (c *call) play() (outcome string) {
	if c.s.hang {
		if c.s.headers {
			c.begin()
		}
		c.silence()
		return "hung"
	}
	if c.s.status != 0 && c.s.status != http.StatusOK {
		c.pause(c.s.latency)
		c.refuse()
		return "failed"
	}
	if !c.q.Stream {
		return c.whole()
	}
	return c.stream()
}

func (c *call) refuse() {
	if c.s.retryAfter != "" {
		c.w.Header().Set("Retry-After", c.s.retryAfter)
	}
	code := c.s.code
	if code == "" {
		code = errorCodes[c.s.status]
	}
	if code == "" {
		code = "server_error"
	}
	writeError(c.w, c.s.status, code, fmt.Sprintf("scripted status %d", c.s.status))
}

func (c *call) begin() {
	kind := "application/json"
	if c.q.Stream {
		kind = "text/event-stream"
	}
	c.w.Header().Set("Content-Type", kind)
	c.w.WriteHeader(http.StatusOK)
	c.flush()
}

// whole answers with one document after all the time it takes.
func (c *call) whole() string {
	d := c.s.latency
	if c.s.rate > 0 {
		d += time.Duration(float64(len(split(c.text))) / c.s.rate * float64(time.Second))
	}
	if !c.pause(d) {
		return "cut"
	}
	c.begin()
	doc := map[string]any{
		"id": c.id, "object": "chat.completion", "created": created, "model": c.q.Model,
		"choices": []any{map[string]any{
			"index": 0, "message": map[string]any{"role": "assistant", "content": c.text}, "logprobs": nil,
			"finish_reason": c.finish(),
		}},
	}
	if !c.s.noUsage {
		doc["usage"] = c.usage()
	}
	if !c.write(encode(doc)) {
		return "cut"
	}
	return "completed"
}

func (c *call) finish() string {
	if c.s.finish != "" {
		return c.s.finish
	}
	return "stop"
}

func (c *call) usage() map[string]any {
	in, out := tokens(c.prompt), tokens(c.text)
	return map[string]any{"prompt_tokens": in, "completion_tokens": out, "total_tokens": in + out}
}

// stream answers token by token.
func (c *call) stream() string {
	c.begin()
	if !c.pause(c.s.latency) {
		return "cut"
	}
	if !c.event(map[string]any{"role": "assistant", "content": ""}, nil) {
		return "cut"
	}
	start := time.Now()
	for i, word := range split(c.text) {
		if c.s.fail != "" && i >= c.s.after {
			break
		}
		if c.s.stall > 0 && i >= c.s.stall {
			c.silence()
			return "cut"
		}
		if c.s.rate > 0 {
			due := time.Duration(float64(i) / c.s.rate * float64(time.Second))
			if !c.pause(due - time.Since(start)) {
				return "cut"
			}
		}
		if !c.event(map[string]any{"content": word}, nil) {
			return "cut"
		}
	}
	return c.endStream()
}

func (c *call) endStream() string {
	if c.s.fail != "" {
		c.write([]byte("data: " + string(encode(map[string]any{
			"error": map[string]any{"message": "scripted error", "type": c.s.fail, "code": c.s.fail},
		})) + "\n\ndata: [DONE]\n\n"))
		return "failed"
	}
	ok := c.event(map[string]any{}, c.finish())
	if ok && c.q.StreamOptions.IncludeUsage && !c.s.noUsage {
		ok = c.chunk(map[string]any{"choices": []any{}, "usage": c.usage()})
	}
	if ok = ok && c.write([]byte("data: [DONE]\n\n")); !ok {
		return "cut"
	}
	return "completed"
}

func (c *call) event(delta map[string]any, finish any) bool {
	return c.chunk(map[string]any{"choices": []any{map[string]any{"index": 0, "delta": delta, "finish_reason": finish}}})
}

func (c *call) chunk(doc map[string]any) bool {
	doc["id"], doc["object"], doc["created"], doc["model"] = c.id, "chat.completion.chunk", created, c.q.Model
	return c.write(append(append([]byte("data: "), encode(doc)...), '\n', '\n'))
}

// write writes a part of the body, and false when the script cuts the connection there. A client that has gone is no
// reason to stop: the model goes on.
func (c *call) write(b []byte) bool {
	cut := c.s.cut > 0 && c.sent+len(b) >= c.s.cut
	if cut {
		b = b[:c.s.cut-c.sent]
	}
	c.sent += len(b)
	_, _ = c.w.Write(b)
	c.flush()
	return !cut && !(c.s.abort && c.r.Context().Err() != nil)
}

func (c *call) flush() { _ = http.NewResponseController(c.w).Flush() }

// pause waits and returns false when there is no reason to go on. The client's leaving is none, unless the script says
// so; the end of the server cuts the wait short.
func (c *call) pause(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	var gone <-chan struct{}
	if c.s.abort {
		gone = c.r.Context().Done()
	}
	return c.wait(timer.C, gone)
}

// silence waits until the client or the server goes.
func (c *call) silence() { c.wait(nil, c.r.Context().Done()) }

func (c *call) wait(until <-chan time.Time, gone <-chan struct{}) bool {
	var ping <-chan time.Time
	if c.s.ping > 0 && c.q.Stream {
		t := time.NewTicker(c.s.ping)
		defer t.Stop()
		ping = t.C
	}
	for {
		select {
		case <-until:
			return true
		case <-gone:
			return false
		case <-c.h.done:
			return true
		case <-ping:
			_, _ = c.w.Write([]byte(": ping\n\n"))
			c.flush()
		}
	}
}

// split cuts a text into tokens: words with the space after them, and long words every eight runes.
func split(text string) []string {
	var out []string
	start, n := 0, 0
	for i, r := range text {
		n++
		if r == ' ' || r == '\n' || n == 8 {
			end := i + utf8.RuneLen(r)
			out = append(out, text[start:end])
			start, n = end, 0
		}
	}
	if start < len(text) {
		out = append(out, text[start:])
	}
	return out
}

func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // maps, strings and numbers
	return bytes.TrimSpace(b.Bytes())
}
