package batch

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/canon"
	"github.com/onefold-dev/onefold/internal/submission"
	"github.com/onefold-dev/onefold/internal/submit"
)

// chatURL is the one path of OpenAI's API that a line may name.
const chatURL = "/v1/chat/completions"

// maxID bounds a custom_id, in bytes.
const maxID = 512

// form reads lines of one form.
type form struct {
	name     api.BatchForm
	batchKey string
	kind     string // of lines in the OpenAI form
}

// formOf is the form of a file, told by its first object: one with a custom_id
// is OpenAI's.
func formOf(text []byte) (api.BatchForm, bool) {
	members, err := canon.Members(text)
	if err != nil {
		return "", false
	}
	for _, m := range members {
		if m.Name == "custom_id" {
			return api.FormOpenAI, true
		}
	}
	return api.FormOnefold, true
}

// read reads a line: its id, and the submit it asks for. bad says that it fails
// alone; refuse that the whole file is refused for it.
func (f *form) read(l line) (id string, r submit.Request, bad *api.Error, refuse error) {
	members, err := canon.Members(l.text)
	if err != nil {
		if !l.ended && !json.Valid(l.text) {
			return "", r, nil, api.Errorf(api.CodeCutLine, "line %d has no line end and is no whole JSON value", l.number).WithLine(l.number)
		}
		return "", r, asError(submission.CanonError(err)), nil
	}
	name := "key"
	if f.name == api.FormOpenAI {
		name = "custom_id"
	}
	fields := make(map[string][]byte, len(members))
	for _, m := range members {
		fields[m.Name] = m.Value
	}
	if id = text(fields[name]); id == "" || len(id) > maxID {
		e := api.Errorf(api.CodeMissingID, "line %d has no %s", l.number, name)
		if id != "" {
			e.Message = fmt.Sprintf("the %s of line %d is longer than %d bytes", name, l.number, maxID)
		}
		return "", r, nil, e.WithLine(l.number).WithField(name)
	}
	if f.name == api.FormOpenAI {
		r, bad = f.openAI(id, fields)
		return id, r, bad, nil
	}
	return id, submit.Request{Keyed: true, Body: l.text}, nil, nil
}

// openAI turns a line of OpenAI's form into a submit.
func (f *form) openAI(id string, fields map[string][]byte) (r submit.Request, bad *api.Error) {
	for name := range fields {
		switch name {
		case "custom_id", "method", "url", "body":
		default:
			return r, api.Errorf(api.CodeUnknownField, "the line has a field that does not exist").WithField(printable(name)).
				WithFix("Remove it. The fields are custom_id, method, url, body.")
		}
	}
	switch {
	case text(fields["method"]) != "POST":
		return r, api.Errorf(api.CodeInvalidField, "method is not POST").WithField("method")
	case text(fields["url"]) != chatURL:
		return r, api.Errorf(api.CodeInvalidField, "url is not %s", chatURL).WithField("url").
			WithFix("Only chat completions can be asked for in this form; use {\"key\",\"kind\",\"input\"} for other kinds.")
	case len(fields["body"]) == 0 || fields["body"][0] != '{':
		return r, api.Errorf(api.CodeInvalidField, "body is not an object").WithField("body")
	}
	kind, err := json.Marshal(f.kind)
	if err != nil {
		return r, api.Errorf(api.CodeInvalidField, "the kind of the batch has no JSON form").WithField("kind")
	}
	var b bytes.Buffer
	b.Grow(len(fields["body"]) + len(kind) + 20)
	fmt.Fprintf(&b, `{"kind":%s,"input":`, kind)
	b.Write(fields["body"])
	b.WriteByte('}')
	return submit.Request{Key: TaskKey(f.batchKey, id), KeySent: true, Body: b.Bytes()}, nil
}

// TaskKey is the task key of a line in OpenAI's form: batch:<batch key>:<custom
// id>. In the custom id ":", "%" and what is not visible ASCII stand as %XX, so
// that the last ":" divides the two and no two lines of any batches have the
// same key; a key that would be longer than allowed is cut and ends in "%~" with
// the SHA-256 of the whole.
func TaskKey(batchKey, customID string) string {
	var b strings.Builder
	b.WriteString("batch:" + batchKey + ":")
	for i := range len(customID) {
		if c := customID[i]; c < 0x21 || c > 0x7E || c == ':' || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
			continue
		}
		b.WriteByte(customID[i])
	}
	key := b.String()
	if len(key) <= canon.MaxKeyBytes {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	tail := "%~" + hex.EncodeToString(sum[:])
	return key[:canon.MaxKeyBytes-len(tail)] + tail
}

// text is the string that raw is, "" for all else.
func text(raw []byte) string {
	var s string
	if len(raw) == 0 || raw[0] != '"' || json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

func asError(err error) *api.Error {
	var e *api.Error
	if !errors.As(err, &e) {
		return api.Errorf(api.CodeInternal, "the line could not be read")
	}
	return e
}

// printable makes a caller's name safe to show.
func printable(name string) string {
	if len(name) > 64 {
		name = strings.ToValidUTF8(name[:64], "") + "..."
	}
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r == utf8.RuneError || r == 0x7F {
			return '?'
		}
		return r
	}, name)
}
