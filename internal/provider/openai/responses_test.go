package openai_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/onefold-dev/onefold/internal/provider"
	"github.com/onefold-dev/onefold/internal/provider/openai"
	"github.com/onefold-dev/onefold/internal/provider/providertest"
	"github.com/onefold-dev/onefold/internal/provider/wire"
)

type object = map[string]any

// response is a response document with a text.
func response(status, text string) object {
	return object{
		"id": "resp_1", "object": "response", "status": status, "model": "m", "error": nil, "incomplete_details": nil,
		"output": []any{
			object{"type": "reasoning", "summary": []any{}},
			object{"type": "message", "role": "assistant", "content": []any{object{"type": "output_text", "text": text, "annotations": []any{}}}},
		},
		"usage": object{
			"input_tokens": 9, "input_tokens_details": object{"cached_tokens": 4}, "output_tokens": 7,
			"output_tokens_details": object{"reasoning_tokens": 5}, "total_tokens": 16,
		},
	}
}

func named(kind string, v object) []byte {
	v["type"] = kind
	return append([]byte("event: "+kind+"\n"), event(v)...)
}

func textDelta(text string) []byte {
	return named("response.output_text.delta", object{"output_index": 1, "content_index": 0, "delta": text})
}

func TestResponsesSuite(t *testing.T) {
	t.Parallel()
	created := named("response.created", object{"response": object{"id": "resp_1", "object": "response", "status": "in_progress", "model": "m", "output": []any{}}})
	providertest.Wire(t, providertest.Dialect{
		New: func(url string, key func() string, o *wire.Opts) (provider.Provider, error) {
			return openai.New(openai.Opts{BaseURL: url, Key: key, Responses: true, Wire: o})
		},
		Body:  func(text string) []byte { return encode(object{"model": "m", "input": text}) },
		Whole: func(text string) []byte { return encode(response("completed", text)) },
		Tokens: func(tokens ...string) (parts [][]byte) {
			for i, token := range tokens {
				part := textDelta(token)
				if i == 0 {
					part = append(append([]byte(nil), created...), part...)
				}
				parts = append(parts, part)
			}
			return parts
		},
		Terminal: named("response.completed", object{"response": response("completed", "one two")}),
		Error: func(message, code string) []byte {
			e := object{"message": message, "type": "invalid_request_error", "code": nil}
			if code != "" {
				e["code"] = code
			}
			return encode(object{"error": e})
		},
		AuthHeader: "Authorization", AuthPrefix: "Bearer ", QuotaWord: "insufficient_quota", RateWord: "rate_limit_exceeded",
	})
}

// play calls an endpoint that answers with a body, as a stream where it is one.
func play(t *testing.T, o openai.Opts, request, body string) (*provider.Response, *provider.Error) {
	t.Helper()
	stream := strings.HasPrefix(body, "event:") || strings.HasPrefix(body, "data:")
	kind := map[bool]string{true: "text/event-stream", false: "application/json"}[stream]
	s := providertest.Serve(t, nil, func(k *providertest.Conn) {
		for k.Read() {
			k.Send("HTTP/1.1 200 OK\r\nContent-Type: "+kind+"\r\n", fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body))
		}
	})
	o.BaseURL = "http://" + s.Addr()
	p, err := openai.New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	resp, err := p.Call(t.Context(), provider.Request{Body: []byte(request), Stream: stream})
	return resp, provider.AsError(err)
}

// TestResponsesOutcomes: what each end of a response comes to.
func TestResponsesOutcomes(t *testing.T) {
	t.Parallel()
	with := func(change func(object)) string {
		r := response("completed", "hello")
		change(r)
		return string(encode(r))
	}
	last := func(kind, doc string) string {
		return string(textDelta("hel")) + "event: " + kind + "\ndata: {\"type\":\"" + kind + "\",\"response\":" + doc + "}\n\n"
	}
	failed := with(func(r object) {
		r["status"], r["error"] = "failed", object{"code": "rate_limit_exceeded", "message": "slow"}
	})
	filtered := with(func(r object) {
		r["status"], r["incomplete_details"] = "incomplete", object{"reason": "content_filter"}
	})
	for name, c := range map[string]struct{ body, code, text, finish string }{
		"completed":           {with(func(object) {}), "", "hello", "completed"},
		"streamed":            {last("response.completed", with(func(object) {})), "", "hello", "completed"},
		"streamed, no output": {last("response.completed", with(func(r object) { r["output"] = []any{} })), "", "hel", "completed"},
		"length": {with(func(r object) {
			r["status"], r["incomplete_details"] = "incomplete", object{"reason": "max_output_tokens"}
		}), "", "hello", "max_output_tokens"},
		"filtered":           {filtered, provider.CodeContentFiltered, "", ""},
		"filtered, streamed": {last("response.incomplete", filtered), provider.CodeContentFiltered, "", ""},
		"failed":             {failed, provider.CodeRateLimited, "", ""},
		"failed, streamed":   {last("response.failed", failed), provider.CodeStreamError, "", ""},
		"failed, no code":    {with(func(r object) { r["status"] = "failed" }), provider.CodeUpstreamError, "", ""},
		"cancelled":          {with(func(r object) { r["status"] = "cancelled" }), provider.CodeJobCancelled, "", ""},
		"queued":             {with(func(r object) { r["status"] = "queued" }), provider.CodeProtocol, "", ""},
		"no status":          {with(func(r object) { delete(r, "status") }), provider.CodeNoFinishReason, "", ""},
		"reasoning only":     {with(func(r object) { r["output"] = []any{object{"type": "reasoning"}} }), provider.CodeEmpty, "", ""},
		"refusal": {with(func(r object) {
			r["output"] = []any{object{"type": "message", "content": []any{object{"type": "refusal", "refusal": "no"}}}}
		}), "", "", "completed"},
		"error event":        {"event: error\ndata: {\"type\":\"error\",\"code\":\"insufficient_quota\",\"message\":\"m\"}\n\n", provider.CodeQuotaExhausted, "", ""},
		"error after tokens": {string(textDelta("hel")) + "event: error\ndata: {\"type\":\"error\",\"code\":\"server_error\",\"message\":\"m\"}\n\n", provider.CodeStreamError, "", ""},
		"no end":             {string(textDelta("hel")), provider.CodeStreamCut, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			resp, fail := play(t, openai.Opts{Responses: true}, `{"model":"m","input":"x"}`, c.body)
			if fail != nil {
				if fail.Code != c.code {
					t.Errorf("got %v, want %q", fail, c.code)
				}
				if strings.Contains(c.body, "output_text.delta") && (fail.Partial == nil || fail.Billed != provider.BilledYes) {
					t.Errorf("partial %+v, billed %s", fail.Partial, fail.Billed)
				}
				return
			}
			if c.code != "" || resp.Text != c.text || resp.FinishReason != c.finish || resp.Truncated != (c.finish == "max_output_tokens") {
				t.Errorf("got %q, %q, truncated %t, want %q, %q, %s", resp.Text, resp.FinishReason, resp.Truncated, c.text, c.finish, c.code)
			}
			if u := resp.Usage; u != (provider.Usage{Known: true, InputTokens: 9, CachedTokens: 4, OutputTokens: 7, ReasoningTokens: 5, TotalTokens: 16}) {
				t.Errorf("usage %+v", u)
			}
		})
	}
}
