package anthropic

import (
	"strings"

	"github.com/onefold-dev/onefold/internal/provider"
	json "github.com/onefold-dev/onefold/internal/provider/delta"
	"github.com/onefold-dev/onefold/internal/provider/dialect"
	"github.com/onefold-dev/onefold/internal/provider/wire"
)

type delta = json.Value

func document(x *wire.Exchange, doc *delta, raw []byte) (*provider.Response, *provider.Error) {
	if said := errorIn(doc); said != nil {
		return nil, dialect.WithReply(said.InReply(x), raw)
	}
	resp, code, message := finish(doc)
	if code != "" {
		fail := dialect.WithReply(x.New(code, message), raw)
		fail.Partial = resp
		return nil, fail
	}
	resp.Reply, resp.Bytes, resp.Phases = json.Repair(raw), x.Bytes, x.Finish()
	return resp, nil
}

// finish judges a message that says it is complete. It returns the response and, when it cannot be used, why.
func finish(doc *delta) (resp *provider.Response, code, message string) {
	if !doc.Get("content").IsArray() {
		return nil, provider.CodeProtocol, "the reply is no message: it has no content"
	}
	resp = partial(doc)
	switch {
	case resp.FinishReason == "":
		return resp, provider.CodeNoFinishReason, "the message has no stop reason"
	case resp.FinishReason == "refusal":
		return resp, provider.CodeContentFiltered, "the model refused the content"
	case !hasContent(doc) && !resp.Truncated:
		return resp, provider.CodeEmpty, "the message has no content"
	}
	return resp, "", ""
}

// partial is what a message holds, finished or not.
func partial(doc *delta) *provider.Response {
	var b strings.Builder
	for _, block := range doc.Get("content").Items() {
		if block.Get("type").Text() == "text" {
			b.WriteString(block.Get("text").Text())
		}
	}
	reason := doc.Get("stop_reason").Text()
	return &provider.Response{
		Model: doc.Get("model").Text(), Usage: usage(doc.Get("usage")), Text: b.String(), FinishReason: reason,
		Truncated: reason == "max_tokens" || reason == "model_context_window_exceeded",
	}
}

// hasContent says whether a message holds anything but thought: text, a call of a tool.
func hasContent(doc *delta) bool {
	for _, block := range doc.Get("content").Items() {
		switch block.Get("type").Text() {
		case "thinking", "redacted_thinking":
		case "text":
			if block.Get("text").Text() != "" {
				return true
			}
		default:
			return true
		}
	}
	return false
}

// usage reads the counts. The API counts cached input apart from input_tokens; here the input is all of it, as with
// the other providers.
func usage(u *delta) provider.Usage {
	if !u.IsObject() {
		return provider.Usage{}
	}
	number := func(name string) int64 {
		n, _ := u.Get(name).Int()
		return max(n, 0)
	}
	cached := number("cache_read_input_tokens")
	in := number("input_tokens") + number("cache_creation_input_tokens") + cached
	out := number("output_tokens")
	return provider.Usage{Known: true, InputTokens: in, CachedTokens: cached, OutputTokens: out, TotalTokens: in + out}
}

// errorIn finds an error document or event. Pings and the events of a stream have a type, and are none.
func errorIn(doc *delta) *dialect.Said { return dialect.ErrorIn(doc, "content") }
