package httpcall

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/onefold-dev/onefold/internal/provider"
	"github.com/onefold-dev/onefold/internal/provider/delta"
	"github.com/onefold-dev/onefold/internal/provider/dialect"
	"github.com/onefold-dev/onefold/internal/provider/wire"
)

// maxEffects bounds the effects of one answer.
const maxEffects = 100

// answer judges the document with which a service answers a task.
func answer(x *wire.Exchange, doc *delta.Value, raw []byte) (*provider.Response, *provider.Error) {
	refuse := func(code, message string) (*provider.Response, *provider.Error) {
		f := dialect.WithReply(x.New(code, message), raw)
		f.SendsUsed = sendsUsed(doc)
		return nil, f
	}
	if e := doc.Get("error"); e.Has() {
		said := dialect.Said{Message: e.Text()}
		if e.IsObject() {
			said = *dialect.SaidBy(e)
		}
		f := dialect.WithReply(said.InReply(x), raw)
		f.SendsUsed = sendsUsed(doc)
		return nil, f
	}
	result := doc.Get("result")
	if result == nil {
		return refuse(provider.CodeProtocol, "the answer has neither result nor error")
	}
	effects, ok := effectsOf(doc.Get("effects"))
	if !ok {
		return refuse(provider.CodeProtocol, "effects is no list of at most 100 objects with a name each, all different, and a type")
	}
	resp := &provider.Response{
		Reply: memberOf(raw, "result"), Text: result.Text(), FinishReason: "done", Model: doc.Get("model").Text(),
		Usage: usageOf(doc.Get("usage")), SendsUsed: sendsUsed(doc), Effects: effects,
	}
	if !result.IsString() {
		resp.Text = string(resp.Reply)
	}
	if reason := doc.Get("finish_reason").Text(); reason != "" {
		resp.FinishReason = reason
	}
	resp.Truncated = doc.Get("truncated").IsTrue()
	return resp, nil
}

// memberOf is a member's bytes as they came; ill-formed Unicode becomes U+FFFD.
func memberOf(raw []byte, name string) []byte {
	repaired := delta.Repair(raw)
	if o, err := dialect.ParseObject(repaired); err == nil {
		return o.Get(name)
	}
	doc, err := delta.Parse(repaired) // a name that stands twice: the last counts
	if err != nil {
		return nil
	}
	return doc.Get(name).Append(nil)
}

func sendsUsed(doc *delta.Value) int {
	n, _ := doc.Get("sends_used").Int()
	return int(min(max(n, 0), 1_000_000))
}

func usageOf(u *delta.Value) provider.Usage {
	if !u.IsObject() {
		return provider.Usage{}
	}
	number := func(name string) int64 {
		n, _ := u.Get(name).Int()
		return max(n, 0)
	}
	out := provider.Usage{
		Known: true, InputTokens: number("input_tokens"), CachedTokens: number("cached_tokens"),
		OutputTokens: number("output_tokens"), ReasoningTokens: number("reasoning_tokens"),
	}
	out.TotalTokens = out.InputTokens + out.OutputTokens
	return out
}

// effectsOf reads the effects that a service asks for; what each of them is, whoever stores it checks.
func effectsOf(list *delta.Value) ([]provider.Effect, bool) {
	if !list.Has() {
		return nil, true
	}
	if !list.IsArray() || len(list.Items()) > maxEffects {
		return nil, false
	}
	seen := map[string]bool{}
	var out []provider.Effect
	for _, item := range list.Items() {
		e := provider.Effect{Name: item.Get("name").Text(), Type: item.Get("type").Text(), Raw: item.Append(nil)}
		if e.Name == "" || e.Type == "" || seen[e.Name] {
			return nil, false
		}
		seen[e.Name] = true
		out = append(out, e)
	}
	return out, true
}

// statusLimit bounds one status request.
const statusLimit = 10 * time.Second

// Status asks the service what became of a task; see provider.StatusChecker.
func (a *Asked) Status(ctx context.Context, r provider.Request) provider.Status {
	r.Timeouts = provider.Timeouts{Connect: r.Timeouts.Connect, FirstByte: statusLimit, Idle: statusLimit, Total: statusLimit}
	path := strings.ReplaceAll(strings.TrimPrefix(a.path, "/"), TaskPlace, url.PathEscape(r.TaskID))
	send, fail := a.send(r, http.MethodGet, a.at.At(path), nil)
	if fail != nil {
		return provider.Status{Known: provider.CannotTell, Err: fail}
	}
	x, fail := a.wire.Do(ctx, send)
	if fail != nil {
		return unclear(fail.Message)
	}
	defer x.Close()
	if x.Status < 200 || x.Status > 299 {
		fail, _ := dialect.StatusError(x)
		return unclear(fail.Message)
	}
	doc, raw, fail := dialect.Document(x, x)
	if fail != nil {
		return unclear(fail.Message)
	}
	switch doc.Get("status").Text() {
	case string(provider.Done):
		resp, fail := answer(x, doc, raw)
		if fail != nil && fail.Code == provider.CodeProtocol {
			return unclear(fail.Message)
		}
		if resp != nil {
			resp.Phases, resp.Bytes = x.Finish(), x.Bytes
		}
		return provider.Status{Known: provider.Done, Response: resp, Err: fail}
	case string(provider.NotDone):
		return provider.Status{Known: provider.NotDone}
	case string(provider.Working):
		after, _ := provider.RetryAfter(x.Header, time.Now())
		return provider.Status{Known: provider.Working, After: after}
	case string(provider.CannotTell):
		return unclear("the service cannot tell what became of the task")
	}
	return unclear("the answer to the status request has no status that is known")
}

func unclear(message string) provider.Status {
	return provider.Status{Known: provider.CannotTell, Err: provider.New(provider.CodeStatusUnclear, message)}
}
