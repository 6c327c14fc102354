package batchfile

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/canon"
	"github.com/onefold-dev/onefold/internal/submission"
)

// chatURL is the one path of OpenAI's API that a line may name.
const chatURL = "/v1/chat/completions"

// maxID bounds a custom_id, in bytes.
const maxID = 512

// Form reads lines of one form.
type Form struct {
	Name     api.BatchForm
	BatchKey string
	Kind     string // of lines in the OpenAI form
}

// Submit is the submit that a line asks for: its body, and its key where that is
// not part of the body (Keyed).
type Submit struct {
	Body  []byte
	Key   string
	Keyed bool
}

// FormOf is the form of a file, told by its first object: one with a custom_id
// is OpenAI's.
func FormOf(text []byte) (api.BatchForm, bool) {
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

// Read reads a line: its id, and the submit it asks for. bad says that it fails
// alone; refuse that the whole file is refused for it.
func (f *Form) Read(l Line) (id string, r Submit, bad *api.Error, refuse error) {
	members, err := canon.Members(l.Text)
	if err != nil {
		if !l.Ended && !json.Valid(l.Text) {
			return "", r, nil, api.Errorf(api.CodeCutLine, "line %d has no line end and is no whole JSON value", l.Number).WithLine(l.Number)
		}
		return "", r, asError(submission.CanonError(err)), nil
	}
	name := "key"
	if f.Name == api.FormOpenAI {
		name = "custom_id"
	}
	fields := make(map[string][]byte, len(members))
	for _, m := range members {
		fields[m.Name] = m.Value
	}
	if id = text(fields[name]); id == "" || len(id) > maxID {
		e := api.Errorf(api.CodeMissingID, "line %d has no %s", l.Number, name)
		if id != "" {
			e.Message = fmt.Sprintf("the %s of line %d is longer than %d bytes", name, l.Number, maxID)
		}
		return "", r, nil, e.WithLine(l.Number).WithField(name)
	}
	if f.Name == api.FormOpenAI {
		r, bad = f.openAI(id, fields)
		return id, r, bad, nil
	}
	return id, Submit{Keyed: true, Body: l.Text}, nil, nil
}

// openAI turns a line of OpenAI's form into a submit.
func (f *Form) openAI(id string, fields map[string][]byte) (r Submit, bad *api.Error) {
	for name := range fields {
		switch name {
		case "custom_id", "method", "url", "body":
		default:
			return r, api.Errorf(api.CodeUnknownField, "the line has a field that does not exist").WithField(submission.Printable(name)).
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
	kind, err := json.Marshal(f.Kind)
	if err != nil {
		return r, api.Errorf(api.CodeInvalidField, "the kind of the batch has no JSON form").WithField("kind")
	}
	var b bytes.Buffer
	b.Grow(len(fields["body"]) + len(kind) + 20)
	fmt.Fprintf(&b, `{"kind":%s,"input":`, kind)
	b.Write(fields["body"])
	b.WriteByte('}')
	return Submit{Key: TaskKey(f.BatchKey, id), Body: b.Bytes()}, nil
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
