package config

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"strings"
	"text/template"
)

// mode says where a template's output goes, and so how a value is kept from breaking out of its place.
type mode int

const (
	modePlain  mode = iota // a text of its own, encoded as a whole afterwards
	modeJSON               // a JSON document written by hand: values are escaped for where they stand
	modePath               // a URL path: values are path-escaped
	modeHeader             // a header value: control characters are an error
	modeKey                // an idempotency key: an empty value is an error
)

// leaf is one compiled text.
type leaf struct {
	text string // as written, when it has no template in it
	t    *template.Template
	mode mode
	path string // in the file
	pos  Pos
	// value: the text is one action whose last function is json, so it gives a JSON value instead of a text.
	value bool
	// from: value, and the action is just {{json .a.b}}: the field's own bytes are taken.
	from []string
	uses map[string]bool // first names used: input, task, result, ...
}

// Roots are what a template may begin a field with; nil stands for the fields of a source's event, which are any.
var (
	requestRoots = []string{"input", "task"}
	effectRoots  = []string{"input", "task", "effect", "result", "outcome", "error"}
	taskFields   = []string{"id", "key", "kind", "tenant", "run"}
	errorFields  = []string{"code", "message"}
	ownFields    = []string{"id", "name"}              // of an effect, in its own templates
	checkFields  = []string{"id", "name", "reference"} // of an effect, in the templates of a check
)

// maxRendered bounds what one template may give, in bytes.
const maxRendered = 64 << 20

const emitName = "_emit"

// compileLeaf compiles the text v. After a problem it returns nil.
func (d *decoder) compileLeaf(v *value, path string, m mode, roots []string) *leaf {
	l := &leaf{text: v.s, mode: m, path: path, pos: v.pos, uses: map[string]bool{}}
	if d.from == fromAnswer || !strings.Contains(v.s, "{{") {
		return l
	}
	t, err := template.New("t").Option("missingkey=error").Funcs(funcs).Funcs(template.FuncMap{emitName: emitFor(m)}).Parse(v.s)
	if err != nil {
		d.add(v.pos, path, "bad template: "+inLine(err)+parseMessage(err), "see docs/configuration.md for what templates can do")
		return nil
	}
	l.t = t
	if t.Tree == nil || t.Root == nil { // {{/* only a comment */}}
		l.t, l.text = nil, ""
		return l
	}
	if d.from == fromSubmit {
		prints, wrong := plain(t.Root)
		if d.prints += prints; d.prints > maxSubmittedPrints && wrong == "" {
			wrong = fmt.Sprintf("the templates of one effect print more than %d values", maxSubmittedPrints)
		}
		if wrong != "" {
			d.add(v.pos, path, "bad template: "+wrong, "have the kind's configuration do it")
			return nil
		}
	}
	p := &preparer{leaf: l, roots: roots}
	p.whole(t.Root)
	p.list(t.Root, true)
	if len(t.Templates()) > 1 {
		p.fail("define and block are not supported", "write the text where it is used")
	}
	if p.wrong != "" {
		d.add(v.pos, path, "bad template: "+p.wrong, p.fix)
		return nil
	}
	return l
}

// parseMessage takes the words out of an error of parsing that mean nothing to the reader of a YAML file.
func parseMessage(err error) string {
	return clipLong(reTemplate.ReplaceAllString(err.Error(), ""))
}

// execMessage says what went wrong in a rendering. Only errors that are known to quote no data are passed on: others,
// as of a range over a text, print the value.
func execMessage(err error) string {
	var own *renderError
	if errors.As(err, &own) {
		return own.msg
	}
	msg := reTemplate.ReplaceAllString(err.Error(), "")
	at := "a value"
	if m := reExecuting.FindStringSubmatch(msg); m != nil {
		at, msg = m[1], msg[len(m[0]):]
	}
	switch {
	case strings.HasPrefix(msg, "map has no entry for key"):
		return "the field " + at + " is missing"
	case strings.HasPrefix(msg, "can't evaluate field"), strings.HasPrefix(msg, "nil pointer evaluating"), strings.HasPrefix(msg, "nil data; no entry"):
		return "the field " + at + " is missing: what stands before its last dot is no object"
	case strings.HasPrefix(msg, "range can't iterate over"):
		return "range needs a list or an object, and " + at + " is none"
	case strings.HasPrefix(msg, "wrong number of args"):
		return clip(at) + ": " + msg
	case strings.Contains(msg, "index out of range"):
		return clip(at) + ": there is no such element"
	}
	if m := reCalling.FindStringSubmatch(msg); m != nil {
		return clip(at) + ": the function " + m[1] + " cannot take this value"
	}
	return clip(at) + " cannot be used like this"
}

func clipLong(s string) string {
	if len(s) > 300 {
		return strings.ToValidUTF8(s[:297], "") + "..."
	}
	return s
}

var (
	reTemplateLine = regexp.MustCompile(`^template: t:(\d+):`)
	reTemplate     = regexp.MustCompile(`template: t:(\d+:)?(\d+:)? ?`)
	reExecuting    = regexp.MustCompile(`^executing "t" at <(.*?)>: `)
	reCalling      = regexp.MustCompile(`^error calling (\w+): `)
)

// inLine names the line of a longer text that err is about.
func inLine(err error) string {
	if m := reTemplateLine.FindStringSubmatch(err.Error()); m != nil && m[1] != "1" {
		return "line " + m[1] + " of the text: "
	}
	return ""
}

// renderError is a problem with data, in words of our own. leaf is the text it arose in, nil while inside a function.
type renderError struct {
	msg  string
	leaf *leaf
}

func (e *renderError) Error() string {
	if e.leaf == nil {
		return e.msg
	}
	return e.leaf.path + ": " + e.msg
}

func problem(format string, args ...any) *renderError {
	return &renderError{msg: fmt.Sprintf(format, args...)}
}

// execute renders l with data.
func (l *leaf) executeMax(data map[string]any, most int) (string, error) {
	if l.t == nil {
		return l.text, nil
	}
	out := &output{most: most}
	t := l.t
	if l.mode == modeJSON {
		c, err := t.Clone()
		if err != nil {
			return "", &renderError{msg: "the template cannot be copied", leaf: l}
		}
		t = c.Funcs(template.FuncMap{emitName: out.emitJSON})
	}
	if err := t.Execute(out, data); err != nil {
		return "", &renderError{msg: execMessage(err), leaf: l}
	}
	return out.b.String(), nil
}

// output gathers what a template writes and follows whether it stands inside a JSON string.
type output struct {
	b        strings.Builder
	inString bool
	escaped  bool
	most     int // bytes; 0 is maxRendered
}

func (o *output) Write(p []byte) (int, error) {
	most := o.most
	if most == 0 {
		most = maxRendered
	}
	if o.b.Len()+len(p) > most {
		return 0, problem("gives more than %d bytes", most)
	}
	for _, c := range p {
		switch {
		case !o.inString:
			o.inString = c == '"'
		case o.escaped:
			o.escaped = false
		case c == '\\':
			o.escaped = true
		case c == '"':
			o.inString = false
		}
	}
	return o.b.Write(p)
}

var _ io.Writer = (*output)(nil)

// emitJSON prints v so that it cannot break out of where it stands: inside a string it is escaped, elsewhere encoded.
func (o *output) emitJSON(v any) (string, error) {
	if !o.inString {
		if raw, ok := v.(rawJSON); ok {
			return string(raw), nil
		}
		return toJSON(v)
	}
	text, err := plainText(v)
	if err != nil {
		return "", err
	}
	quoted := appendString(nil, text)
	return string(quoted[1 : len(quoted)-1]), nil
}

// emitFor returns the function every printed value of a template goes through.
func emitFor(m mode) func(any) (string, error) {
	switch m {
	case modePath:
		return func(v any) (string, error) {
			text, err := plainText(v)
			return url.PathEscape(text), err
		}
	case modeKey:
		return func(v any) (string, error) {
			text, err := plainText(v)
			if err == nil && strings.TrimSpace(text) == "" {
				err = problem("a value of the key is empty")
			}
			return text, err
		}
	case modeHeader:
		return func(v any) (string, error) {
			text, err := plainText(v)
			if err == nil && strings.ContainsFunc(text, control) {
				err = problem("a value holds a line break or control character, which no header can carry")
			}
			return text, err
		}
	}
	return plainText
}
