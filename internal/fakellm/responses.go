package fakellm

import "encoding/json"

// responses is OpenAI's responses API.
type responses struct{}

func (responses) ask(body []byte) (asked, error) {
	var q struct {
		Model        string
		Stream       bool
		Background   bool
		Instructions string
		Input        json.RawMessage
	}
	if err := json.Unmarshal(body, &q); err != nil || q.Model == "" || len(q.Input) == 0 {
		return asked{}, errRequest
	}
	a := asked{model: q.Model, stream: q.Stream && !q.Background, background: q.Background, usage: true}
	if q.Instructions != "" {
		a.all = "system\n" + q.Instructions + "\n"
	}
	var messages []message
	if json.Unmarshal(q.Input, &messages) != nil {
		messages = []message{{Role: "user", Content: q.Input}}
	}
	a.read(messages...)
	return a, nil
}

// shell is a response that says nothing yet.
func (responses) shell(c *call, status string) map[string]any {
	return map[string]any{
		"id": "resp_" + c.id, "object": "response", "created_at": created, "model": c.q.model, "status": status,
		"background": c.q.background, "output": []any{}, "error": nil, "incomplete_details": nil,
	}
}

func (responses) part(text string) map[string]any {
	return map[string]any{"type": "output_text", "text": text, "annotations": []any{}}
}

func (r responses) item(c *call, status string, content ...any) map[string]any {
	if content == nil {
		content = []any{}
	}
	return map[string]any{"id": "msg_" + c.id, "type": "message", "role": "assistant", "status": status, "content": content}
}

// document is the finished response. Of the scripted finish reasons "stop" and none are completed, "failed" and
// "cancelled" are themselves, and all others are why it is incomplete.
func (r responses) document(c *call) map[string]any {
	status := "completed"
	doc := r.shell(c, status)
	switch c.s.finish {
	case "", "stop", "completed":
	case "failed", "cancelled":
		status = c.s.finish
	case "length":
		status = "incomplete"
		doc["incomplete_details"] = map[string]any{"reason": "max_output_tokens"}
	default:
		status = "incomplete"
		doc["incomplete_details"] = map[string]any{"reason": c.s.finish}
	}
	doc["status"] = status
	doc["output"] = []any{r.item(c, status, r.part(c.text))}
	if c.tells() {
		in, out := c.usage()
		doc["usage"] = map[string]any{"input_tokens": in, "output_tokens": out, "total_tokens": in + out}
	}
	return doc
}

// failed is a response that says why it failed.
func (r responses) failed(c *call, code string) map[string]any {
	doc := r.shell(c, "failed")
	doc["error"] = map[string]any{"code": code, "message": "scripted error"}
	return doc
}

func (r responses) events(c *call) events {
	n := -1
	say := func(name string, doc map[string]any) event {
		n++
		doc["type"], doc["sequence_number"] = name, n
		return event{name: name, doc: doc}
	}
	at := func(more map[string]any) map[string]any {
		more["item_id"], more["output_index"], more["content_index"] = "msg_"+c.id, 0, 0
		return more
	}
	return events{
		open: func() []event {
			return []event{
				say("response.created", map[string]any{"response": r.shell(c, "in_progress")}),
				say("response.in_progress", map[string]any{"response": r.shell(c, "in_progress")}),
				say("response.output_item.added", map[string]any{"output_index": 0, "item": r.item(c, "in_progress")}),
				say("response.content_part.added", at(map[string]any{"part": r.part("")})),
			}
		},
		token: func(text string) event {
			return say("response.output_text.delta", at(map[string]any{"delta": text}))
		},
		end: func() []event {
			doc := r.document(c)
			status := doc["status"].(string)
			return []event{
				say("response.output_text.done", at(map[string]any{"text": c.text})),
				say("response.content_part.done", at(map[string]any{"part": r.part(c.text)})),
				say("response.output_item.done", map[string]any{"output_index": 0, "item": r.item(c, status, r.part(c.text))}),
				say("response."+status, map[string]any{"response": doc}),
			}
		},
		fail: func(code string) []event {
			return []event{say("response.failed", map[string]any{"response": r.failed(c, code)})}
		},
	}
}

func (responses) refusal(status int, code, message string) map[string]any {
	return chat{}.refusal(status, code, message)
}
