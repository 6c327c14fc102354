package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/onefold-dev/onefold/internal/task"
)

// Kind is one sort of work.
type Kind struct {
	Name, Provider string
	Output         Output
	// MaxAttempts bounds the tries of one run, MaxRuns the runs of one task.
	MaxAttempts, MaxRuns int
	// ReopenFailed lets a duplicate of a task that failed by the system's fault run it again.
	ReopenFailed bool
	OnUnknown    OnUnknown
	OnCut        OnCut
	Dedupe       Dedupe
	// Deadline is the time a run has when the submit names none.
	Deadline time.Duration
	// Concurrency bounds the tasks of this kind running at once; 0 = no bound.
	Concurrency int
	// HighValue has the reconciler look at this kind before the others. It decides nothing about how a task runs, so that
	// it is no part of Hash and Body.
	HighValue bool
	// Timeouts holds what this kind sets itself; see [Config.TimeoutsOf].
	Timeouts Timeouts
	// Retention and PayloadRetention hold what this kind sets itself; see [Config.RetentionOf].
	Retention, PayloadRetention time.Duration
	Prices                      map[string]Price
	Effects                     []EffectSpec

	request *value // nil: the input is the request
	tree    *tree
	schema  *schema
	body    []byte
	hash    string
}

// The values a kind can have.
const (
	valueNormal = "normal"
	valueHigh   = "high"
)

// Hash returns the hex SHA-256 of [Kind.Body]. It does not change with comments, key order or a default spelled out.
// Only within request does the order of keys count: it is sent as written, and a model sees it.
func (k *Kind) Hash() string { return k.hash }

// Body returns the kind's canonical JSON, from which [KindFromBody] rebuilds it: everything that decides how a task
// runs, not the samples, and no secret.
func (k *Kind) Body() []byte { return slices.Clone(k.body) }

// KindFromBody rebuilds a kind from what [Kind.Body] returned, in this or another version of the program. The error is
// [Errors]; a body this program cannot run (an effect type it has not) is one.
func KindFromBody(name string, body []byte, o Opts) (*Kind, error) {
	p := &problems{file: "stored configuration of " + name}
	v, err := parseJSON(body)
	if err != nil {
		p.add(Pos{}, "", "is not JSON", "")
		return nil, p.err()
	}
	d := newDecoder(p, o)
	k := d.kind(name, v, join("kinds", name), nil)
	if err := p.err(); err != nil {
		return nil, err
	}
	return k, nil
}

// kind reads one kind. c, nil for a stored body, tells what the defaults depend on.
func (d *decoder) kind(name string, v *value, path string, c *Config) *Kind {
	m := d.mapping(v, path)
	k := &Kind{
		Name: name, Output: OutputResponse, MaxAttempts: DefaultMaxAttempts, MaxRuns: DefaultMaxRuns, ReopenFailed: true,
		OnUnknown: UnknownRetry, OnCut: CutRegenerate, Dedupe: Dedupe{Mode: DedupeKey}, Deadline: DefaultDeadline,
	}
	if !m.str("provider", &k.Provider) && !m.has("provider") && v.t == tObject {
		m.fail("provider", "add provider: NAME", "there is no provider")
	}
	base := defaultTimeouts(true)
	if c == nil {
		var stored string
		if m.str("name", &stored); stored != name {
			m.fail("name", "", "is the configuration of another kind")
		}
	}
	if c != nil {
		if p := c.Providers[k.Provider]; p != nil {
			base = p.Timeouts
			if p.Type == "httpcall" && p.Status == "" {
				k.OnUnknown = UnknownReview // nobody can be asked whether it was done
			}
		}
	}
	enum(m, "output", &k.Output, OutputResponse, OutputText, OutputJSON)
	enum(m, "on_unknown", &k.OnUnknown, UnknownRetry, UnknownReview)
	if k.OnUnknown == UnknownReview {
		k.OnCut = CutReview // a cut reply made anew unasked would be what review is to keep from happening
	}
	enum(m, "on_cut", &k.OnCut, CutRegenerate, CutKeep, CutReview)
	if k.OnCut == CutKeep && k.Output == OutputJSON {
		m.fail("on_cut", "use regenerate or review, or another output", "what came of a cut reply is no JSON, so that it cannot be kept as a json output")
	}
	m.integer("max_attempts", &k.MaxAttempts, 1, 100)
	m.integer("max_runs", &k.MaxRuns, 1, 100)
	m.boolean("reopen_failed", &k.ReopenFailed)
	m.integer("concurrency", &k.Concurrency, 1, 100_000)
	value := valueNormal
	enum(m, "value", &value, valueNormal, valueHigh)
	k.HighValue = value == valueHigh
	m.dur("deadline", &k.Deadline)
	m.dur("retention", &k.Retention)
	m.dur("payload_retention", &k.PayloadRetention)
	m.dedupe(&k.Dedupe)
	k.Timeouts = d.kindTimeouts(m.take("timeouts"), join(path, "timeouts"), base)
	k.Prices = d.prices(m.take("prices"), join(path, "prices"))
	d.kindContent(m, k)
	m.done()
	k.body = k.canonical().appendJSON(nil)
	k.hash = hashOf(k.body)
	return k
}

// kindContent reads what is rendered and checked, and renders the samples.
func (d *decoder) kindContent(m *mapping, k *Kind) {
	if v := m.take("request", tObject); v != nil {
		k.request = v
		k.tree = d.compileTree(v, join(m.path, "request"), requestRoots)
	}
	if v := m.take("schema", tObject); v != nil {
		k.schema = d.compileSchema(v, join(m.path, "schema"))
		if k.Output != OutputJSON {
			m.fail("schema", "add output: json, or remove the schema", "a schema needs output: json")
		}
	}
	sample, result := m.take("sample"), m.take("sample_result")
	k.Effects = d.effects(m.take("effects", tList), join(m.path, "effects"))
	d.trySamples(m, k, sample, result)
}

// dedupe reads key, open, none, "window: 1h" or {window: 1h}.
func (m *mapping) dedupe(dst *Dedupe) {
	v := m.take("dedupe", tString, tObject)
	if v == nil {
		return
	}
	if v.t == tObject {
		w := m.d.mapping(v, join(m.path, "dedupe"))
		dst.Mode = DedupeWindow
		w.dur("window", &dst.Window)
		if !w.has("window") {
			m.fail("dedupe", `write dedupe: {window: 1h}`, "there is no window")
		}
		w.done()
		dst.wholeSeconds(m)
		return
	}
	if rest, ok := strings.CutPrefix(v.s, "window:"); ok {
		d, err := time.ParseDuration(strings.TrimSpace(rest))
		if err != nil || d <= 0 || d > maxDuration {
			m.fail("dedupe", `write dedupe: "window: 1h"`, "%q is not a window", clip(v.s))
			return
		}
		*dst = Dedupe{Mode: DedupeWindow, Window: d}
		dst.wholeSeconds(m)
		return
	}
	if v.s == string(DedupeWindow) {
		m.fail("dedupe", `write the length too: dedupe: "window: 1h"`, "a window needs its length")
		return
	}
	enum(m, "dedupe", &dst.Mode, DedupeKey, DedupeOpen, DedupeNone)
}

// wholeSeconds refuses windows that no key slot can name: slots are numbered in whole seconds.
func (d *Dedupe) wholeSeconds(m *mapping) {
	if d.Window%time.Second != 0 {
		m.fail("dedupe", `write whole seconds: dedupe: "window: 1h"`, "the window %s is not a whole number of seconds", d.Window)
	}
}

func (d *decoder) kindTimeouts(v *value, path string, base Timeouts) Timeouts {
	if v == nil {
		return Timeouts{}
	}
	m := d.mapping(v, path)
	t := m.timeoutFields()
	d.saneTimeouts(m, t, base)
	return t
}

// references checks that the names a kind uses stand for something, and that its times fit together.
func (d *decoder) references(k *Kind, c *Config, root *mapping) {
	path := join("kinds", k.Name)
	if k.Provider != "" && c.Providers[k.Provider] == nil {
		given := root.byKey["providers"] != nil && hasField(root.byKey["providers"].v, k.Provider)
		if !given { // one that is there but wrong has been complained about
			d.add(d.pos[path+".provider"], path+".provider", fmt.Sprintf("there is no provider %q", clip(k.Provider)),
				suggest(k.Provider, names(c.Providers), "add it under providers:"))
		}
	}
	for _, e := range k.Effects {
		d.follows(e, c)
		if to := c.Destinations[e.Destination]; to != nil && to.URL.Reveal() != "" && !to.Takes(e.Type) {
			at := e.path + ".destination"
			d.add(d.pos[at], at, fmt.Sprintf("%s effects cannot go to %s", e.Type, e.Destination), "mails go to an smtp:// or smtps:// address, all else to http:// or https://")
		}
		if e.Destination == "" || c.Destinations[e.Destination] != nil {
			continue
		}
		if f := root.byKey["destinations"]; f != nil && hasField(f.v, e.Destination) {
			continue
		}
		at := e.path + ".destination"
		d.add(d.pos[at], at, fmt.Sprintf("there is no destination %q", clip(e.Destination)),
			suggest(e.Destination, names(c.Destinations), "add it under destinations:"))
	}
	if keep := c.RetentionOf(k); k.PayloadRetention > keep {
		at := path + ".payload_retention"
		d.add(d.pos[at], at, fmt.Sprintf("payload_retention %s is longer than the task's own %s", short(k.PayloadRetention), short(keep)), "shorten it or raise retention")
	}
}

// follows checks that a follow-up task's kind, where it is fixed, is one that can follow.
func (d *decoder) follows(e EffectSpec, c *Config) {
	name, fixed := e.Text("kind")
	if e.Type != "task" || !fixed {
		return
	}
	at := e.path + ".kind"
	switch k := c.Kinds[name]; {
	case k == nil:
		d.add(d.pos[at], at, fmt.Sprintf("there is no kind %q", clip(name)), suggest(name, names(c.Kinds), "add it under kinds:"))
	case k.Dedupe.Mode == DedupeWindow:
		d.add(d.pos[at], at, "a kind that dedupes by window cannot follow: a follow-up has no time of its own", "give that kind dedupe: key")
	}
}

func hasField(v *value, name string) bool {
	return slices.ContainsFunc(v.fields, func(f field) bool { return f.name == name })
}

func names[T any](m map[string]T) []string {
	out := make([]string, 0, len(m))
	for n := range m {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

func suggest(name string, have []string, otherwise string) string {
	if near := closest(name, have); near != "" {
		return "did you mean " + near + "?"
	}
	if len(have) == 0 {
		return otherwise
	}
	return otherwise + " or use one of: " + strings.Join(have, ", ")
}

// canonical is the kind as a mapping in order of names. Fields of the first version stand there even when they hold
// their default; a field added later is left out while it does, so that the hashes of an older program stay valid.
func (k *Kind) canonical() *value {
	v := object()
	v.set("dedupe", k.Dedupe.value())
	v.set("deadline", str(k.Deadline.String()))
	v.set("max_attempts", num(k.MaxAttempts))
	v.set("max_runs", num(k.MaxRuns))
	v.set("name", str(k.Name)) // so that a hash stands for one kind, even where two are configured alike
	v.set("on_cut", str(string(k.OnCut)))
	v.set("on_unknown", str(string(k.OnUnknown)))
	v.set("output", str(string(k.Output)))
	v.set("provider", str(k.Provider))
	v.set("reopen_failed", boolean(k.ReopenFailed))
	if k.Concurrency > 0 {
		v.set("concurrency", num(k.Concurrency))
	}
	if k.Retention > 0 {
		v.set("retention", str(k.Retention.String()))
	}
	if k.PayloadRetention > 0 {
		v.set("payload_retention", str(k.PayloadRetention.String()))
	}
	if t := k.Timeouts.value(); len(t.fields) > 0 {
		v.set("timeouts", t)
	}
	if len(k.Prices) > 0 {
		v.set("prices", pricesValue(k.Prices))
	}
	if k.request != nil {
		v.set("request", k.request)
	}
	if k.schema != nil {
		v.set("schema", k.schema.v.sortedDeep())
	}
	if len(k.Effects) > 0 {
		list := &value{t: tList}
		for i := range k.Effects {
			list.items = append(list.items, k.Effects[i].value())
		}
		v.set("effects", list)
	}
	return v.sorted()
}

func (d Dedupe) value() *value {
	if d.Mode != DedupeWindow {
		return str(string(d.Mode))
	}
	v := object()
	v.set("window", str(d.Window.String()))
	return v
}

// Policy is what the kind says of failures, in the domain's words.
func (k *Kind) Policy() task.Policy {
	p := task.Policy{MaxAttempts: int32(k.MaxAttempts), OnUnknown: task.Retry, OnCut: task.Regenerate}
	if k.OnUnknown == UnknownReview {
		p.OnUnknown = task.Review
	}
	if k.OnCut == CutReview {
		p.OnCut = task.CutReview
	}
	return p
}
