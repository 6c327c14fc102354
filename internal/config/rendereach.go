package config

import "github.com/onefold-dev/onefold/api"

// RenderEach renders the effects that belong to outcome one by one, so that a broken one does not keep the others from
// leaving. errs[i] says what is wrong with out[i], which then holds only name, type and destination.
func (k *Kind) RenderEach(outcome string, d TemplateData) (out []RenderedEffect, errs []error) {
	d.Outcome = outcome
	s := &scope{d: d, effect: true}
	for i := range k.Effects {
		e := &k.Effects[i]
		if !e.On.Matches(outcome) {
			continue
		}
		r, err := e.render(s)
		if err != nil {
			r = &RenderedEffect{Name: e.Name, Type: e.Type, Destination: e.Destination}
			err = api.Errorf(api.CodeRenderFailed, "%s", err)
		}
		out, errs = append(out, *r), append(errs, err)
	}
	return out, errs
}
