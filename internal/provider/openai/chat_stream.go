package openai

import (
	"io"

	"github.com/onefold-dev/onefold/internal/provider"
	"github.com/onefold-dev/onefold/internal/provider/delta"
	"github.com/onefold-dev/onefold/internal/provider/dialect"
	"github.com/onefold-dev/onefold/internal/provider/wire"
)

// replaced are the fields of a message that a later piece replaces instead of adding to.
var replaced = map[string]bool{
	"id": true, "type": true, "role": true, "name": true, "index": true,
}

// stream puts one streamed chat completion together.
type stream struct {
	x      *wire.Exchange
	doc    *delta.Value // the reply so far; its choices hold "message" instead of "delta"
	tokens int64        // pieces that brought something
}

func chatStream(x *wire.Exchange, r io.Reader) (*provider.Response, *provider.Error) {
	s := &stream{x: x, doc: delta.NewObject()}
	ended, fail, err := dialect.ReadStream(x, r, s, chatError)
	if fail != nil {
		return nil, fail
	}
	return s.close(ended, err)
}

// Add takes one event in; anything without choices or usage is a ping or a note of some gateway.
func (s *stream) Add(piece *delta.Value) (ended bool) {
	if piece.Get("choices") != nil || piece.Get("usage") != nil {
		s.merge(piece)
	}
	return false
}

// Tokens counts the pieces that brought something.
func (s *stream) Tokens() int64 { return s.tokens }

// Len is the size of the text so far.
func (s *stream) Len() int64 { return int64(s.doc.Len()) }

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
func (s *stream) close(ended bool, err error) (*provider.Response, *provider.Error) {
	if !ended && !s.finished() {
		return nil, s.x.Fail(err, true, s.Partial())
	}
	if s.doc.Get("choices") == nil {
		return nil, s.x.New(provider.CodeEmpty, "the stream ended without a choice")
	}
	s.shape()
	resp, code, message := finishChat(s.doc, true)
	if code != "" {
		return nil, dialect.Reject(s.x, s, code, message)
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
		for _, name := range []string{"content", "refusal"} { // always there in the other form, null or not
			if m.Get(name) == nil {
				m.Set(name, delta.Null())
			}
		}
		if c.Get("logprobs") == nil {
			c.Set("logprobs", delta.Null())
		}
		for _, call := range m.Get("tool_calls").Items() {
			call.Delete("index")
		}
	}
}

// Partial is what has come so far, nil when that is nothing.
func (s *stream) Partial() *provider.Response {
	if s.tokens == 0 {
		return nil
	}
	s.shape()
	resp, _, _ := finishChat(s.doc, false)
	if resp == nil {
		return nil
	}
	resp.Reply, resp.Bytes = s.doc.Append(nil), s.x.Bytes
	if !resp.Usage.Known {
		resp.Usage.OutputTokens = s.tokens
	}
	return resp
}
