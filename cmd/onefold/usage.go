package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/client"
)

type usageCmd struct {
	By   []string `default:"kind,model" placeholder:"WHAT" help:"What to tell apart: day, tenant, kind, provider, model; 'all' for one row (${default})."`
	From string   `placeholder:"DAY" help:"The first day, UTC, as 2026-03-01 (a week ago)."`
	To   string   `placeholder:"DAY" help:"The last day, UTC (today)."`
	Kind string   `placeholder:"KIND" help:"Only this kind."`
}

func (c *usageCmd) Run(ctx context.Context, e *env) error {
	o := &client.UsageOpts{Kind: c.Kind, By: c.By}
	if slices.Equal(c.By, []string{"all"}) {
		o.By = nil
	}
	for _, what := range o.By {
		if !slices.Contains([]string{"day", "tenant", "kind", "provider", "model"}, what) {
			return usage("--by "+strconv.Quote(what)+" cannot be told apart", "Use day, tenant, kind, provider or model, or all alone.")
		}
	}
	for _, day := range []struct {
		flag, text string
		to         *time.Time
	}{{"--from", c.From, &o.From}, {"--to", c.To, &o.To}} {
		if day.text == "" {
			continue
		}
		t, err := time.Parse(time.DateOnly, day.text)
		if err != nil {
			return usage(day.flag+" "+strconv.Quote(day.text)+" is not a day", "Write it as 2026-03-01.")
		}
		*day.to = t
	}
	cl, err := e.client()
	if err != nil {
		return err
	}
	rows, err := cl.Usage(ctx, o)
	if err != nil {
		return err
	}
	if e.json {
		for _, r := range rows {
			if err := e.jsonLine(r); err != nil {
				return err
			}
		}
		return nil
	}
	if len(rows) == 0 {
		e.say("no calls")
		return nil
	}
	return e.usage(rows, o.By)
}

// usage shows a report to a person: calls saved stand beside calls made.
func (e *env) usage(rows []api.UsageRow, by []string) error {
	var head []string
	for _, what := range by {
		head = append(head, strings.ToUpper(what))
	}
	head = append(head, "CALLS", "SAVED", "SUCCEEDED", "AGAIN", "ORPHANED", "BILLED?", "TOKENS IN", "OUT", "COST", "SAVED COST")
	table := [][]string{head}
	for _, r := range rows {
		named := map[string]string{"day": r.Day, "tenant": r.Tenant, "kind": r.Kind, "provider": r.Provider, "model": r.Model}
		var line []string
		for _, what := range by {
			line = append(line, clean(orDash(named[what])))
		}
		in := fmt.Sprint(r.InputTokens)
		if r.CachedTokens > 0 {
			in += fmt.Sprintf(" (%d cached)", r.CachedTokens)
		}
		table = append(table, append(line, fmt.Sprint(r.Calls), fmt.Sprint(r.Saved.Calls), fmt.Sprint(r.Succeeded), fmt.Sprint(r.Regenerations),
			fmt.Sprint(r.Orphaned), fmt.Sprint(r.BilledUnknown), in, fmt.Sprint(r.OutputTokens), orDash(r.Cost), orDash(r.Saved.Cost)))
	}
	return e.rows(table, nil)
}
