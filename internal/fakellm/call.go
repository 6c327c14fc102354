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
	h    *Handler
	w    http.ResponseWriter
	r    *http.Request
	p    protocol
	q    asked
	s    step
	id   string // equal calls have equal ones
	text string
	sent int // body bytes written

	requestID string
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
	if c.s.refuses() {
		c.pause(c.s.latency)
		c.refuse()
		return "failed"
	}
	if !c.q.stream {
		return c.whole()
	}
	return c.stream()
}

// refuses says that the script answers with an error.
func (s step) refuses() bool { return s.status != 0 && s.status != http.StatusOK }

// background says that the call is answered with a job that goes on by itself.
func (c *call) background() bool { return c.q.background && !c.s.hang && !c.s.refuses() }

func (c *call) refuse() {
	if c.s.retryAfter != "" {
		c.w.Header().Set("Retry-After", c.s.retryAfter)
	}
	writeJSON(c.w, c.s.status, c.p.refusal(c.s.status, c.s.code, fmt.Sprintf("scripted status %d", c.s.status)))
}

func (c *call) begin() {
	kind := "application/json"
	if c.q.stream {
		kind = "text/event-stream"
	}
	c.w.Header().Set("Content-Type", kind)
	c.w.WriteHeader(http.StatusOK)
	c.flush()
}

// takes is all the time that the script gives a call.
func (c *call) takes() time.Duration {
	d := c.s.latency
	if c.s.rate > 0 {
		d += time.Duration(float64(len(split(c.text))) / c.s.rate * float64(time.Second))
	}
	return d
}

// whole answers with one document after all the time it takes.
func (c *call) whole() string {
	if !c.pause(c.takes()) {
		return "cut"
	}
	c.begin()
	if !c.write(encode(c.p.document(c))) {
		return "cut"
	}
	return "completed"
}

// tells says whether a reply counts its tokens.
func (c *call) tells() bool { return c.q.usage && !c.s.noUsage }

func (c *call) usage() (in, out int) { return tokens(c.q.all), tokens(c.text) }

// stream answers token by token.
func (c *call) stream() string {
	c.begin()
	if !c.pause(c.s.latency) {
		return "cut"
	}
	say := c.p.events(c)
	if !c.events(say.open()...) {
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
		if !c.events(say.token(word)) {
			return "cut"
		}
	}
	if c.s.fail != "" {
		c.events(say.fail(c.s.fail)...)
		return "failed"
	}
	if !c.events(say.end()...) {
		return "cut"
	}
	return "completed"
}

// events writes events, and false when the script cuts the connection in one of them.
func (c *call) events(all ...event) bool {
	for _, e := range all {
		if !c.write(e.bytes()) {
			return false
		}
	}
	return true
}

func (e event) bytes() []byte {
	if e.doc == nil {
		return []byte("data: [DONE]\n\n")
	}
	var b []byte
	if e.name != "" {
		b = append(b, "event: "+e.name+"\n"...)
	}
	return append(append(append(b, "data: "...), encode(e.doc)...), '\n', '\n')
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
	if c.s.ping > 0 && c.q.stream {
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
