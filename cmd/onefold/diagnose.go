package main

import (
	"context"
	"fmt"
	"strings"
)

type diagnoseCmd struct{ named }

func (c *diagnoseCmd) Run(ctx context.Context, e *env) error {
	cl, err := e.client()
	if err != nil {
		return err
	}
	id, err := c.find(ctx, cl)
	if err != nil {
		return err
	}
	d, err := cl.Diagnose(ctx, id)
	if err != nil {
		return err
	}
	if e.json {
		return e.jsonLine(d)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s  task %s\n", clean(orDash(d.Key)), clean(d.Kind), d.TaskID)
	if d.CannotTell != "" {
		fmt.Fprintf(&b, "\ncannot tell: %s\n", clean(d.CannotTell))
	}
	for _, f := range d.Findings {
		fmt.Fprintf(&b, "\n%s  %s\n", e.paint(yellow, f.Row), clean(f.Title))
		for _, line := range f.Evidence {
			fmt.Fprintf(&b, "    · %s\n", clean(line))
		}
		fmt.Fprintf(&b, "    %s %s\n", e.paint(green, "do:"), clean(f.Do))
	}
	return e.print(b.String())
}
