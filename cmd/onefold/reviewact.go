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

// reviewAct are the arguments of an act on the queue: one item by its id, as it
// was seen, or all that a filter finds.
type reviewAct struct {
	ID     string `arg:"" optional:"" help:"The id of a task or an effect; without it the flags say which."`
	Epoch  *int64 `placeholder:"N" help:"With ID: the epoch as you saw it (onefold review show)."`
	Reason string `placeholder:"TEXT" help:"How you know, for the audit; not needed for a dry run."`
	reviewFilter
	DryRun  bool `help:"Name what would be done, and do nothing."`
	Confirm int  `placeholder:"N" help:"How many the dry run named: with more than that nothing is done."`
}

const reviewActHelp = `
With an id it is about that one, as it stood at --epoch. Without an id it is about all that the flags find: run it with
--dry-run first, which names each item and what becomes of it, and then with --confirm N as the dry run says. Nothing is
done if there are more than N by then. Each item is an act of its own, done to the state the command has just read; what
has moved meanwhile is left alone. Run again after an interruption, it goes on with what is left.`

type reviewRedeliverCmd struct{ reviewAct }

func (c *reviewRedeliverCmd) Help() string { return reviewActHelp }

func (c *reviewRedeliverCmd) Run(ctx context.Context, e *env) error {
	return c.do(ctx, e, "redeliver", api.ReviewRedeliver)
}

type reviewDiscardCmd struct{ reviewAct }

func (c *reviewDiscardCmd) Help() string { return reviewActHelp }

func (c *reviewDiscardCmd) Run(ctx context.Context, e *env) error {
	return c.do(ctx, e, "discard", api.ReviewDiscard)
}

type reviewResolveCmd struct {
	Action string `arg:"" enum:"succeeded,failed,retry,finish,delivered" help:"Of tasks: succeeded (one, with --result), failed, retry, or finish (store the kept reply). Of effects: delivered."`
	reviewAct
	Result string `placeholder:"FILE|-|JSON" help:"The result, with succeeded; sent byte for byte."`
}

func (c *reviewResolveCmd) Help() string { return reviewActHelp }

func (c *reviewResolveCmd) Run(ctx context.Context, e *env) error {
	action := api.ReviewAction(c.Action)
	if (c.Result != "") != (action == api.ReviewSucceeded) || action == api.ReviewSucceeded && c.ID == "" {
		return usage("succeeded needs the id of one task and its --result", "For example: onefold review resolve succeeded ID --result FILE --epoch N --reason TEXT")
	}
	if action != api.ReviewSucceeded {
		return c.do(ctx, e, "resolve "+c.Action, action)
	}
	if strings.TrimSpace(c.Reason) == "" || c.DryRun || !c.none() {
		return usage("succeeded needs --reason, and goes without --dry-run and filters", "Look at it with: onefold review show %s", c.ID)
	}
	return (&resolveCmd{ID: c.ID, Action: c.Action, Epoch: c.Epoch, Reason: c.Reason, Result: c.Result}).Run(ctx, e)
}

func (c *reviewAct) do(ctx context.Context, e *env, command string, action api.ReviewAction) error {
	if strings.TrimSpace(c.Reason) == "" && !c.DryRun {
		return usage("--reason is missing", "Say in a few words how you know, for the audit.")
	}
	cl, err := e.client()
	if err != nil {
		return err
	}
	if c.ID != "" {
		return c.one(ctx, e, cl, command, action)
	}
	if c.none() {
		return usage("neither an id nor a flag says which", "Give an id, or flags such as --destination, --kind, --why, --age.")
	}
	if c.Epoch != nil {
		return usage("--epoch goes with an id", "By filter each item's own epoch is read.")
	}
	return c.many(ctx, e, cl, command, action)
}

// one acts on one item; without an epoch it shows what it would be about.
func (c *reviewAct) one(ctx context.Context, e *env, cl *client.Client, command string, action api.ReviewAction) error {
	if !c.none() || c.Confirm != 0 {
		return usage("an id and flags that say which", "Give the one or the others.")
	}
	if c.Epoch == nil || c.DryRun {
		d, err := cl.ReviewItem(ctx, c.ID)
		if err != nil {
			return err
		}
		if c.DryRun {
			if c.Epoch != nil && *c.Epoch != d.Epoch {
				return usage(fmt.Sprintf("it is at epoch %d by now", d.Epoch), "Look again: onefold review show %s", c.ID)
			}
			return e.dryRun([]api.ReviewItem{d.ReviewItem}, nil, action)
		}
		if !e.json {
			if err := e.print(e.reviewDetail(d)); err != nil {
				return err
			}
		}
		return usage(fmt.Sprintf("--epoch is missing; it is %s at epoch %d", d.State, d.Epoch),
			"If that is what you decided about: onefold review %s %s --epoch %d --reason ...", command, c.ID, d.Epoch)
	}
	got, err := cl.ReviewAct(ctx, api.ReviewActs{Action: action, Reason: c.Reason, Items: []api.ReviewSeen{{ID: c.ID, Epoch: *c.Epoch}}})
	if err != nil {
		return err
	}
	if got[0].Error != nil {
		return got[0].Error
	}
	return e.acted(got[0])
}

// many acts on what the flags find. What cannot be done to an item is said
// beforehand, and left out.
func (c *reviewAct) many(ctx context.Context, e *env, cl *client.Client, command string, action api.ReviewAction) error {
	o, err := c.opts(e)
	if err != nil {
		return err
	}
	at := e.now()
	var able, not []api.ReviewItem
	for i, err := range cl.Review(ctx, o) {
		if err != nil {
			return err
		}
		if slices.Contains(i.Actions, action) {
			able = append(able, *i)
		} else {
			not = append(not, *i)
		}
	}
	if c.DryRun || len(able) == 0 {
		if err := e.dryRun(able, not, action); err != nil || len(able) == 0 || e.json {
			return err
		}
		e.say("nothing was done. To do it: onefold review %s%s --confirm %d --reason ...", command, c.again(o, at), len(able))
		return nil
	}
	if c.Confirm == 0 || len(able) > c.Confirm {
		return &problem{
			code: exitUsage, message: fmt.Sprintf("nothing was done: there are %d, and --confirm says %d", len(able), c.Confirm),
			fix: "Look at them with --dry-run, and give --confirm as it says.",
		}
	}
	return e.actOn(ctx, cl, action, c.Reason, able)
}

// again are the flags that find the same again and nothing that comes later.
func (c *reviewAct) again(o client.ReviewOpts, at time.Time) string {
	if o.Until.IsZero() || o.Until.After(at) {
		o.Until = at.UTC()
	}
	var b strings.Builder
	flag := func(name, v string) {
		if v != "" {
			fmt.Fprintf(&b, " --%s %s", name, v)
		}
	}
	flag("what", c.What)
	flag("kind", c.Kind)
	flag("destination", c.Destination)
	flag("why", c.Why)
	flag("age", c.Age)
	flag("tenant", c.Tenant)
	if !o.Since.IsZero() {
		flag("after", o.Since.Format(time.RFC3339))
	}
	flag("before", o.Until.Format(time.RFC3339Nano))
	return b.String()
}

// perRequest is how many items go into one request.
const perRequest = 200

func (e *env) actOn(ctx context.Context, cl *client.Client, action api.ReviewAction, reason string, items []api.ReviewItem) error {
	refused := 0
	for part := range slices.Chunk(items, perRequest) {
		acts := api.ReviewActs{Action: action, Reason: reason}
		for _, i := range part {
			acts.Items = append(acts.Items, api.ReviewSeen{ID: i.ID, Epoch: i.Epoch})
		}
		got, err := cl.ReviewAct(ctx, acts)
		if err != nil {
			return err
		}
		for _, a := range got {
			if a.Error != nil {
				refused++
			}
			if err := e.acted(a); err != nil {
				return err
			}
		}
	}
	if refused > 0 {
		return &problem{code: exitError, message: fmt.Sprintf("%d of %d were not done", refused, len(items)), fix: "Look at them again: they have moved meanwhile."}
	}
	return nil
}

func (e *env) acted(a api.ReviewActed) error {
	switch {
	case e.json:
		return e.jsonLine(a)
	case a.Error != nil:
		return e.print(fmt.Sprintf("%s  not done: %s\n", clean(a.ID), clean(a.Error.Message)))
	}
	return e.print(fmt.Sprintf("%s  %s is %s\n", a.ID, a.What, a.State))
}

// dryRun names what would be done to what, and what it cannot be done to.
func (e *env) dryRun(able, not []api.ReviewItem, action api.ReviewAction) error {
	rows := [][]string{{"ID", "WHAT", "EPOCH", "KIND", "KEY", "WHERE", "IS", "BECOMES"}}
	add := func(i *api.ReviewItem, becomes string) error {
		if e.json {
			return e.jsonLine(map[string]any{"id": i.ID, "what": i.What, "epoch": i.Epoch, "state": i.State, "becomes": becomes})
		}
		rows = append(rows, []string{
			i.ID, string(i.What), strconv.FormatInt(i.Epoch, 10), clean(i.Kind), clean(orDash(i.Key)), clean(where(i)), i.State, becomes,
		})
		return nil
	}
	for i := range able {
		if err := add(&able[i], becomes(&able[i], action)); err != nil {
			return err
		}
	}
	for i := range not {
		if err := add(&not[i], "stays: "+string(action)+" does not fit"); err != nil {
			return err
		}
	}
	switch {
	case e.json:
		return nil
	case len(rows) == 1:
		e.say("nothing in the queue fits")
		return nil
	}
	return e.rows(rows, nil)
}

// becomes is the state an action leads to.
func becomes(i *api.ReviewItem, a api.ReviewAction) string {
	switch a {
	case api.ReviewRedeliver:
		return "waiting, sent again under this id"
	case api.ReviewDelivered:
		return "delivered"
	case api.ReviewRetry:
		return fmt.Sprintf("pending, run %d: a new call", i.Run+1)
	case api.ReviewFinish:
		return "succeeded, with the kept reply"
	case api.ReviewFailed:
		return "failed, for good"
	}
	switch {
	case i.What == api.ReviewEffect:
		return "discarded, never sent"
	case i.State == string(api.Failed):
		return "failed, for good"
	}
	return "cancelled"
}
