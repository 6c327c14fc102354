package config

import (
	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/task"
)

// RenderEach renders the effects of k that belong to outcome, see [RenderSpecs].
func (k *Kind) RenderEach(outcome string, d TemplateData) (out []RenderedEffect, errs []error) {
	return RenderSpecs(k.Effects, outcome, d)
}

// RenderSpecs renders the effects that belong to outcome one by one, so that a broken one does not keep the others from
// leaving. errs[i] says what is wrong with out[i], which then holds only id, name, type and destination.
func RenderSpecs(specs []EffectSpec, outcome string, d TemplateData) (out []RenderedEffect, errs []error) {
	d.Outcome = outcome
	s := &scope{d: d}
	for i := range specs {
		e := &specs[i]
		if !e.On.Matches(outcome) {
			continue
		}
		s.max = e.max
		r, err := e.render(s)
		if err != nil {
			r = &RenderedEffect{ID: task.NewID(), Name: e.Name, Type: e.Type, Destination: e.Destination}
			err = api.Errorf(api.CodeRenderFailed, "%s", err)
		}
		out, errs = append(out, *r), append(errs, err)
	}
	return out, errs
}
