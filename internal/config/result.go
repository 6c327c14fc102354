package config

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/onefold-dev/onefold/api"
)

// Reply is what a provider gave back, as far as the result depends on it.
type Reply struct {
	// Body is the whole reply, one JSON document.
	Body []byte
	// Text is the text of the model's message.
	Text string
	// Truncated says that the model stopped because of its length limit.
	Truncated bool
}

// Result returns what the kind's output makes of a reply: one JSON value, stored and returned as these bytes.
// The error is an *api.Error: output_truncated when a JSON output was cut by length (final, even if what came happens
// to be JSON: 12 may have been 123), bad_output when it is not what output and schema ask for (another try may help).
// Neither quotes the output.
func (k *Kind) Result(r Reply) ([]byte, error) {
	switch k.Output {
	case OutputText:
		return appendString(nil, r.Text), nil
	case OutputJSON:
		return k.jsonResult(r)
	}
	return r.Body, nil
}

func (k *Kind) jsonResult(r Reply) ([]byte, error) {
	if r.Truncated {
		return nil, api.Errorf(api.CodeOutputTruncated, "the model's output was cut by its length limit after %d characters", utf8.RuneCountInString(r.Text))
	}
	text, err := unfence(r.Text)
	if err != nil {
		return nil, badOutput(err)
	}
	out, err := strictJSON([]byte(text))
	if err != nil {
		return nil, badOutput(err)
	}
	if k.schema != nil {
		if err := k.schema.check(out); err != nil {
			return nil, badOutput(err)
		}
	}
	return out, nil
}

// CheckResult says whether a result that a person gives is one the kind could have made: its effects and its callers
// count on it. The error is an *api.Error, invalid_field.
func (k *Kind) CheckResult(result []byte) error {
	wrong := ""
	switch {
	case k.Output == OutputText && (len(result) == 0 || result[0] != '"'):
		wrong = "the kind's output is text, so that the result must be a JSON string"
	case k.schema != nil:
		if err := k.schema.check(result); err != nil {
			wrong = strings.Replace(err.Error(), "the model's JSON", "the result", 1)
		}
	}
	if wrong == "" {
		return nil
	}
	return api.Errorf(api.CodeInvalidField, "%s", wrong).WithField("result")
}

func badOutput(err error) error { return api.Errorf(api.CodeBadOutput, "%s", err) }

// unfence returns the whole text, or what stands inside its one code fence.
func unfence(text string) (string, error) {
	text = strings.TrimSpace(strings.TrimPrefix(text, "\ufeff"))
	if text == "" {
		return "", errors.New("the model's message is empty")
	}
	const fence = "```"
	if text[0] == '{' || text[0] == '[' || text[0] == '"' || !strings.Contains(text, fence) {
		return text, nil
	}
	_, inside, _ := strings.Cut(text, fence)
	// A line break cannot stand inside a JSON string, so this is the fence that closes and no part of the JSON.
	inside, after, closed := strings.Cut(inside, "\n"+fence)
	if end := strings.LastIndex(inside, fence); !closed && end >= 0 {
		inside, after, closed = inside[:end], inside[end+len(fence):], true
	}
	switch {
	case !closed:
		return "", errors.New("the model's code fence is never closed")
	case strings.Contains(after, fence):
		return "", errors.New("the model's message has more than one code fence")
	}
	if word := inside[:spanOf(inside, isWordByte)]; strings.EqualFold(word, "json") {
		inside = inside[len(word):]
	} else if word != "" && word != "true" && word != "false" && word != "null" && !isJSONNumber(word) {
		return "", errors.New("the model's code fence is not marked as json")
	}
	return strings.TrimSpace(inside), nil
}

// maxExponent is the number of digits an exponent may have, as in inputs.
const maxExponent = 6

// strictJSON checks that data is one JSON value that everyone reads the same way and returns it. A lone surrogate,
// which a model makes of an emoji cut in two, becomes U+FFFD: it is not worth another call.
func strictJSON(data []byte) ([]byte, error) {
	if !utf8.Valid(data) {
		data = bytes.ToValidUTF8(data, []byte("\uFFFD"))
	}
	surrogates := bytes.Contains(data, []byte(`\ud`)) || bytes.Contains(data, []byte(`\uD`))
	lone := false
	dec := jsontext.NewDecoder(bytes.NewReader(data), jsontext.AllowInvalidUTF8(true))
	for {
		tok, err := dec.ReadToken()
		if err != nil {
			return nil, errors.New("the model's message is not JSON: " + jsonMessage(err))
		}
		switch {
		case dec.StackDepth() > maxDepth:
			return nil, errors.New("the model's JSON is " + errDepth.Error())
		case tok.Kind() == '0' && longExponent(tok.String()):
			return nil, errors.New("the model's JSON holds a number with an exponent of more than 6 digits")
		case surrogates && tok.Kind() == '"' && strings.ContainsRune(tok.String(), '\uFFFD'):
			lone = true
		}
		if dec.StackDepth() == 0 {
			break
		}
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, errors.New("the model's message has text after its JSON")
	}
	if !lone {
		return data, nil
	}
	v := jsontext.Value(data)
	if err := v.Format(jsontext.AllowInvalidUTF8(true), jsontext.PreserveRawStrings(false)); err != nil {
		return nil, errors.New("the model's message is not JSON: " + jsonMessage(err))
	}
	return v, nil
}

func longExponent(num string) bool {
	i := strings.IndexAny(num, "eE")
	return i >= 0 && len(strings.TrimLeft(num[i+1:], "+-0")) > maxExponent
}

// jsonMessage says what is wrong with a JSON text without quoting it.
func jsonMessage(err error) string {
	var se *jsontext.SyntacticError
	switch {
	case errors.Is(err, errDepth) || errors.Is(err, errTrailing):
		return err.Error()
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return "it ends too early"
	case errors.Is(err, jsontext.ErrDuplicateName):
		return "a name stands in one object twice"
	case errors.As(err, &se):
		return "a character stands where it may not, at byte " + num(int(se.ByteOffset)).s
	}
	return "it is malformed"
}
