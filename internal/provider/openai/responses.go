package openai

import (
	"strings"

	"github.com/onefold-dev/onefold/internal/provider"
	"github.com/onefold-dev/onefold/internal/provider/delta"
	"github.com/onefold-dev/onefold/internal/provider/dialect"
	"github.com/onefold-dev/onefold/internal/provider/wire"
)

// The states of a response, by the documentation of the responses API.
const (
	statusCompleted  = "completed"
	statusIncomplete = "incomplete"
	statusFailed     = "failed"
	statusCancelled  = "cancelled"
	statusQueued     = "queued"
	statusInProgress = "in_progress"
)

// responsesBody is the request as it is sent: every field as the caller wrote it, but stream as the call needs it, and
// never in the background, where the reply would be a promise of one.
func responsesBody(r provider.Request) ([]byte, error) {
	body, err := dialect.ParseObject(r.Body)
	if err != nil {
		return nil, err
	}
	body.Delete("background")
	body.Delete("stream")
	if r.Stream {
		body.Set("stream", []byte("true"))
	} else {
		body.Delete("stream_options") // refused without stream
	}
	return body.Bytes(), nil
}

// responsesError finds an error that stands in the place of a response. The error of a failed response is inside it.
func responsesError(doc *delta.Value) *dialect.Said {
	if doc.Get("object").Text() == "response" || strings.HasPrefix(doc.Get("type").Text(), "response.") {
		return nil
	}
	return dialect.ErrorIn(doc, "output")
}

func responsesDocument(x *wire.Exchange, doc *delta.Value, raw []byte) (*provider.Response, *provider.Error) {
	if said := responsesError(doc); said != nil {
		return nil, dialect.WithReply(said.InReply(x), raw)
	}
	resp, fail := finishResponse(x, doc)
	if fail != nil {
		return nil, dialect.WithReply(fail, raw)
	}
	resp.Reply, resp.Bytes, resp.Phases = delta.Repair(raw), x.Bytes, x.Finish()
	return resp, nil
}

// finishResponse judges a response that is not to change any more.
func finishResponse(x *wire.Exchange, doc *delta.Value) (*provider.Response, *provider.Error) {
	resp := partialResponse(doc)
	refuse := func(code, message string) (*provider.Response, *provider.Error) {
		fail := x.New(code, message)
		fail.Partial = resp
		return nil, fail
	}
	status := doc.Get("status").Text()
	resp.FinishReason = status
	switch status {
	case statusCompleted:
	case statusIncomplete:
		resp.FinishReason = doc.Get("incomplete_details", "reason").Text()
		if resp.FinishReason == "" {
			resp.FinishReason = statusIncomplete
		}
		resp.Truncated = resp.FinishReason != "content_filter"
	case statusFailed:
		fail := dialect.SaidBy(doc.Get("error")).InReply(x)
		fail.Partial = resp
		return nil, fail
	case statusCancelled:
		return refuse(provider.CodeJobCancelled, "the response was cancelled")
	case statusQueued, statusInProgress:
		return refuse(provider.CodeProtocol, "the reply is a response that is still "+status)
	case "":
		if doc.Get("output") == nil {
			return refuse(provider.CodeProtocol, "the reply is no response: it has neither status nor output")
		}
		return refuse(provider.CodeNoFinishReason, "the response has no status")
	default:
		return refuse(provider.CodeNoFinishReason, "the response has a status that is not known")
	}
	switch {
	case resp.FinishReason == "content_filter":
		return refuse(provider.CodeContentFiltered, "the provider filtered the content")
	case !answers(doc) && !resp.Truncated:
		return refuse(provider.CodeEmpty, "the response has no content")
	}
	return resp, nil
}

// partialResponse is what a response holds, finished or not.
func partialResponse(doc *delta.Value) *provider.Response {
	resp := &provider.Response{Model: doc.Get("model").Text(), Usage: responseUsage(doc.Get("usage"))}
	var b strings.Builder
	for _, item := range doc.Get("output").Items() {
		if item.Get("type").Text() == "message" {
			b.WriteString(text(item.Get("content")))
		}
	}
	resp.Text = b.String()
	return resp
}

// answers says whether a response holds anything but reasoning: text, a refusal, a call of a tool.
func answers(doc *delta.Value) bool {
	for _, item := range doc.Get("output").Items() {
		switch item.Get("type").Text() {
		case "reasoning":
		case "message":
			for _, part := range item.Get("content").Items() {
				if part.Get("text").Text() != "" || part.Get("refusal").Text() != "" {
					return true
				}
			}
		default:
			return true
		}
	}
	return false
}

func responseUsage(u *delta.Value) provider.Usage {
	if !u.IsObject() {
		return provider.Usage{}
	}
	number := func(names ...string) int64 {
		n, _ := u.Get(names...).Int()
		return max(n, 0)
	}
	out := provider.Usage{
		Known: true, InputTokens: number("input_tokens"), OutputTokens: number("output_tokens"),
		CachedTokens:    number("input_tokens_details", "cached_tokens"),
		ReasoningTokens: number("output_tokens_details", "reasoning_tokens"), TotalTokens: number("total_tokens"),
	}
	if out.TotalTokens == 0 {
		out.TotalTokens = out.InputTokens + out.OutputTokens
	}
	return out
}
