package fakellm

import "encoding/json"

// chat is OpenAI's chat completions.
type chat struct{}

func (chat) ask(body []byte) (asked, error) {
	var q struct {
		Model         string
		Stream        bool
		Messages      []message
		StreamOptions struct {
			IncludeUsage bool `json:"include_usage"`
		} `json:"stream_options"`
	}
	if err := json.Unmarshal(body, &q); err != nil || q.Model == "" || len(q.Messages) == 0 {
		return asked{}, errRequest
	}
	a := asked{model: q.Model, stream: q.Stream, usage: !q.Stream || q.StreamOptions.IncludeUsage}
	a.read(q.Messages...)
	return a, nil
}

func (chat) document(c *call) map[string]any {
	doc := map[string]any{
		"id": "chatcmpl-" + c.id, "object": "chat.completion", "created": created, "model": c.q.model,
		"choices": []any{map[string]any{
			"index": 0, "message": map[string]any{"role": "assistant", "content": c.text, "refusal": nil}, "logprobs": nil,
			"finish_reason": first(c.s.finish, "stop"),
		}},
	}
	if c.tells() {
		doc["usage"] = chatUsage(c)
	}
	return doc
}

func chatUsage(c *call) map[string]any {
	in, out := c.usage()
	return map[string]any{"prompt_tokens": in, "completion_tokens": out, "total_tokens": in + out}
}

func (chat) events(c *call) events {
	chunk := func(doc map[string]any) event {
		doc["id"], doc["object"], doc["created"], doc["model"] = "chatcmpl-"+c.id, "chat.completion.chunk", created, c.q.model
		return event{doc: doc}
	}
	choice := func(delta map[string]any, finish any) event {
		return chunk(map[string]any{"choices": []any{map[string]any{"index": 0, "delta": delta, "finish_reason": finish}}})
	}
	return events{
		open:  func() []event { return []event{choice(map[string]any{"role": "assistant", "content": ""}, nil)} },
		token: func(text string) event { return choice(map[string]any{"content": text}, nil) },
		end: func() []event {
			all := []event{choice(map[string]any{}, first(c.s.finish, "stop"))}
			if c.tells() {
				all = append(all, chunk(map[string]any{"choices": []any{}, "usage": chatUsage(c)}))
			}
			return append(all, event{})
		},
		fail: func(code string) []event {
			return []event{{doc: map[string]any{"error": map[string]any{"message": "scripted error", "type": code, "code": code}}}, {}}
		},
	}
}

func (chat) refusal(status int, code, message string) map[string]any {
	code = first(code, errorCodes[status], "server_error")
	return map[string]any{"error": map[string]any{"message": message, "type": code, "code": code, "param": nil}}
}
