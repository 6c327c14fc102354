package canon

import (
	"bytes"
	"unicode/utf8"
)

// chatFields are the known members of a chat completions request.
var chatFields = fieldSet(
	"model", "messages", "audio", "frequency_penalty", "function_call", "functions", "logit_bias", "logprobs",
	"max_completion_tokens", "max_tokens", "metadata", "modalities", "n", "parallel_tool_calls", "prediction",
	"presence_penalty", "prompt", "prompt_cache_key", "reasoning_effort", "response_format", "safety_identifier", "seed",
	"service_tier", "stop", "store", "stream", "stream_options", "temperature", "tool_choice", "tools", "top_k",
	"top_logprobs", "top_p", "user", "verbosity", "web_search_options",
)

// messageFields are the known members of one message.
var messageFields = fieldSet(
	"role", "content", "name", "refusal", "audio", "tool_calls", "tool_call_id", "function_call", "reasoning_content",
)

// CheckChat checks the input of the kind llm.chat: an object with a model that
// is a string and not blank, and without a member, at the top level or in a
// message, that is a known field in other letters ("Model", "MESSAGES", also
// with U+017F for s or U+212A for k). Readers that fold names take such a
// member for the real one, so the request that was compared and the request
// that is answered would not be the same. All else, absent messages included,
// is the provider's business. The error is an [*Error]: [CodeInvalidInput], or
// what [Check] finds.
func CheckChat(input []byte) error {
	s := newScanner()
	defer s.release()
	inMessages, model := false, -1
	s.visit = func(depth int, name []byte) *Error {
		switch depth {
		case 1:
			inMessages = string(name) == "messages"
			if string(name) == "model" {
				model = s.pos // where its value starts
			}
			return checkVariant(chatFields, name)
		case 3: // a member of messages[i]
			if inMessages {
				return checkVariant(messageFields, name)
			}
		}
		return nil
	}
	if err := s.scan(input, false, MaxDepth); err != nil {
		return err.finish("")
	}
	if first := bytes.TrimLeft(input, " \t\r\n"); first[0] != '{' {
		return invalidInput("the input is not an object", "Send an object with a model.").finish("")
	}
	if model < 0 || blankString(input[model:]) {
		return invalidInput("the model is missing", `Send "model" as a string that is not blank.`).finish("")
	}
	return nil
}

func invalidInput(message, fix string) *Error { return failure(CodeInvalidInput, -1, message, fix) }

// blankString reports whether the checked value at the start of rest is
// anything but a string with something in it.
func blankString(rest []byte) bool {
	if rest[0] != '"' {
		return true
	}
	c := cursor{b: rest}
	text := c.value()
	text = text[1 : len(text)-1]
	if bytes.IndexByte(text, '\\') >= 0 {
		text = appendUnescaped(nil, text)
	}
	return len(bytes.TrimSpace(text)) == 0
}

// checkVariant refuses a name that differs from a known one only in case.
func checkVariant(known map[string]bool, name []byte) *Error {
	var buf [maxFolded]byte
	folded, ok := foldName(buf[:0], name)
	if !ok || !known[string(folded)] || bytes.Equal(folded, name) {
		return nil
	}
	return invalidInput("a member is "+string(folded)+" in other letters", "Write it exactly as "+string(folded)+".")
}

// maxFolded is longer than any known name.
const maxFolded = 32

// foldName appends name with every character that folds to a lower-case ASCII
// letter replaced by it. The known names are lower-case ASCII, and besides the
// capitals only two characters fold to such letters. It gives up on names
// longer than the known ones.
func foldName(dst, name []byte) ([]byte, bool) {
	for len(name) > 0 {
		if len(dst) == maxFolded {
			return nil, false
		}
		r, n := utf8.DecodeRune(name)
		switch {
		case r >= 'A' && r <= 'Z':
			r += 'a' - 'A'
		case r == '\u017f': // long s
			r = 's'
		case r == '\u212a': // Kelvin sign
			r = 'k'
		case r >= utf8.RuneSelf:
			return nil, false
		}
		dst = append(dst, byte(r))
		name = name[n:]
	}
	return dst, true
}

func fieldSet(names ...string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[name] = true
	}
	return set
}
