package fakellm

import "encoding/json"

// messages is Anthropic's Messages API.
type messages struct{}

func (messages) ask(body []byte) (asked, error) {
	var q struct {
		Model     string
		Stream    bool
		MaxTokens int `json:"max_tokens"`
		System    json.RawMessage
		Messages  []message
	}
	if err := json.Unmarshal(body, &q); err != nil || q.Model == "" || len(q.Messages) == 0 {
		return asked{}, errRequest
	}
	if q.MaxTokens < 1 {
		return asked{}, errMaxTokens
	}
	a := asked{model: q.Model, stream: q.Stream, usage: true}
	if len(q.System) > 0 {
		a.read(message{Role: "system", Content: q.System})
	}
	a.read(q.Messages...)
	return a, nil
}

// stopReasons translates the scripted finish reasons that are OpenAI's words.
var stopReasons = map[string]string{
	"": "end_turn", "stop": "end_turn", "length": "max_tokens", "content_filter": "refusal", "tool_calls": "tool_use",
}

func (messages) stop(c *call) string {
	return first(stopReasons[c.s.finish], c.s.finish)
}

func (m messages) document(c *call) map[string]any {
	doc := map[string]any{
		"id": "msg_" + c.id, "type": "message", "role": "assistant", "model": c.q.model, "stop_reason": m.stop(c), "stop_sequence": nil,
		"content": []any{map[string]any{"type": "text", "text": c.text}},
	}
	if c.tells() {
		in, out := c.usage()
		doc["usage"] = map[string]any{"input_tokens": in, "output_tokens": out}
	}
	return doc
}

func (m messages) events(c *call) events {
	say := func(name string, doc map[string]any) event {
		doc["type"] = name
		return event{name: name, doc: doc}
	}
	return events{
		open: func() []event {
			doc := m.document(c)
			doc["content"], doc["stop_reason"] = []any{}, nil
			if c.tells() {
				in, _ := c.usage()
				doc["usage"] = map[string]any{"input_tokens": in, "output_tokens": 1}
			}
			return []event{
				say("message_start", map[string]any{"message": doc}),
				say("content_block_start", map[string]any{"index": 0, "content_block": map[string]any{"type": "text", "text": ""}}),
				say("ping", map[string]any{}),
			}
		},
		token: func(text string) event {
			return say("content_block_delta", map[string]any{"index": 0, "delta": map[string]any{"type": "text_delta", "text": text}})
		},
		end: func() []event {
			last := map[string]any{"delta": map[string]any{"stop_reason": m.stop(c), "stop_sequence": nil}}
			if c.tells() {
				_, out := c.usage()
				last["usage"] = map[string]any{"output_tokens": out}
			}
			return []event{
				say("content_block_stop", map[string]any{"index": 0}),
				say("message_delta", last),
				say("message_stop", map[string]any{}),
			}
		},
		fail: func(code string) []event {
			return []event{say("error", map[string]any{"error": map[string]any{"type": code, "message": "scripted error"}})}
		},
	}
}

// messageErrors are the error types by status, by the documentation of the API.
var messageErrors = map[int]string{
	400: "invalid_request_error", 401: "authentication_error", 402: "billing_error", 403: "permission_error", 404: "not_found_error",
	413: "request_too_large", 429: "rate_limit_error", 504: "timeout_error", 529: "overloaded_error",
}

func (messages) refusal(status int, code, message string) map[string]any {
	return map[string]any{"type": "error", "error": map[string]any{
		"type": first(code, messageErrors[status], "api_error"), "message": message,
	}}
}
