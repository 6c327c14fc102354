package doctor

import (
	"context"
	"errors"
	"fmt"

	"github.com/onefold-dev/onefold/internal/config"
)

// Configuration says whether onefold.yaml can be read, and all that is wrong in
// it. Secrets are not asked for: they are where the programs run.
func Configuration(_ context.Context, e Env) ([]Finding, error) {
	var all config.Errors
	switch {
	case errors.As(e.ConfigErr, &all):
		out := make([]Finding, 0, len(all))
		for _, p := range all {
			subject := p.File
			if p.Line > 0 {
				subject = fmt.Sprintf("%s:%d", p.File, p.Line)
			}
			text := p.Message
			if p.Path != "" {
				text = p.Path + ": " + p.Message
			}
			out = append(out, Finding{Level: Fail, Subject: subject, Text: text, Fix: p.Fix})
		}
		return out, errNothing
	case e.ConfigErr != nil:
		return []Finding{{Level: Fail, Subject: "onefold.yaml", Text: e.ConfigErr.Error()}}, errNothing
	case e.Config == nil:
		return nil, errNothing
	}
	subject := e.Config.File
	if subject == "" {
		subject = "the built-in one"
	}
	return []Finding{{Level: OK, Subject: subject, Text: fmt.Sprintf("%d kinds, %d providers, %d destinations, %d sources",
		len(e.Config.Kinds), len(e.Config.Providers), len(e.Config.Destinations), len(e.Config.Sources))}}, nil
}
