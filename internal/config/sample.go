package config

import "errors"

// trySamples renders request and effects with the kind's samples, so that a template that cannot work stops the start
// and not the first task.
func (d *decoder) trySamples(m *mapping, k *Kind, sample, result *value) {
	if sample == nil {
		if result != nil {
			m.fail("sample_result", "add sample: with an input", "there is a sample_result but no sample")
		}
		return
	}
	data := TemplateData{
		Input: sample.appendJSON(nil),
		Task:  TaskData{ID: "0190a0b0-0000-7000-8000-000000000000", Key: "sample", Kind: k.Name, Tenant: "sample", Run: 1},
	}
	if k.tree != nil {
		sc := &scope{d: data}
		k.tree.leaves(func(l *leaf) {
			if _, err := l.appendJSON(nil, sc); err != nil {
				d.sampleProblem(m.at("request"), join(m.path, "request"), err)
			}
		})
	}
	if result != nil {
		data.Result = result.appendJSON(nil)
		if k.schema != nil {
			if err := k.schema.check(data.Result); err != nil {
				d.add(result.pos, join(m.path, "sample_result"), "does not fit the schema", "mend the sample or the schema")
			}
		}
	}
	for i := range k.Effects {
		d.tryEffect(&k.Effects[i], data)
	}
}

func (d *decoder) sampleProblem(pos Pos, path string, err error) {
	msg := err.Error()
	var re *renderError
	if errors.As(err, &re) && re.leaf != nil {
		pos, path, msg = re.leaf.pos, re.leaf.path, re.msg
	}
	for _, e := range d.list {
		if e.Path == path { // its cause has been named
			return
		}
	}
	d.add(pos, path, "cannot be rendered with the sample: "+msg, "mend the template or the sample; give optional fields with default")
}

// tryEffect renders one effect for an outcome it waits for. One that needs a result is left alone when there is no
// sample of it; for the outcomes other than succeeded there is none to be had.
func (d *decoder) tryEffect(e *EffectSpec, data TemplateData) {
	outcome := string(e.On)
	if e.On == AtFinal {
		outcome = string(AtSucceeded)
	}
	data.Outcome = outcome
	if outcome != string(AtSucceeded) {
		data.Result, data.Error = nil, &ErrorData{Code: "sample", Message: "a sample"}
	}
	if outcome == string(AtSucceeded) && len(data.Result) == 0 && e.usesResult() {
		return
	}
	if _, err := e.render(&scope{d: data}); err != nil {
		d.sampleProblem(d.pos[e.path], e.path, err)
	}
}

func (e *EffectSpec) usesResult() bool {
	uses := false
	see := func(l *leaf) { uses = uses || l.uses["result"] }
	for _, l := range e.texts {
		see(l)
	}
	for _, l := range e.headers {
		see(l)
	}
	e.body.leaves(see)
	if e.sql != nil {
		for _, a := range e.sql.args {
			uses = uses || a[0] == "result"
		}
	}
	return uses
}
