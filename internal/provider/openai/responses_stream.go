package openai

import (
	"io"
	"strings"

	"github.com/onefold-dev/onefold/internal/provider"
	"github.com/onefold-dev/onefold/internal/provider/delta"
	"github.com/onefold-dev/onefold/internal/provider/dialect"
	"github.com/onefold-dev/onefold/internal/provider/wire"
)

// responseStream follows one streamed response. Its last event brings the whole response; what comes before is put
// together for the case that the last one never comes.
type responseStream struct {
	x      *wire.Exchange
	doc    *delta.Value // the response so far
	tokens int64        // pieces that brought something
	final  bool         // doc is the response of a last event
}

func responsesStream(x *wire.Exchange, r io.Reader) (*provider.Response, *provider.Error) {
	s := &responseStream{x: x, doc: delta.NewObject()}
	_, fail, err := dialect.ReadStream(x, r, s, responsesError)
	if fail != nil {
		return nil, fail
	}
	if !s.final {
		return nil, s.x.Fail(err, true, s.Partial())
	}
	resp, fail := finishResponse(x, s.doc)
	if fail != nil {
		return nil, s.failed(fail)
	}
	resp.Reply = s.doc.Append(nil)
	resp.Phases, resp.Bytes = x.Finish(), x.Bytes
	return resp, nil
}

// failed puts on a failed response what had come. Once tokens came, "come back later" no longer means that nothing was
// done.
func (s *responseStream) failed(f *provider.Error) *provider.Error {
	partial := s.Partial()
	if s.tokens > 0 && s.doc.Get("status").Text() == statusFailed {
		return dialect.SaidBy(s.doc.Get("error")).AfterTokens(s.x, partial)
	}
	if f.Partial = partial; partial != nil && f.Billed == provider.BilledUnknown {
		f.Billed = provider.BilledYes
	}
	return f
}

// Add takes one event in. Its type says what it is of; a type that is not known is a note of a tool at work.
func (s *responseStream) Add(piece *delta.Value) (ended bool) {
	kind, of := piece.Get("type").Text(), piece.Get("response")
	switch kind {
	case "response.created", "response.queued", "response.in_progress":
		if of.IsObject() && s.tokens == 0 {
			s.doc = of
		}
	case "response.completed", "response.incomplete", "response.failed", "response.cancelled":
		s.end(of)
		return true
	case "response.output_item.added", "response.output_item.done":
		if item := piece.Get("item"); item.IsObject() {
			s.put(index(piece, "output_index"), item)
		}
		if kind == "response.output_item.done" {
			s.x.Progress()
		}
	case "response.content_part.added":
		s.part(piece, "content", "content_index", piece.Get("part"))
	case "response.reasoning_summary_part.added":
		s.part(piece, "summary", "summary_index", piece.Get("part"))
	case "response.output_text.delta":
		s.grow(piece, "content", "content_index", "output_text", "text")
	case "response.refusal.delta":
		s.grow(piece, "content", "content_index", "refusal", "refusal")
	case "response.reasoning_text.delta":
		s.grow(piece, "content", "content_index", "reasoning_text", "text")
	case "response.reasoning_summary_text.delta":
		s.grow(piece, "summary", "summary_index", "summary_text", "text")
	case "response.function_call_arguments.delta", "response.mcp_call_arguments.delta":
		s.growItem(piece, "arguments")
	case "response.custom_tool_call_input.delta":
		s.growItem(piece, "input")
	default:
		if strings.HasSuffix(kind, ".delta") && piece.Get("delta").Len() > 0 {
			s.token()
		}
	}
	return false
}

// end takes the response of the last event. One that leaves out what it has said before, as some servers' do, is
// completed.
func (s *responseStream) end(of *delta.Value) {
	if !of.IsObject() {
		return
	}
	if output := s.doc.Get("output"); len(of.Get("output").Items()) == 0 && len(output.Items()) > 0 {
		of.Set("output", output)
	}
	s.doc, s.final = of, true
	s.x.Terminal()
}

func (s *responseStream) token() {
	s.tokens++
	s.x.Progress()
}

func index(piece *delta.Value, name string) int {
	n, _ := piece.Get(name).Int()
	return int(min(max(n, 0), 1<<10))
}

// put sets an item of the output; items come in order.
func (s *responseStream) put(i int, item *delta.Value) {
	s.output().SetItem(i, item)
}

func (s *responseStream) output() *delta.Value {
	if !s.doc.Get("output").IsArray() {
		s.doc.Set("output", delta.NewArray())
	}
	return s.doc.Get("output")
}

// list is a list inside the item that a piece belongs to.
func (s *responseStream) list(piece *delta.Value, name string) *delta.Value {
	out := s.output()
	i := index(piece, "output_index")
	if i >= len(out.Items()) || !out.Items()[i].IsObject() {
		item := delta.NewObject()
		item.Set("type", delta.NewString("message"))
		out.SetItem(i, item)
	}
	item := out.Items()[i]
	if !item.Get(name).IsArray() {
		item.Set(name, delta.NewArray())
	}
	return item.Get(name)
}

func (s *responseStream) part(piece *delta.Value, list, at string, part *delta.Value) {
	if part.IsObject() {
		s.list(piece, list).SetItem(index(piece, at), part)
	}
}

// grow appends a delta to the text of a part.
func (s *responseStream) grow(piece *delta.Value, list, at, kind, name string) {
	d := piece.Get("delta")
	if d.Len() == 0 {
		return
	}
	parts, i := s.list(piece, list), index(piece, at)
	if i >= len(parts.Items()) || !parts.Items()[i].IsObject() {
		part := delta.NewObject()
		part.Set("type", delta.NewString(kind))
		parts.SetItem(i, part)
	}
	parts.Items()[i].Grow(name, d)
	s.token()
}

// growItem appends a delta to a text of an item.
func (s *responseStream) growItem(piece *delta.Value, name string) {
	d, i := piece.Get("delta"), index(piece, "output_index")
	if d.Len() == 0 {
		return
	}
	if items := s.output().Items(); i < len(items) && items[i].IsObject() {
		items[i].Grow(name, d)
	}
	s.token()
}

// Tokens counts the pieces that brought something.
func (s *responseStream) Tokens() int64 { return s.tokens }

// Len is the size of the text so far.
func (s *responseStream) Len() int64 { return int64(s.doc.Len()) }

// Partial is what has come so far, nil when that is nothing.
func (s *responseStream) Partial() *provider.Response {
	if s.tokens == 0 {
		return nil
	}
	resp := partialResponse(s.doc)
	resp.Reply, resp.Bytes = s.doc.Append(nil), s.x.Bytes
	if !resp.Usage.Known {
		resp.Usage.OutputTokens = s.tokens
	}
	return resp
}
