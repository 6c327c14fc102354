package fakellm

import (
	"encoding/json"
	"errors"
)

// asked is what of a request matters here, whatever its protocol.
type asked struct {
	model      string
	stream     bool
	background bool   // answer with a job, to be asked for
	usage      bool   // tell the tokens
	all, last  string // the text of all messages, and that of the last user message
}

// event is one event of a streamed reply. Without doc it is the end mark of chat completions.
type event struct {
	name string
	doc  map[string]any
}

// events makes the parts of a streamed reply: what comes before the first token, each token, what ends the reply, and
// what says instead that it failed.
type events struct {
	open  func() []event
	token func(text string) event
	end   func() []event
	fail  func(code string) []event
}

// protocol is how one API's requests and replies look.
type protocol interface {
	// ask reads a request.
	ask(body []byte) (asked, error)
	// document is the whole reply of a call.
	document(c *call) map[string]any
	// events are the parts of its streamed reply.
	events(c *call) events
	// refusal is the body of an answer that is an error.
	refusal(status int, code, message string) map[string]any
}

// message is a message of a request; what it says is a text, or a list of parts that have one.
type message struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

func textOf(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var parts []struct{ Text string }
	_ = json.Unmarshal(raw, &parts)
	for _, p := range parts {
		text += p.Text
	}
	return text
}

// read takes the messages' texts.
func (a *asked) read(messages ...message) {
	for _, m := range messages {
		text := textOf(m.Content)
		a.all += m.Role + "\n" + text + "\n"
		if m.Role == "user" {
			a.last = text
		}
	}
}

// What a request is refused for.
var (
	errRequest   = errors.New("the body needs a model and messages")
	errMaxTokens = errors.New("max_tokens: Field required")
)

// first is the value of the first name that has one.
func first(names ...string) string {
	for _, n := range names {
		if n != "" {
			return n
		}
	}
	return ""
}
