package outbox

import (
	"context"
	"strings"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
)

// spec is an effect before it is rendered. Those that are not the operator's own go only where their tenant may send.
type spec struct {
	config.EffectSpec
	foreign bool
}

// specsOf gathers the effects of a task: its kind's, those of its submit, and those of the answer. A name that is taken
// gets a suffix: who submitted did not know that a later version of the kind would use it. The error says that the
// stored ones cannot be read; the kind's are returned all the same.
func specsOf(s Settled) (all []spec, broken *EffectError) {
	for _, e := range s.Kind.Effects {
		all = append(all, spec{EffectSpec: e})
	}
	if len(s.Row.Effects) == 0 && len(s.Answered) == 0 {
		return all, nil
	}
	taken := map[string]bool{}
	for _, e := range all {
		taken[e.Name] = true
	}
	add := func(from string, read func([]byte, config.Opts) ([]config.EffectSpec, error), raw []byte) {
		specs, err := read(raw, config.Opts{})
		if err != nil && broken == nil {
			broken = renderError(from, err)
		}
		for _, e := range specs {
			for taken[e.Name] {
				e.Name += "-" + from
			}
			taken[e.Name] = true
			all = append(all, spec{EffectSpec: e, foreign: true})
		}
	}
	add("submitted", config.SubmittedEffects, s.Row.Effects)
	if s.Row.State == api.Succeeded {
		add("answered", config.AnsweredEffects, s.Answered)
	}
	return all, broken
}

// made is a rendered effect: whole, broken, or refused by our own rules.
type made struct {
	rendered config.RenderedEffect
	broken   *EffectError
	refused  *EffectError
}

// render renders the effects of the outcome.
func (o *Outbox) render(ctx context.Context, db store.DBTX, r *task.Row, specs []spec) ([]made, error) {
	var of []config.EffectSpec
	foreign := map[string]bool{}
	for _, e := range specs {
		if e.On.Matches(string(r.State)) {
			of = append(of, e.EffectSpec)
			foreign[e.Name] = e.foreign
		}
	}
	if len(of) == 0 {
		return nil, nil
	}
	rendered, errs := config.RenderSpecs(of, string(r.State), templateData(r))
	out := make([]made, len(rendered))
	for i, e := range rendered {
		out[i].rendered = e
		if errs[i] != nil {
			out[i].broken = renderError(e.Name, errs[i])
		}
		if foreign[e.Name] && e.Destination != "" {
			var err error
			if out[i].refused, err = o.refuses(ctx, db, r.Tenant, e.Type, e.Destination); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// refuses says why a tenant's effect does not go to a destination. It is looked at when the effect is made, for what was
// allowed at the submit may have been taken back.
func (o *Outbox) refuses(ctx context.Context, db store.DBTX, tenant, effectType, destination string) (*EffectError, error) {
	to, err := o.Destinations.Known(ctx, db, destination)
	switch {
	case err != nil:
		return nil, err
	case to == nil || !to.Allows(tenant):
		return &EffectError{Code: CodeNotAllowed, Message: "there is no destination of that name that the tenant may use"}, nil
	case !to.Takes(effectType):
		return &EffectError{Code: CodeNotAllowed, Message: strings.TrimSpace(effectType) + " effects cannot go to that destination"}, nil
	}
	return nil, nil
}

// CheckSubmitted says what is wrong with the effects of a submit to kind: a name the kind uses itself, a destination the
// tenant may not use, a follow-up kind that does not exist. The error is an *api.Error, unless the database did not answer.
func (o *Outbox) CheckSubmitted(ctx context.Context, tenant string, kind *config.Kind, raw []byte) error {
	specs, err := config.SubmittedEffects(raw, config.Opts{})
	if err != nil {
		return err
	}
	for i, e := range specs {
		wrong, err := o.checkSubmitted(ctx, tenant, kind, &specs[i])
		if err != nil {
			return err
		}
		if wrong != "" {
			field := "effects[" + itoa(i) + "]"
			return api.Errorf(api.CodeInvalidField, "%s: effect %s: %s", field, e.Name, wrong).WithField(field)
		}
	}
	return nil
}

func (o *Outbox) checkSubmitted(ctx context.Context, tenant string, kind *config.Kind, e *config.EffectSpec) (wrong string, err error) {
	for _, own := range kind.Effects {
		if own.Name == e.Name {
			return "the kind has an effect of that name itself", nil
		}
	}
	if e.Type == typeTask {
		name, fixed := e.Text("kind")
		if !fixed {
			return "its kind cannot be a template", nil
		}
		_, wrong := o.following(name)
		return wrong, nil
	}
	refused, err := o.refuses(ctx, nil, tenant, e.Type, e.Destination)
	if refused != nil {
		return refused.Message, nil
	}
	return "", err
}
