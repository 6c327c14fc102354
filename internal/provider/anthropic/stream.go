package anthropic

import (
	"io"

	"github.com/onefold-dev/onefold/internal/provider"
	json "github.com/onefold-dev/onefold/internal/provider/delta"
	"github.com/onefold-dev/onefold/internal/provider/dialect"
	"github.com/onefold-dev/onefold/internal/provider/wire"
)

// assembly puts one streamed message together.
type assembly struct {
	x      *wire.Exchange
	doc    *delta // the message so far
	tokens int64  // pieces that brought something
	inputs map[int]*delta
}

func stream(x *wire.Exchange, r io.Reader) (*provider.Response, *provider.Error) {
	s := &assembly{x: x, doc: json.NewObject()}
	ended, fail, err := dialect.ReadStream(x, r, s, errorIn)
	if fail != nil {
		return nil, fail
	}
	if !ended && s.doc.Get("stop_reason").Text() == "" {
		return nil, x.Fail(err, true, s.Partial())
	}
	s.content()
	s.closeInputs()
	resp, code, message := finish(s.doc)
	if code != "" {
		return nil, dialect.Reject(x, s, code, message)
	}
	resp.Reply = s.doc.Append(nil)
	resp.Phases, resp.Bytes = x.Finish(), x.Bytes
	return resp, nil
}

// Add takes one event in. Its type says what it is; pings and types that are not known are left, as the API asks.
func (s *assembly) Add(piece *delta) (ended bool) {
	switch piece.Get("type").Text() {
	case "message_start":
		if m := piece.Get("message"); m.IsObject() && s.tokens == 0 {
			s.doc = m
		}
	case "content_block_start":
		items, i := s.content().Items(), index(piece)
		if block := piece.Get("content_block"); block.IsObject() && (i >= len(items) || !items[i].IsObject()) {
			s.content().SetItem(i, block)
			if block.Get("text").Len() > 0 {
				s.token()
			}
		}
	case "content_block_delta":
		s.grow(index(piece), piece.Get("delta"))
	case "message_delta":
		s.update(piece)
	case "message_stop":
		s.x.Terminal()
		return true
	}
	return false
}

func index(piece *delta) int {
	n, _ := piece.Get("index").Int()
	return int(min(max(n, 0), 1<<10))
}

func (s *assembly) content() *delta {
	if !s.doc.Get("content").IsArray() {
		s.doc.Set("content", json.NewArray())
	}
	return s.doc.Get("content")
}

func (s *assembly) token() {
	s.tokens++
	s.x.Progress()
}

// grow adds a delta to its block: text to the member of the same name, a citation to the citations, a part of a tool's
// input to what is read as JSON once it is whole.
func (s *assembly) grow(i int, d *delta) {
	content := s.content()
	if i >= len(content.Items()) || !content.Items()[i].IsObject() {
		block := json.NewObject()
		block.Set("type", json.NewString("text"))
		content.SetItem(i, block)
	}
	block := content.Items()[i]
	brought := false
	for name, v := range d.Members() {
		switch {
		case name == "type" || v.Len() == 0:
			continue
		case name == "citation":
			if !block.Get("citations").IsArray() {
				block.Set("citations", json.NewArray())
			}
			block.Get("citations").Add(v)
		case name == "partial_json":
			if s.inputs == nil {
				s.inputs = map[int]*delta{}
			}
			if s.inputs[i] == nil {
				s.inputs[i] = json.NewObject()
			}
			s.inputs[i].Grow("json", v)
		default:
			block.Grow(name, v)
		}
		brought = true
	}
	if brought {
		s.token()
	}
}

// closeInputs puts the inputs of tools in their places. One that is no JSON, because the output was cut, stays text.
func (s *assembly) closeInputs() {
	for i, input := range s.inputs {
		text := input.Get("json")
		if whole, err := json.Parse([]byte(text.Text())); err == nil {
			text = whole
		}
		s.content().Items()[i].Set("input", text)
	}
	s.inputs = nil
}

// update takes what changes at the end: stop reason and counts, which are sums so far.
func (s *assembly) update(piece *delta) {
	for name, v := range piece.Get("delta").Members() {
		if v.Has() {
			s.doc.Set(name, v)
		}
	}
	counts := piece.Get("usage")
	if counts.IsObject() && !s.doc.Get("usage").IsObject() {
		s.doc.Set("usage", json.NewObject())
	}
	for name, v := range counts.Members() {
		if v.Has() {
			s.doc.Get("usage").Set(name, v)
		}
	}
	if s.doc.Get("stop_reason").Text() != "" {
		s.x.Progress()
		s.x.Terminal()
	}
}

// Tokens counts the pieces that brought something.
func (s *assembly) Tokens() int64 { return s.tokens }

// Len is the size of the text so far.
func (s *assembly) Len() int64 {
	n := int64(s.doc.Len())
	for _, input := range s.inputs {
		n += int64(input.Len())
	}
	return n
}

// Partial is what has come so far, nil when that is nothing.
func (s *assembly) Partial() *provider.Response {
	if s.tokens == 0 {
		return nil
	}
	s.closeInputs()
	resp := partial(s.doc)
	resp.Reply, resp.Bytes = s.doc.Append(nil), s.x.Bytes
	resp.Usage.OutputTokens = max(resp.Usage.OutputTokens, s.tokens)
	return resp
}
