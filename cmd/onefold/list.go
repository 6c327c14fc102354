package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/client"
)

// maxPage is the most that the server gives at once.
const maxPage = 200

type listCmd struct {
	State     []string `short:"s" placeholder:"STATE" help:"Only these states: pending, running, unknown, failed, succeeded, cancelled."`
	Kind      string   `placeholder:"KIND" help:"Only this kind."`
	Key       string   `placeholder:"KEY" help:"Only this key; needs --kind."`
	Metadata  []string `sep:"none" placeholder:"NAME=VALUE" help:"Only with this metadata; may be repeated."`
	Trace     string   `placeholder:"ID" help:"Only tasks submitted under this trace id: with several keys for one intent, the keys of a caller that makes one for each try."`
	InputHash string   `placeholder:"HASH" help:"Only tasks with this input_hash."`
	After     moment   `placeholder:"TIME" help:"Created at or after this time (RFC 3339), or so long ago (90s, 2h)."`
	Before    moment   `placeholder:"TIME" help:"Created before this time; written like --after."`
	Limit     int      `short:"n" default:"50" help:"At most so many; 0 for all."`
}

func (c *listCmd) Run(ctx context.Context, e *env) error {
	o, err := c.opts(e)
	if err != nil {
		return err
	}
	cl, err := e.client()
	if err != nil {
		return err
	}
	rows := [][]string{{"ID", "STATE", "KIND", "KEY", "RUN", "CREATED"}}
	n, more := 0, false
	for t, err := range cl.List(ctx, o) {
		if err != nil {
			return err
		}
		if c.Limit > 0 && n == c.Limit {
			more = true
			break
		}
		n++
		if e.json {
			if err := e.line(t); err != nil {
				return err
			}
			continue
		}
		rows = append(rows, []string{clean(t.ID), clean(string(t.State)), clean(t.Kind), clean(t.Key), strconv.Itoa(t.Run), e.when(t.CreatedAt)})
	}
	if !e.json && n > 0 {
		if err := e.rows(rows, map[int]func(string) string{1: e.paintState}); err != nil {
			return err
		}
	}
	switch {
	case more && !e.json:
		e.say("there are more; --limit 0 lists all")
	case n == 0 && !e.json:
		e.say("no tasks")
	}
	return nil
}

func (c *listCmd) opts(e *env) (client.ListOpts, error) {
	o := client.ListOpts{Kind: c.Kind, Key: c.Key, TraceID: c.Trace, InputHash: c.InputHash}
	for _, s := range c.State {
		if !api.State(s).Valid() {
			return o, usage("--state "+strconv.Quote(s)+" is no state", "Use pending, running, unknown, failed, succeeded or cancelled.")
		}
		o.States = append(o.States, api.State(s))
	}
	if c.Key != "" && c.Kind == "" {
		return o, usage("--key needs --kind", "A key names a task only together with its kind.")
	}
	for _, p := range c.Metadata {
		name, value, ok := strings.Cut(p, "=")
		if !ok || name == "" {
			return o, usage(fmt.Sprintf("--metadata %q is not NAME=VALUE", p), "For example --metadata customer=42.")
		}
		if o.Metadata == nil {
			o.Metadata = map[string]string{}
		}
		o.Metadata[name] = value
	}
	if t := c.After.ago(e.now()); t != nil {
		o.After = *t
	}
	if t := c.Before.ago(e.now()); t != nil {
		o.Before = *t
	}
	o.Limit = maxPage
	if c.Limit > 0 {
		o.Limit = min(c.Limit+1, maxPage) // one more tells whether there are more
	}
	return o, nil
}

// paintState colours a padded cell that holds a state.
func (e *env) paintState(cell string) string {
	for _, s := range api.States {
		if len(cell) >= len(s) && cell[:len(s)] == string(s) {
			return e.state(s, len(cell))
		}
	}
	return cell
}
