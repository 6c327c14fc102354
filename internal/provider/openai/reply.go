package openai

import (
	"bufio"
	"bytes"
	"mime"
	"strings"

	"github.com/onefold-dev/onefold/internal/provider"
	"github.com/onefold-dev/onefold/internal/provider/delta"
	"github.com/onefold-dev/onefold/internal/provider/wire"
)

// read reads the reply, whatever it turns out to be: servers answer a streamed request with a document, and the other
// way round, and some name neither.
func read(x *wire.Exchange, streamed bool) (*provider.Response, *provider.Error) {
	if x.Status < 200 || x.Status > 299 {
		return nil, statusError(x)
	}
	media, _, _ := mime.ParseMediaType(x.Header.Get("Content-Type"))
	if media == "text/event-stream" {
		return readStream(x, x)
	}
	r := bufio.NewReaderSize(x, 4<<10)
	if streamed && looksLikeStream(r, x.MaxReply()) {
		return readStream(x, r)
	}
	return readDocument(x, r)
}

// looksLikeStream says whether what comes starts with a field of an event stream. White space before it (sent to keep
// the connection alive) is read over, as much as a reply may be long. An error is left for the next read.
func looksLikeStream(r *bufio.Reader, limit int64) bool {
	for n := int64(0); n < limit; n++ {
		b, err := r.Peek(1)
		if err != nil {
			return false
		}
		if b[0] != ' ' && b[0] != '\r' && b[0] != '\n' && b[0] != '\t' {
			break
		}
		_, _ = r.Discard(1)
	}
	b, err := r.Peek(1)
	if err != nil {
		return false
	}
	if b[0] == 0xEF || strings.IndexByte("deir:", b[0]) >= 0 {
		b, _ = r.Peek(5)
	}
	b = bytes.TrimPrefix(b, []byte("\xEF\xBB\xBF"))
	for _, field := range []string{":", "data", "event", "id:", "retry"} {
		if n := min(len(field), len(b)); n > 0 && string(b[:n]) == field[:n] {
			return true
		}
	}
	return false
}

func readDocument(x *wire.Exchange, r *bufio.Reader) (*provider.Response, *provider.Error) {
	b, err := x.ReadAll(r)
	if err != nil {
		return nil, x.Fail(err, false, nil)
	}
	b = bytes.TrimSpace(bytes.TrimPrefix(b, []byte("\xEF\xBB\xBF")))
	doc, err := delta.Parse(b)
	if err != nil || !doc.IsObject() {
		return nil, withReply(x.New(provider.CodeProtocol, protocolMessage(x, b)), b)
	}
	x.Terminal()
	if f := errorIn(doc); f != nil {
		return nil, withReply(f.rule(x), b)
	}
	resp, code, message := finish(doc, true)
	if code != "" {
		fail := withReply(x.New(code, message), b)
		fail.Partial = resp
		return nil, fail
	}
	resp.Reply, resp.Bytes, resp.Phases = delta.Repair(b), x.Bytes, x.Finish()
	return resp, nil
}

func withReply(f *provider.Error, b []byte) *provider.Error {
	f.Reply = b
	return f
}

func protocolMessage(x *wire.Exchange, b []byte) string {
	switch media, _, _ := mime.ParseMediaType(x.Header.Get("Content-Type")); {
	case len(b) == 0:
		return "the reply is empty"
	case media == "text/html" || b[0] == '<':
		return "the reply is an HTML page: base_url may be wrong, or a proxy answers in the provider's place"
	}
	return "the reply is not one JSON object"
}

// finish judges a reply that says it is complete. It returns the response and, when it cannot be used, why.
func finish(doc *delta.Value, complete bool) (resp *provider.Response, code, message string) {
	resp = &provider.Response{Model: doc.Get("model").Text(), Usage: usage(doc.Get("usage"))}
	choices := doc.Get("choices")
	first := firstChoice(choices)
	if first == nil {
		if choices == nil {
			return nil, provider.CodeProtocol, "the reply has no choices"
		}
		return nil, provider.CodeEmpty, "the reply has an empty list of choices"
	}
	content := first.Get("message")
	resp.Text = text(content.Get("content"))
	resp.FinishReason = first.Get("finish_reason").Text()
	resp.Truncated = truncated(resp.FinishReason)
	switch reason := resp.FinishReason; {
	case reason == "error":
		return resp, provider.CodeUpstreamError, `the finish reason is "error"`
	case reason == "content_filter":
		return resp, provider.CodeContentFiltered, "the provider filtered the content"
	case complete && unfinished(choices):
		return resp, provider.CodeNoFinishReason, "a choice has no finish reason"
	case !hasContent(content) && !resp.Truncated:
		return resp, provider.CodeEmpty, "the choice has no content"
	}
	return resp, "", ""
}

// firstChoice is the choice with the lowest index.
func firstChoice(choices *delta.Value) *delta.Value {
	var first *delta.Value
	var lowest int64
	for _, c := range choices.Items() {
		if n, _ := c.Get("index").Int(); first == nil || n < lowest {
			first, lowest = c, n
		}
	}
	return first
}

// unfinished says whether a choice lacks a finish reason; "" is none.
func unfinished(choices *delta.Value) bool {
	for _, c := range choices.Items() {
		if c.Get("finish_reason").Text() == "" {
			return true
		}
	}
	return false
}

// truncated says whether a finish reason means "cut by length". Words that are not known are no such claim.
func truncated(reason string) bool {
	switch strings.ToLower(reason) {
	case "length", "max_tokens", "model_length", "max_output_tokens":
		return true
	}
	return false
}

// text is the text of a content, which is a string or a list of parts.
func text(content *delta.Value) string {
	if content.IsString() {
		return content.Text()
	}
	var b strings.Builder
	for _, part := range content.Items() {
		b.WriteString(part.Get("text").Text())
	}
	return b.String()
}

// hasContent says whether a message holds anything: text, a refusal, a tool call, audio.
func hasContent(message *delta.Value) bool {
	if c := message.Get("content"); c.IsString() && c.Text() != "" || len(c.Items()) > 0 {
		return true
	}
	return message.Get("refusal").Text() != "" || len(message.Get("tool_calls").Items()) > 0 ||
		message.Get("function_call").IsObject() || message.Get("audio").IsObject()
}

func usage(u *delta.Value) provider.Usage {
	if !u.IsObject() {
		return provider.Usage{}
	}
	number := func(names ...string) int64 {
		n, _ := u.Get(names...).Int()
		return max(n, 0)
	}
	out := provider.Usage{
		Known: true, InputTokens: number("prompt_tokens"), OutputTokens: number("completion_tokens"),
		CachedTokens:    max(number("prompt_tokens_details", "cached_tokens"), number("prompt_cache_hit_tokens")),
		ReasoningTokens: number("completion_tokens_details", "reasoning_tokens"), TotalTokens: number("total_tokens"),
	}
	if out.TotalTokens == 0 {
		out.TotalTokens = out.InputTokens + out.OutputTokens
	}
	return out
}
