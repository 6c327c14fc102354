package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/task"
)

// TemplateData is what templates and SQL arguments see of a task.
type TemplateData struct {
	// Input is the task's input as submitted.
	Input []byte
	// Result is what [Kind.Result] gave; nil when there is none.
	Result  []byte
	Task    TaskData
	Outcome string
	// Error is nil unless the task failed or is unknown.
	Error *ErrorData
}

// TaskData names the task.
type TaskData struct {
	ID, Key, Kind, Tenant string
	Run                   int
}

// ErrorData is the task's error.
type ErrorData struct{ Code, Message string }

// RenderedEffect is an effect as it is stored before it leaves: what is stored is what is sent.
type RenderedEffect struct {
	ID          task.ID           `json:"id"` // of the effect, made before its templates see it
	Name        string            `json:"name"`
	Type        string            `json:"type"`
	Destination string            `json:"destination,omitempty"`
	Method      string            `json:"method,omitempty"`
	Path        string            `json:"path,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"`
	// Body of webhook, http and email; the input of a follow-up task.
	Body []byte `json:"body,omitempty"`
	// Fields are the other texts of the type: to and subject (email), kind and key (task).
	Fields map[string]string `json:"fields,omitempty"`
	// Reference is what an outside API knows the effect by; "" is its id. Order is the key whose effects leave one after
	// the other; "" is none.
	Reference string `json:"reference,omitempty"`
	Order     string `json:"order,omitempty"`
	// Statement has its arguments as $1, $2, ...; Args is their JSON array, for [SQLParams].
	Statement string `json:"statement,omitempty"`
	Args      []byte `json:"args,omitempty"`
}

// Render returns the body of the upstream request: the kind's request with its texts rendered, or the input verbatim
// when the kind has no request. The error is an *api.Error with code render_failed, which names the missing field and
// quotes no data.
func (k *Kind) Render(in TemplateData) ([]byte, error) {
	if k.tree == nil {
		return in.Input, nil
	}
	out, err := k.tree.append(nil, &scope{d: in})
	if err != nil {
		return nil, api.Errorf(api.CodeRenderFailed, "%s", err)
	}
	return out, nil
}

// RenderEffects renders the effects that belong to outcome, a task state, in the order of the file. The error is an
// *api.Error with code finish_failed naming the effect and what is missing.
func (k *Kind) RenderEffects(outcome string, d TemplateData) ([]RenderedEffect, error) {
	out, errs := k.RenderEach(outcome, d)
	for i, err := range errs {
		if err != nil {
			return nil, api.Errorf(api.CodeFinishFailed, "effect %s: %s", out[i].Name, message(err))
		}
	}
	return out, nil
}

// message is the text of err without its code.
func message(err error) string {
	var ae *api.Error
	if errors.As(err, &ae) {
		return ae.Message
	}
	return err.Error()
}

func (e *EffectSpec) render(s *scope) (*RenderedEffect, error) {
	r := &RenderedEffect{ID: task.NewID(), Name: e.Name, Type: e.Type, Destination: e.Destination, Method: e.Method}
	s.own(r)
	if e.sql != nil {
		args, err := e.sql.bind(s)
		r.Statement, r.Args = e.sql.text, args
		return r, err
	}
	for _, name := range sortedNames(e.texts) {
		text, err := e.texts[name].text1(s)
		if err != nil {
			return nil, err
		}
		if err := r.setText(name, text); err != nil {
			return nil, err
		}
	}
	for _, name := range sortedNames(e.headers) {
		text, err := e.headers[name].text1(s)
		if err != nil {
			return nil, err
		}
		if r.Headers == nil {
			r.Headers = map[string]string{}
		}
		r.Headers[name] = text
	}
	var err error
	switch {
	case e.body != nil:
		r.Body, err = e.body.render(s)
	case e.Type == "webhook" || e.Type == "task" || e.Type == "http" && e.jsonBody():
		r.Body = defaultBody(s)
	}
	return r, err
}

// maxShort bounds an effect's order key and external reference, in bytes.
const maxShort = 255

func (r *RenderedEffect) setText(name, text string) error {
	if name != "path" && strings.ContainsAny(text, "\r\n\x00") {
		return fmt.Errorf("%s holds a line break", name)
	}
	switch name {
	case "path":
		r.Path = text
	case "reference", "order":
		if text == "" || len(text) > maxShort {
			return fmt.Errorf("%s is %d bytes long; 1 to %d are allowed", name, len(text), maxShort)
		}
		if name == "order" {
			r.Order = text
		} else {
			r.Reference = text
		}
	default:
		if r.Fields == nil {
			r.Fields = map[string]string{}
		}
		r.Fields[name] = text
	}
	return nil
}

func (l *leaf) text1(s *scope) (string, error) {
	data, err := s.data()
	if err != nil {
		return "", err
	}
	return l.executeMax(data, s.limit())
}

// defaultBody is what a webhook without a body of its own carries: type and data, as Standard Webhooks advises.
func defaultBody(s *scope) []byte {
	t := s.d.Task
	data := object()
	data.set("task_id", str(t.ID))
	data.set("kind", str(t.Kind))
	data.set("key", str(t.Key))
	data.set("run", num(t.Run))
	data.set("outcome", str(s.d.Outcome))
	if e := s.d.Error; e != nil {
		x := object()
		x.set("code", str(e.Code))
		x.set("message", str(e.Message))
		data.set("error", x)
	}
	b := append([]byte(`{"type":`), appendString(nil, "task."+s.d.Outcome)...)
	b = append(b, `,"data":`...)
	b = data.appendJSON(b)
	if len(s.d.Result) > 0 {
		result := s.d.Result
		if !json.Valid(result) {
			result = appendString(nil, string(result))
		}
		b = append(b[:len(b)-1], `,"result":`...)
		b = append(append(b, result...), '}')
	}
	return append(b, '}')
}

// bind looks the arguments up and returns them as a JSON array in the order of $1, $2, ...
func (st *statement) bind(s *scope) ([]byte, error) {
	data, err := s.data()
	if err != nil {
		return nil, err
	}
	args := make([]json.RawMessage, len(st.args))
	for i, path := range st.args {
		v, err := argument(data, path)
		if err != nil {
			return nil, err
		}
		text, err := toJSON(noNUL(v))
		if err != nil {
			return nil, err
		}
		args[i] = json.RawMessage(text)
	}
	b := []byte{'['}
	for i, a := range args {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, a...)
	}
	return append(b, ']'), nil
}

// noNUL replaces U+0000, which Postgres can hold neither in text nor in jsonb, by U+FFFD in all texts of v.
func noNUL(v any) any {
	switch v := v.(type) {
	case string:
		return strings.ReplaceAll(v, "\x00", "\uFFFD")
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = noNUL(x)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, x := range v {
			out[noNUL(name).(string)] = noNUL(x)
		}
		return out
	}
	return v
}

// argument finds the value behind @path. A missing field is an error; null is a value.
func argument(data map[string]any, path []string) (any, error) {
	var v any = data
	switch path[0] {
	case "key", "tenant", "kind", "run":
		return data["task"].(map[string]any)[path[0]], nil
	case "task_id":
		return data["task"].(map[string]any)["id"], nil
	case "error":
		if data["error"] == nil { // an effect on final has no error when the task succeeded
			return nil, nil
		}
	case "result":
		if data["result"] == nil {
			return nil, errors.New("@" + strings.Join(path, ".") + ": there is no result")
		}
	}
	for i, name := range path {
		next, ok := child(v, name)
		if !ok {
			return nil, errors.New("@" + strings.Join(path[:i+1], ".") + " is missing")
		}
		v = next
	}
	return v, nil
}

// child is the field name of an object or the element of that number of a list.
func child(v any, name string) (any, bool) {
	switch v := v.(type) {
	case map[string]any:
		x, ok := v[name]
		return x, ok
	case []any:
		n := 0
		for _, c := range name {
			if c < '0' || c > '9' || n > len(v) {
				return nil, false
			}
			n = n*10 + int(c-'0')
		}
		if n < len(v) {
			return v[n], true
		}
	}
	return nil, false
}

// SQLParams turns [RenderedEffect.Args] into parameters in the text format of the Postgres protocol, for
// pgconn.PgConn.ExecParams and its like: Postgres reads each as the type the statement asks for, so no digit is lost.
// nil is NULL, objects and lists are their JSON. U+0000, which Postgres cannot hold, became U+FFFD at rendering.
func SQLParams(args []byte) ([][]byte, error) {
	var list []json.RawMessage
	if err := json.Unmarshal(args, &list); err != nil {
		return nil, fmt.Errorf("read stored SQL arguments: %w", err)
	}
	out := make([][]byte, len(list))
	for i, raw := range list {
		switch {
		case string(raw) == "null":
		case raw[0] == '"':
			var s string
			if err := json.Unmarshal(raw, &s); err != nil {
				return nil, fmt.Errorf("read stored SQL argument %d: %w", i+1, err)
			}
			out[i] = []byte(s)
		default:
			out[i] = raw
		}
	}
	return out, nil
}
