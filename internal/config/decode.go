package config

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// decoder reads values into the package's types and gathers what is wrong with them.
type decoder struct {
	*problems
	o   Opts
	pos map[string]Pos
	// fields lists, by path, the fields that may stand in each mapping that was read.
	fields map[string][]string
	from   origin
	stored bool // a destination made through the API, whose secrets are kept apart
	prints int  // printed values in the templates of the present effect
}

func newDecoder(p *problems, o Opts) *decoder {
	return &decoder{problems: p, o: o, pos: map[string]Pos{}, fields: map[string][]string{}}
}

// mapping reads the fields of one mapping. Every field that may stand there is asked for by name; done then complains
// about the rest. A mapping that is none was complained about, and asking it gives nothing.
type mapping struct {
	d     *decoder
	path  string
	pos   Pos
	byKey map[string]*field
	order []string
	known []string
}

func (d *decoder) mapping(v *value, path string) *mapping {
	m := &mapping{d: d, path: path, byKey: map[string]*field{}}
	if v == nil {
		return m
	}
	m.pos = v.pos
	d.pos[path] = v.pos
	if v.t != tObject {
		d.wrongType(v, path, tObject)
		return m
	}
	for i := range v.fields {
		f := &v.fields[i]
		m.byKey[f.name] = f
		m.order = append(m.order, f.name)
	}
	return m
}

func (d *decoder) wrongType(v *value, path string, want typ) {
	got, fix := string(v.t), "write "+string(want)+" here"
	switch {
	case v.t == tNull:
		got, fix = "empty", "remove the field or give it a value"
	case want == tString && (v.t == tNumber || v.t == tBool):
		fix = "put quotes around it"
	}
	d.add(v.pos, path, "must be "+string(want)+", but is "+got, fix)
}

// take returns the value of field name, nil when it is absent or not of type want.
func (m *mapping) take(name string, want ...typ) *value {
	m.known = append(m.known, name)
	f, ok := m.byKey[name]
	if !ok {
		return nil
	}
	path := join(m.path, name)
	m.d.pos[path] = f.v.pos
	if len(want) > 0 && !slices.Contains(want, f.v.t) {
		m.d.wrongType(f.v, path, want[0])
		return nil
	}
	return f.v
}

func (m *mapping) has(name string) bool { return m.byKey[name] != nil }

// at is where field name stands, or the mapping when it is absent.
func (m *mapping) at(name string) Pos {
	if f, ok := m.byKey[name]; ok {
		return f.v.pos
	}
	return m.pos
}

// fail notes a problem with field name.
func (m *mapping) fail(name, fix, format string, args ...any) {
	m.d.add(m.at(name), join(m.path, name), fmt.Sprintf(format, args...), fix)
}

// done complains about every field that was not asked for.
func (m *mapping) done() {
	m.d.fields[m.path] = m.known
	for _, name := range m.order {
		if slices.Contains(m.known, name) {
			continue
		}
		fix := "remove it; allowed here: " + strings.Join(m.known, ", ")
		if near := closest(name, m.known); near != "" {
			fix = "did you mean " + near + "?"
		}
		m.d.add(m.byKey[name].pos, join(m.path, name), fmt.Sprintf("unknown field %q", clip(name)), fix)
	}
}

func (m *mapping) str(name string, dst *string) bool {
	v := m.take(name, tString)
	if v == nil {
		return false
	}
	if strings.TrimSpace(v.s) == "" {
		m.fail(name, "remove the field or give it a value", "is blank")
		return false
	}
	*dst = v.s
	return true
}

func (m *mapping) boolean(name string, dst *bool) {
	if v := m.take(name, tBool); v != nil {
		*dst = v.s == "true"
	}
}

// integer reads a whole number from lo to hi.
func (m *mapping) integer(name string, dst *int, lo, hi int) {
	v := m.take(name, tNumber)
	if v == nil {
		return
	}
	var n int
	if _, err := fmt.Sscanf(v.s, "%d", &n); err != nil || fmt.Sprint(n) != v.s || n < lo || n > hi {
		m.fail(name, fmt.Sprintf("write a number from %d to %d", lo, hi), "must be a whole number from %d to %d", lo, hi)
		return
	}
	*dst = n
}

// maxDuration bounds every duration in the file: ten years.
const maxDuration = 10 * 365 * 24 * time.Hour

// dur reads a duration of at least a millisecond.
func (m *mapping) dur(name string, dst *time.Duration) { m.durFrom(time.Millisecond, name, dst) }

// durFrom reads a duration of at least lo.
func (m *mapping) durFrom(lo time.Duration, name string, dst *time.Duration) {
	v := m.take(name, tString, tNumber)
	if v == nil {
		return
	}
	d, err := time.ParseDuration(v.s)
	switch {
	case err != nil:
		m.fail(name, "write a number with its unit: 500ms, 30s, 10m, 720h", "%q is not a duration", clip(v.s))
	case d < lo || d > maxDuration:
		m.fail(name, fmt.Sprintf("write a duration between %s and 87600h", lo), "%s is out of range", clip(v.s))
	default:
		*dst = d
	}
}

// enum reads one of the choices.
func enum[T ~string](m *mapping, name string, dst *T, choices ...T) {
	v := m.take(name, tString)
	if v == nil {
		return
	}
	if !slices.Contains(choices, T(v.s)) {
		words := make([]string, len(choices))
		for i, c := range choices {
			words[i] = string(c)
		}
		fix := "write one of: " + strings.Join(words, ", ")
		if near := closest(v.s, words); near != "" {
			fix = "did you mean " + near + "? (" + fix + ")"
		}
		m.fail(name, fix, "%q is not allowed", clip(v.s))
		return
	}
	*dst = T(v.s)
}

func (m *mapping) strings(name string) []string {
	v := m.take(name, tList)
	if v == nil {
		return nil
	}
	out := []string{}
	for i, item := range v.items {
		path := fmt.Sprintf("%s[%d]", join(m.path, name), i)
		switch {
		case item.t != tString:
			m.d.wrongType(item, path, tString)
		case item.s == "":
			m.d.add(item.pos, path, "is blank", "remove the entry")
		case slices.Contains(out, item.s):
			m.d.add(item.pos, path, fmt.Sprintf("%q is here twice", clip(item.s)), "remove one of the two")
		default:
			out = append(out, item.s)
		}
	}
	return out
}

// named reads a mapping from names to mappings, calling each with every entry whose name fits the grammar.
func (d *decoder) named(v *value, path, what string, valid func(string) string, each func(name string, v *value, path string)) {
	if v == nil {
		return
	}
	if v.t != tObject {
		d.wrongType(v, path, tObject)
		return
	}
	for _, f := range v.fields {
		p := join(path, f.name)
		d.pos[p] = f.pos
		if wrong := valid(f.name); wrong != "" {
			d.add(f.pos, p, fmt.Sprintf("%q cannot be the name of a %s", clip(f.name), what), wrong)
			continue
		}
		each(f.name, f.v, p)
		d.pos[p] = f.pos
	}
}

// closest returns the word most like name, or "" when none is near.
func closest(name string, words []string) string {
	best, least := "", 1+len(name)/3
	for _, w := range words {
		if d := distance(strings.ToLower(name), w); d <= least && (best == "" || d < least) {
			best, least = w, d
		}
	}
	return best
}

// distance counts the edits (insert, delete, replace) that turn a into b.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diag := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diag
			if a[i] != b[j] {
				cost++
			}
			diag = row[j+1]
			row[j+1] = min(cost, row[j]+1, diag+1)
		}
	}
	return row[len(b)]
}
