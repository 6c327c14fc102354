package config

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/onefold-dev/onefold/api"
)

// Answer is what a check says of an earlier delivery.
type Answer string

// The answers.
const (
	CheckDone       Answer = "done"     // it arrived: nothing is sent again
	CheckNotDone    Answer = "not_done" // it did not arrive: it may be sent
	CheckCannotTell Answer = "cannot_tell"
)

// DefaultCheckAfter is how long a check waits after a delivery of unknown outcome, so that a receiver still at work on
// it has finished.
const DefaultCheckAfter = time.Minute

// Check is how a destination is asked, by an external reference, whether a delivery of unknown outcome arrived.
type Check struct {
	// Method is GET, HEAD or POST (for APIs that search that way).
	Method string
	// After is how long to wait after the delivery before asking.
	After time.Duration

	path          *leaf
	headers       map[string]*leaf
	body          *content
	done, notDone *rule
}

// rule is what an answer must be like. All that is given must hold.
type rule struct {
	status  []int
	present []string // a field that is there, not null and not empty
	absent  []string // a field that is missing, null or empty
	equals  map[string]string
}

// CheckData is what a check's templates see.
type CheckData struct {
	EffectID, EffectName string
	// Reference is the effect's external reference; the effect's id where it has none.
	Reference string
	Task      TaskData
}

// CheckRequest is the request that asks.
type CheckRequest struct {
	Method, Path string
	Headers      map[string]string
	Body         []byte
}

var checkRoots = []string{"effect", "task"}

func (d *decoder) check(v *value, path string) *Check {
	if v == nil {
		return nil
	}
	m := d.mapping(v, path)
	c := &Check{Method: "GET", After: DefaultCheckAfter}
	enum(m, "method", &c.Method, "GET", "HEAD", "POST")
	m.durFrom(0, "after", &c.After)
	if p := m.take("path", tString); p != nil {
		c.path = d.compileLeaf(p, join(path, "path"), modePath, checkRoots)
	} else if !m.has("path") && v.t == tObject {
		m.fail("path", `add path: as in /orders?reference={{.effect.reference}}`, "there is no path to ask at")
	}
	if h := m.take("headers", tObject); h != nil {
		c.headers = d.headerLeaves(h, join(path, "headers"), checkRoots, ours)
	}
	if b := m.take("body", tString, tObject, tList); b != nil {
		c.body = d.compileContent(b, join(path, "body"), true, checkRoots)
		if c.Method != "POST" {
			m.fail("body", "add method: POST, or remove the body", "only a POST has a body")
		}
	}
	c.done = d.rule(m.take("done", tObject), join(path, "done"))
	c.notDone = d.rule(m.take("not_done", tObject), join(path, "not_done"))
	for name, r := range map[string]*rule{"done": c.done, "not_done": c.notDone} {
		if r == nil && !m.has(name) && v.t == tObject {
			m.fail(name, "add "+name+": as in {status: 200}", "the check does not say which answer means %s", strings.ReplaceAll(name, "_", " "))
		}
	}
	m.done()
	return c
}

func (d *decoder) rule(v *value, path string) *rule {
	if v == nil {
		return nil
	}
	m := d.mapping(v, path)
	r := &rule{}
	if s := m.take("status", tNumber, tList); s != nil {
		list := []*value{s}
		if s.t == tList {
			list = s.items
		}
		for _, item := range list {
			var n int
			if _, err := fmt.Sscanf(item.s, "%d", &n); item.t != tNumber || err != nil || n < 100 || n > 599 {
				m.fail("status", "write a number from 100 to 599, or a list of them", "is no HTTP status")
				continue
			}
			r.status = append(r.status, n)
		}
	}
	for name, dst := range map[string]*[]string{"present": &r.present, "absent": &r.absent} {
		var at string
		if m.str(name, &at) {
			*dst = strings.Split(at, ".")
		}
	}
	if e := m.take("equals", tObject); e != nil {
		r.equals = map[string]string{}
		for _, f := range e.fields {
			if f.v.t == tList || f.v.t == tObject {
				d.wrongType(f.v, join(path, "equals."+f.name), tString)
				continue
			}
			r.equals[f.name] = f.v.s
		}
	}
	m.done()
	if len(r.status) == 0 && r.present == nil && r.absent == nil && len(r.equals) == 0 && v.t == tObject {
		d.add(v.pos, path, "every answer fits an empty rule", "add status, present, absent or equals")
	}
	return r
}

// Request renders what is asked for one effect. The error is an *api.Error with code render_failed.
func (c *Check) Request(in CheckData) (CheckRequest, error) {
	t := in.Task
	s := &scope{parsed: map[string]any{
		"effect": map[string]any{"id": in.EffectID, "name": in.EffectName, "reference": in.Reference},
		"task":   map[string]any{"id": t.ID, "key": t.Key, "kind": t.Kind, "tenant": t.Tenant, "run": t.Run},
	}}
	r := CheckRequest{Method: c.Method}
	var err error
	if r.Path, err = c.path.text1(s); err != nil {
		return r, api.Errorf(api.CodeRenderFailed, "%s", err)
	}
	for _, name := range sortedNames(c.headers) {
		if r.Headers == nil {
			r.Headers = map[string]string{}
		}
		if r.Headers[name], err = c.headers[name].text1(s); err != nil {
			return r, api.Errorf(api.CodeRenderFailed, "%s", err)
		}
	}
	if c.body != nil {
		if r.Body, err = c.body.render(s); err != nil {
			return r, api.Errorf(api.CodeRenderFailed, "%s", err)
		}
	}
	return r, nil
}

// Says is what an answer means. One that fits both rules, or none, says nothing.
func (c *Check) Says(status int, body []byte) Answer {
	done, notDone := c.done.fits(status, body), c.notDone.fits(status, body)
	switch {
	case done && !notDone:
		return CheckDone
	case notDone && !done:
		return CheckNotDone
	}
	return CheckCannotTell
}

func (r *rule) fits(status int, body []byte) bool {
	if len(r.status) > 0 && !slices.Contains(r.status, status) {
		return false
	}
	if r.present == nil && r.absent == nil && len(r.equals) == 0 {
		return true
	}
	v, err := decodeAny(body)
	if err != nil {
		return false // an answer that was cut, or is no JSON, proves nothing
	}
	if r.present != nil && !there(v, r.present) || r.absent != nil && there(v, r.absent) {
		return false
	}
	for path, want := range r.equals {
		got, ok := at(v, strings.Split(path, "."))
		if text, err := plainText(got); !ok || err != nil || text != want {
			return false
		}
	}
	return true
}

func at(v any, path []string) (any, bool) {
	for _, name := range path {
		next, ok := child(v, name)
		if !ok {
			return nil, false
		}
		v = next
	}
	return v, true
}

// there says whether a field holds something: a list without items holds nothing.
func there(v any, path []string) bool {
	got, ok := at(v, path)
	if !ok {
		return false
	}
	switch got := got.(type) {
	case nil:
		return false
	case string:
		return got != ""
	case []any:
		return len(got) > 0
	case map[string]any:
		return len(got) > 0
	case json.Number, bool:
		return true
	}
	return true
}
