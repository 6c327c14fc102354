package openai

import (
	"bytes"
	"io"

	"github.com/onefold-dev/onefold/internal/provider"
	"github.com/onefold-dev/onefold/internal/provider/delta"
	"github.com/onefold-dev/onefold/internal/provider/wire"
)

// replaced are the fields of a message that a later piece replaces instead of adding to.
var replaced = map[string]bool{
	"id": true, "type": true, "role": true, "name": true, "index": true,
}

// stream puts one streamed reply together.
type stream struct {
	x      *wire.Exchange
	doc    *delta.Value // the reply so far; its choices hold "message" instead of "delta"
	tokens int64        // pieces that brought something
	size   int64
	ended  bool // [DONE] came
}

func readStream(x *wire.Exchange, r io.Reader) (*provider.Response, *provider.Error) {
	s := &stream{x: x, doc: delta.NewObject()}
	events := wire.NewEvents(r, x.MaxReply())
	for !s.ended {
		e, err := events.Next()
		if err != nil {
			return s.close(err)
		}
		if fail := s.take(e); fail != nil {
			return nil, fail
		}
	}
	return s.close(nil)
}

// take takes one event in.
func (s *stream) take(e wire.Event) *provider.Error {
	data := bytes.TrimSpace(e.Data)
	if len(data) == 0 {
		return nil
	}
	if bytes.Equal(data, []byte("[DONE]")) {
		s.ended = true
		return nil
	}
	piece, err := delta.Parse(data)
	if err != nil || !piece.IsObject() {
		if e.Open {
			return nil // the end of the stream cut it; what that means is decided there
		}
		if e.Name == "error" {
			return s.fail(upstreamError{message: string(data)})
		}
		return s.reject(provider.CodeProtocol, "an event of the stream is not a JSON object", s.partial())
	}
	if f := errorIn(piece); f != nil {
		return s.fail(*f)
	}
	if e.Name == "error" {
		return s.fail(upstreamError{message: piece.Get("message").Text()})
	}
	if s.size += int64(len(data)); s.size > s.x.MaxReply() && int64(s.doc.Len()) > s.x.MaxReply() {
		return s.reject(provider.CodeResultTooLarge, "the reply is larger than the limit", nil)
	}
	if piece.Get("choices") != nil || piece.Get("usage") != nil {
		s.merge(piece) // anything else is a ping or a note of some gateway
	}
	return nil
}

// merge adds a piece to the reply. Of the fields around the choices the last that is not null counts: some servers send
// the usage with every piece, counted up.
func (s *stream) merge(piece *delta.Value) {
	progress := false
	choices := piece.Get("choices")
	if choices.IsArray() && s.doc.Get("choices") == nil {
		s.doc.Set("choices", delta.NewArray())
	}
	for _, c := range choices.Items() {
		progress = s.mergeChoice(c) || progress
	}
	for name, v := range piece.Members() {
		if v.Has() && name != "choices" && name != "obfuscation" {
			s.doc.Set(name, v)
		}
	}
	if progress {
		s.tokens++
		s.x.Progress()
	}
	if s.finished() {
		s.x.Terminal()
	}
}

// mergeChoice adds a piece of a choice and says whether it brought something.
func (s *stream) mergeChoice(piece *delta.Value) (progress bool) {
	choice := s.choice(piece)
	for name, v := range piece.Members() {
		switch {
		case !v.Has() || name == "index":
		case name == "delta" || name == "message":
			progress = progress || brings(v)
			choice.Get("message").Merge(v, replaced)
		case name == "finish_reason":
			if v.Text() != "" {
				choice.Set(name, v)
				progress = true
			}
		case name == "logprobs" && choice.Get(name).Has():
			choice.Get(name).Merge(v, replaced)
		default:
			choice.Set(name, v)
		}
	}
	return progress
}

// choice finds the choice of the reply that a piece belongs to; a piece without an index belongs to the first.
func (s *stream) choice(piece *delta.Value) *delta.Value {
	index, _ := piece.Get("index").Int()
	choices := s.doc.Get("choices")
	for _, c := range choices.Items() {
		if n, _ := c.Get("index").Int(); n == index {
			return c
		}
	}
	c := delta.NewObject()
	c.Set("index", delta.NewInt(index))
	c.Set("message", delta.NewObject())
	c.Set("finish_reason", delta.Null())
	choices.Add(c)
	return c
}

// brings says whether a delta holds more than its role: a token of any sort.
func brings(d *delta.Value) bool {
	for name, v := range d.Members() {
		if name != "role" && v.Len() > 0 && v.Has() {
			return true
		}
	}
	return false
}

func (s *stream) finished() bool {
	choices := s.doc.Get("choices")
	return len(choices.Items()) > 0 && !unfinished(choices)
}

// close judges what has come when nothing more comes. A stream whose choices all have a finish reason is complete,
// however it ended.
func (s *stream) close(err error) (*provider.Response, *provider.Error) {
	if !s.ended && !s.finished() {
		return nil, s.x.Fail(err, true, s.partial())
	}
	if s.doc.Get("choices") == nil {
		return nil, s.x.New(provider.CodeEmpty, "the stream ended without a choice")
	}
	s.shape()
	resp, code, message := finish(s.doc, true)
	if code != "" {
		return nil, s.reject(code, message, s.partial())
	}
	resp.Reply = s.doc.Append(nil)
	resp.Phases, resp.Bytes = s.x.Finish(), s.x.Bytes
	return resp, nil
}

// shape gives the reply the form of one that was not streamed.
func (s *stream) shape() {
	s.doc.Set("object", delta.NewString("chat.completion"))
	for _, c := range s.doc.Get("choices").Items() {
		m := c.Get("message")
		if !m.Get("role").Has() {
			m.Set("role", delta.NewString("assistant"))
		}
		if m.Get("content") == nil {
			m.Set("content", delta.Null())
		}
		for _, call := range m.Get("tool_calls").Items() {
			call.Delete("index")
		}
	}
}

// partial is what has come so far, nil when that is nothing.
func (s *stream) partial() *provider.Response {
	if s.tokens == 0 {
		return nil
	}
	s.shape()
	resp, _, _ := finish(s.doc, false)
	if resp == nil {
		return nil
	}
	resp.Reply, resp.Bytes = s.doc.Append(nil), s.x.Bytes
	if !resp.Usage.Known {
		resp.Usage.OutputTokens = s.tokens
	}
	return resp
}

func (s *stream) reject(code, message string, partial *provider.Response) *provider.Error {
	f := s.x.New(code, message)
	if f.Partial = partial; partial != nil && f.Billed == provider.BilledUnknown {
		f.Billed = provider.BilledYes
	}
	return f
}

// fail turns an error event into an Error. Once tokens came, "come back later" no longer means that nothing was done.
func (s *stream) fail(e upstreamError) *provider.Error {
	f := e.rule(s.x)
	if s.tokens == 0 {
		return f
	}
	if f.Class != provider.Rejected {
		after := s.reject(provider.CodeStreamError, f.Message, nil)
		after.Gate, after.RetryAfter, after.ProviderCode = f.Gate, f.RetryAfter, f.ProviderCode
		f = after
	}
	f.Partial, f.Billed = s.partial(), provider.BilledYes
	return f
}
