package config

import (
	"fmt"
	"maps"
	"mime"
	"slices"
	"strings"
)

// On says at which outcome of the task an effect comes into being.
type On string

// The outcomes an effect can wait for. AtFinal is succeeded, failed or cancelled.
const (
	AtSucceeded On = "succeeded"
	AtFailed    On = "failed"
	AtUnknown   On = "unknown"
	AtCancelled On = "cancelled"
	AtFinal     On = "final"
)

// Matches reports whether an effect with this On belongs to outcome, a task state.
func (o On) Matches(outcome string) bool {
	if o == AtFinal {
		return outcome == "succeeded" || outcome == "failed" || outcome == "cancelled"
	}
	return string(o) == outcome
}

// EffectSpec is one side effect of a kind, before it is rendered.
type EffectSpec struct {
	Name, Type  string
	On          On
	Destination string
	// Statement is the SQL as written, for type sql.
	Statement string
	// Method is the HTTP method, for type http. Default POST.
	Method string

	path    string           // in the file
	texts   map[string]*leaf // path, to, subject, kind, key, reference, order: rendered to text
	headers map[string]*leaf
	body    *content // body or input
	sql     *statement
	max     int               // what it may render to, in bytes; 0 = maxRendered
	source  map[string]*value // texts, headers, body as written, for the canonical form
}

// effectFields says which fields a type takes besides name, type and on, and which of them it needs.
var effectFields = map[string]struct{ takes, needs []string }{
	"webhook": {[]string{"destination", "headers", "body", "reference", "order"}, []string{"destination"}},
	"sql":     {[]string{"statement"}, []string{"statement"}},
	"http":    {[]string{"destination", "method", "path", "headers", "body", "reference", "order"}, []string{"destination"}},
	"email":   {[]string{"destination", "to", "subject", "headers", "body", "order"}, []string{"destination", "to", "subject", "body"}},
	"task":    {[]string{"kind", "key", "input"}, []string{"kind"}},
}

func (d *decoder) effects(v *value, path string) []EffectSpec {
	if v == nil {
		return nil
	}
	var out []EffectSpec
	seen := map[string]bool{}
	for i, item := range v.items {
		p := fmt.Sprintf("%s[%d]", path, i)
		e := d.effect(item, p)
		if e.Name != "" && seen[e.Name] {
			d.add(d.pos[p+".name"], p+".name", fmt.Sprintf("a second effect is named %q", clip(e.Name)), "give each effect of a kind a name of its own")
		}
		seen[e.Name] = true
		out = append(out, e)
	}
	return out
}

func (d *decoder) effect(v *value, path string) EffectSpec {
	m := d.mapping(v, path)
	d.prints = 0
	e := EffectSpec{On: AtSucceeded, path: path, texts: map[string]*leaf{}, source: map[string]*value{}}
	if v.t != tObject {
		return e
	}
	switch {
	case m.str("name", &e.Name):
		if wrong := plainName(e.Name); wrong != "" {
			m.fail("name", wrong, "%q cannot be the name of an effect", clip(e.Name))
		}
	case !m.has("name"):
		m.fail("name", "add name: a short word that stays the same", "the effect has no name")
	}
	e.Type = m.available("effect", designEffects, d.o.EffectTypes)
	enum(m, "on", &e.On, AtSucceeded, AtFailed, AtUnknown, AtCancelled, AtFinal)
	spec, ok := effectFields[e.Type]
	if !ok { // complained about; the other fields cannot be judged
		return e
	}
	for _, name := range spec.needs {
		if !m.has(name) {
			m.fail(name, "add "+name+":", "%s effects need %s", e.Type, name)
		}
	}
	if e.Type == "http" {
		e.Method = "POST"
	}
	for _, name := range spec.takes {
		d.effectField(m, &e, name)
	}
	m.done()
	return e
}

func (d *decoder) effectField(m *mapping, e *EffectSpec, name string) {
	path := join(m.path, name)
	switch name {
	case "destination":
		m.str(name, &e.Destination)
	case "statement":
		v := m.take(name, tString)
		if v == nil {
			return
		}
		e.Statement = v.s
		st, err := parseSQL(v.s)
		if err != nil {
			d.add(v.pos, path, err.Error(), "write one INSERT, UPDATE, DELETE, MERGE or SELECT with values as @key, @input.a, @result.b")
			return
		}
		e.sql = st
	case "method":
		enum(m, name, &e.Method, "POST", "PUT", "PATCH", "DELETE", "GET")
	case "headers":
		v := m.take(name, tObject)
		if v == nil {
			return
		}
		e.source[name] = v
		taken := ours
		if e.Type == "email" {
			taken = mailOurs
		}
		e.headers = d.headerLeaves(v, path, effectRoots, taken)
	case "body", "input":
		v := m.take(name, tString, tObject, tList)
		if v == nil {
			return
		}
		e.source[name] = v
		e.body = d.compileContent(v, path, name == "input" || e.Type != "email" && e.jsonBody(), effectRoots)
	default: // path, to, subject, kind, key, reference, order
		v := m.take(name, tString)
		if v == nil {
			return
		}
		e.source[name] = v
		mode := modePlain
		if name == "path" {
			mode = modePath
		}
		e.texts[name] = d.compileLeaf(v, path, mode, effectRoots)
	}
}

func control(r rune) bool { return r < 0x20 || r == 0x7f }

// ours are the headers the outbox sets itself.
var ours = []string{
	"Host", "Content-Length", "Transfer-Encoding", "Connection", "Upgrade", "Te", "Trailer", "Keep-Alive", "Expect",
	"Webhook-Id", "Webhook-Timestamp", "Webhook-Signature", "Idempotency-Key", "X-Idempotency-Key", "User-Agent", "Traceparent",
	"Onefold-Traffic", "Onefold-Attempt",
}

// mailOurs are the headers of a mail that the destination, the effect's own fields or the delivery set.
var mailOurs = []string{
	"From", "To", "Cc", "Bcc", "Sender", "Return-Path", "Subject", "Date", "Message-Id", "Received", "Mime-Version", "User-Agent",
	"X-Mailer", "Content-Transfer-Encoding", "Dkim-Signature",
}

func (d *decoder) headerLeaves(v *value, path string, roots, ours []string) map[string]*leaf {
	out, seen := map[string]*leaf{}, map[string]bool{}
	for _, f := range v.fields {
		p := join(path, f.name)
		taken := slices.ContainsFunc(ours, func(s string) bool { return strings.EqualFold(s, f.name) })
		switch {
		case !isToken(f.name):
			d.add(f.pos, p, fmt.Sprintf("%q is no header name", clip(f.name)), "use letters, digits and -")
		case seen[strings.ToLower(f.name)]:
			d.add(f.pos, p, fmt.Sprintf("the header %s is here twice; case does not matter", f.name), "remove one of the two")
		case taken:
			d.add(f.pos, p, fmt.Sprintf("the header %s is set by the delivery itself", f.name), "remove it")
		case f.v.t != tString:
			d.wrongType(f.v, p, tString)
		default:
			l := d.compileLeaf(f.v, p, modeHeader, roots)
			if l != nil && l.t == nil && strings.ContainsFunc(l.text, control) {
				d.add(f.v.pos, p, "holds a line break or control character, which no header can carry", "remove it")
			}
			if l != nil {
				out[f.name] = l
			}
		}
		seen[strings.ToLower(f.name)] = true
	}
	return out
}

// jsonBody reports whether the body's content type, as far as it is fixed in the file, is JSON.
func (e *EffectSpec) jsonBody() bool {
	if h := e.source["headers"]; h != nil {
		for _, f := range h.fields {
			if strings.EqualFold(f.name, "Content-Type") {
				mt, _, err := mime.ParseMediaType(f.v.s)
				return err == nil && (mt == "application/json" || strings.HasSuffix(mt, "+json"))
			}
		}
	}
	return true
}

func (e *EffectSpec) value() *value {
	v := object()
	v.set("name", str(e.Name))
	v.set("type", str(e.Type))
	v.set("on", str(string(e.On)))
	if e.Destination != "" {
		v.set("destination", str(e.Destination))
	}
	if e.Statement != "" {
		v.set("statement", str(e.Statement))
	}
	if e.Method != "" {
		v.set("method", str(e.Method))
	}
	for _, name := range slices.Sorted(maps.Keys(e.source)) {
		x := e.source[name]
		if name == "headers" {
			x = x.sortedDeep()
		}
		v.set(name, x)
	}
	return v.sorted()
}

// SQLStatement is a statement that the start-up check prepares against the real database.
type SQLStatement struct {
	Kind, Effect string
	// SQL has its arguments as $1, $2, ...
	SQL string
	// Path is the field, for [Config.At].
	Path string
	File string
	Pos
}

// SQLStatements returns the statements of all sql effects, in the order of the file.
func (c *Config) SQLStatements() []SQLStatement {
	var out []SQLStatement
	for _, name := range names(c.Kinds) {
		for _, e := range c.Kinds[name].Effects {
			if e.sql != nil {
				p := e.path + ".statement"
				out = append(out, SQLStatement{Kind: name, Effect: e.Name, SQL: e.sql.text, Path: p, File: c.File, Pos: c.pos[p]})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b SQLStatement) int { return a.Line - b.Line })
	return out
}
