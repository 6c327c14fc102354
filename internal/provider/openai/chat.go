package openai

import (
	"strings"

	"github.com/onefold-dev/onefold/internal/provider"
	"github.com/onefold-dev/onefold/internal/provider/delta"
	"github.com/onefold-dev/onefold/internal/provider/dialect"
	"github.com/onefold-dev/onefold/internal/provider/wire"
)

// chatBody is the request as it is sent: every field as the caller wrote it, but stream and stream_options as the call
// needs them.
func (p *Provider) chatBody(r provider.Request) ([]byte, error) {
	body, err := dialect.ParseObject(r.Body)
	if err != nil {
		return nil, err
	}
	body.Delete("stream")
	options := body.Delete("stream_options")
	if r.Stream {
		body.Set("stream", []byte("true"))
		if !p.opts.NoUsage {
			body.Set("stream_options", withUsage(options))
		} else if options != nil {
			body.Set("stream_options", options)
		}
	}
	return body.Bytes(), nil
}

// withUsage sets include_usage in the caller's stream_options.
func withUsage(options []byte) []byte {
	o, err := dialect.ParseObject(options)
	if err != nil {
		o = &dialect.Object{} // null or nonsense: there is nothing to keep
	}
	o.Set("include_usage", []byte("true"))
	return o.Bytes()
}

// chatError finds an error in a chat completions document; some gateways put it into a choice.
func chatError(doc *delta.Value) *dialect.Said {
	for _, c := range doc.Get("choices").Items() {
		if e := c.Get("error"); e.IsObject() {
			return dialect.SaidBy(e)
		}
	}
	return dialect.ErrorIn(doc, "choices")
}

func chatDocument(x *wire.Exchange, doc *delta.Value, raw []byte) (*provider.Response, *provider.Error) {
	if said := chatError(doc); said != nil {
		return nil, dialect.WithReply(said.InReply(x), raw)
	}
	resp, code, message := finishChat(doc, true)
	if code != "" {
		fail := dialect.WithReply(x.New(code, message), raw)
		fail.Partial = resp
		return nil, fail
	}
	resp.Reply, resp.Bytes, resp.Phases = delta.Repair(raw), x.Bytes, x.Finish()
	return resp, nil
}

// finishChat judges a reply that says it is complete. It returns the response and, when it cannot be used, why.
func finishChat(doc *delta.Value, complete bool) (resp *provider.Response, code, message string) {
	resp = &provider.Response{Model: doc.Get("model").Text(), Usage: chatUsage(doc.Get("usage"))}
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

func chatUsage(u *delta.Value) provider.Usage {
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
