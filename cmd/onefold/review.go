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

type reviewCmd struct {
	List      reviewListCmd      `cmd:"" help:"List what waits for a person, the longest in the queue first."`
	Show      reviewShowCmd      `cmd:"" help:"Show one item with all that is known of it, and what can be done."`
	Resolve   reviewResolveCmd   `cmd:"" help:"Say what became of something whose outcome is unknown, or what is to become of it."`
	Redeliver reviewRedeliverCmd `cmd:"" help:"Send effects again, under the same id and signed anew."`
	Discard   reviewDiscardCmd   `cmd:"" help:"Effects: never send them. Tasks: cancel them, or leave them failed for good."`
}

// reviewFilter are the flags that narrow the queue.
type reviewFilter struct {
	What        string `placeholder:"WHAT" help:"Only tasks, or only effects: task, effect."`
	Kind        string `placeholder:"KIND" help:"Only this kind, or effects of its tasks."`
	Destination string `placeholder:"NAME" help:"Only effects to this destination."`
	Why         string `placeholder:"REASON" help:"Only for this reason: unknown, dead, exhausted, overdue, stuck."`
	Age         string `placeholder:"AGE" help:"Only what has been in the queue for up to an hour, up to a day, or longer: 1h, 24h, older."`
	After       moment `placeholder:"TIME" help:"Only what came into the queue at or after this time (RFC 3339), or so long ago (90s, 2h)."`
	Before      moment `placeholder:"TIME" help:"Only what came into the queue before this time; written like --after."`
	Tenant      string `placeholder:"TENANT" help:"Only this tenant's, with an instance key."`
}

func (f *reviewFilter) opts(e *env) (client.ReviewOpts, error) {
	o := client.ReviewOpts{
		What: api.ReviewWhat(f.What), Kind: f.Kind, Destination: f.Destination, Reason: api.ReviewReason(f.Why), Age: api.ReviewAge(f.Age), Tenant: f.Tenant,
		Limit: maxPage,
	}
	if o.What != "" && o.What != api.ReviewTask && o.What != api.ReviewEffect {
		return o, usage("--what "+strconv.Quote(f.What)+" is not in the queue", "Use task or effect.")
	}
	if o.Reason != "" && !slices.Contains(api.ReviewReasons, o.Reason) {
		return o, usage("--why "+strconv.Quote(f.Why)+" is no reason", "Use unknown, dead, exhausted, overdue or stuck.")
	}
	if o.Age != "" && !slices.Contains(api.ReviewAges, o.Age) {
		return o, usage("--age "+strconv.Quote(f.Age)+" is no age", "Use 1h, 24h or older.")
	}
	if t := f.After.ago(e.now()); t != nil {
		o.Since = *t
	}
	if t := f.Before.ago(e.now()); t != nil {
		o.Until = *t
	}
	return o, nil
}

// none says that no flag narrows the queue.
func (f *reviewFilter) none() bool { return *f == reviewFilter{} }

type reviewListCmd struct {
	reviewFilter
	Count bool `help:"Only count them, by reason and age."`
	Limit int  `short:"n" default:"50" help:"At most so many; 0 for all."`
}

func (c *reviewListCmd) Run(ctx context.Context, e *env) error {
	o, err := c.opts(e)
	if err != nil {
		return err
	}
	cl, err := e.client()
	if err != nil {
		return err
	}
	if c.Count {
		n, err := cl.CountReview(ctx, o)
		if err != nil {
			return err
		}
		return e.counts(n)
	}
	if c.Limit > 0 {
		o.Limit = min(c.Limit+1, maxPage)
	}
	var items []api.ReviewItem
	more := false
	for i, err := range cl.Review(ctx, o) {
		if err != nil {
			return err
		}
		if more = c.Limit > 0 && len(items) == c.Limit; more {
			break
		}
		items = append(items, *i)
	}
	if err := e.reviewItems(items); err != nil || e.json {
		return err
	}
	switch {
	case more:
		e.say("there are more; --limit 0 lists all, --count counts them")
	case len(items) == 0:
		e.say("nothing waits for a person")
	}
	return nil
}

// reviewItems prints items, one a line.
func (e *env) reviewItems(items []api.ReviewItem) error {
	rows := [][]string{{"ID", "WHAT", "REASON", "SINCE", "KIND", "KEY", "WHERE", "LAST KNOWN"}}
	for i := range items {
		if e.json {
			if err := e.jsonLine(items[i]); err != nil {
				return err
			}
			continue
		}
		it := &items[i]
		rows = append(rows, []string{
			it.ID, string(it.What), string(it.Reason), e.when(it.Since), clean(it.Kind), clean(orDash(it.Key)), clean(where(it)), clean(lastKnown(it)),
		})
	}
	if e.json || len(items) == 0 {
		return nil
	}
	return e.rows(rows, map[int]func(string) string{2: e.paintReason})
}

// paintReason colours a padded cell that holds a reason.
func (e *env) paintReason(cell string) string {
	if !e.color {
		return cell
	}
	color := red
	if strings.HasPrefix(cell, string(api.ReviewUnknown)) || strings.HasPrefix(cell, string(api.ReviewOverdue)) {
		color = yellow
	}
	return color + cell + off
}

// where names what an effect is and where it goes.
func where(i *api.ReviewItem) string {
	switch {
	case i.What == api.ReviewTask:
		return "-"
	case i.Destination == "":
		return i.Name
	}
	return i.Name + " > " + i.Destination
}

// lastKnown is the evidence in a few words.
func lastKnown(i *api.ReviewItem) string {
	var words []string
	add := func(format string, args ...any) { words = append(words, fmt.Sprintf(format, args...)) }
	if i.Error != nil {
		add("%s", i.Error.Code)
	}
	if d := i.LastDelivery; d != nil {
		if d.Status != 0 {
			add("HTTP %d", d.Status)
		}
		if d.LateOutcome != "" {
			add("reported late: %s", d.LateOutcome)
		}
	}
	if a := i.LastAttempt; a != nil {
		if a.Status != 0 {
			add("HTTP %d", a.Status)
		}
		if a.Phase != "" {
			add("came to %s", a.Phase)
		}
		if a.PartialBytes > 0 {
			add("%d bytes of text", a.PartialBytes)
		}
		if a.LateAt != nil {
			add("a late reply is kept")
		}
	}
	if i.Behind > 0 {
		add("%d wait behind it", i.Behind)
	}
	if i.Compensations > 0 {
		add("woken %d times", i.Compensations)
	}
	if len(words) == 0 {
		return "-"
	}
	return strings.Join(words, ", ")
}

// counts prints a table of reasons by age.
func (e *env) counts(n *api.ReviewCount) error {
	if e.json {
		return e.jsonLine(n)
	}
	type sort struct {
		what   api.ReviewWhat
		reason api.ReviewReason
	}
	table := map[sort]map[api.ReviewAge]int64{}
	var order []sort
	for _, c := range n.Ages {
		s := sort{c.What, c.Reason}
		if table[s] == nil {
			table[s], order = map[api.ReviewAge]int64{}, append(order, s)
		}
		table[s][c.Age] += c.Count
	}
	rows := [][]string{{"WHAT", "REASON", "UNDER 1 H", "1 TO 24 H", "OLDER"}}
	for _, s := range order {
		row := []string{string(s.what), string(s.reason)}
		for _, a := range api.ReviewAges {
			row = append(row, strconv.FormatInt(table[s][a], 10))
		}
		rows = append(rows, row)
	}
	if n.Total > 0 {
		if err := e.rows(rows, map[int]func(string) string{1: e.paintReason}); err != nil {
			return err
		}
	}
	more := ""
	if n.AtLeast {
		more = " at least"
	}
	return e.print(fmt.Sprintf("%d in all%s\n", n.Total, more))
}

type reviewShowCmd struct {
	ID string `arg:"" help:"The id of a task or an effect in the queue."`
}

func (c *reviewShowCmd) Run(ctx context.Context, e *env) error {
	cl, err := e.client()
	if err != nil {
		return err
	}
	d, err := cl.ReviewItem(ctx, c.ID)
	if err != nil {
		return err
	}
	if e.json {
		return e.jsonLine(d)
	}
	return e.print(e.reviewDetail(d))
}

func (e *env) reviewDetail(d *api.ReviewDetail) string {
	var b strings.Builder
	row := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-10s%s\n", name, clean(fmt.Sprintf(format, args...)))
	}
	row(string(d.What), "%s", d.ID)
	if d.What == api.ReviewEffect {
		row("effect", "%s (%s)", where(&d.ReviewItem), d.Type)
		row("of task", "%s", d.TaskID)
	}
	row("kind", "%s", d.Kind)
	if d.Key != "" {
		row("key", "%s", d.Key)
	}
	row("tenant", "%s", d.Tenant)
	row("state", "%s, epoch %d, run %d", d.State, d.Epoch, d.Run)
	row("in review", "%s, since %s", d.Reason, e.both(d.Since))
	if d.Error != nil {
		row("error", "%s: %s", d.Error.Code, d.Error.Message)
		if d.Error.Fix != "" {
			row("fix", "%s", d.Error.Fix)
		}
	}
	if d.Unclear {
		row("unclear", "an earlier delivery may have arrived")
	}
	if d.Behind > 0 {
		row("behind it", "%d effects of its order", d.Behind)
	}
	for i := range d.TriedAttempts {
		b.WriteString("\n" + strings.TrimSuffix(e.attempt(&d.TriedAttempts[i]), "\n"))
	}
	for i := range d.Deliveries {
		b.WriteString("\n" + e.delivery(&d.Deliveries[i]))
	}
	if len(d.Acts) > 0 {
		b.WriteString("\n")
	}
	for _, a := range d.Acts {
		row("act", "%s by %s %s%s", a.Action, a.Actor, e.both(a.At), because(a.Reason))
	}
	b.WriteString("\nwhat can be done:\n")
	for _, a := range d.Actions {
		fmt.Fprintf(&b, "  %s\n", reviewCommand(&d.ReviewItem, a))
	}
	return b.String()
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

// reviewCommand is the command line that does the action to the item as it was
// seen.
func reviewCommand(i *api.ReviewItem, a api.ReviewAction) string {
	tail := fmt.Sprintf(" --epoch %d --reason TEXT", i.Epoch)
	switch a {
	case api.ReviewRedeliver, api.ReviewDiscard:
		return fmt.Sprintf("onefold review %s %s", a, i.ID) + tail
	case api.ReviewSucceeded:
		tail = " --result FILE" + tail
	}
	return fmt.Sprintf("onefold review resolve %s %s", a, i.ID) + tail
}

// delivery shows one try at an effect to a person.
func (e *env) delivery(d *api.Delivery) string {
	var b strings.Builder
	row := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-10s%s\n", name, clean(fmt.Sprintf(format, args...)))
	}
	row("delivery", "%d (epoch %d), %s", d.Number, d.Epoch, e.both(d.StartedAt))
	outcome := d.Outcome
	if outcome == "" {
		outcome = "under way"
	}
	for _, more := range []string{d.Code, d.Message} {
		if more != "" {
			outcome += ", " + more
		}
	}
	row("outcome", "%s", outcome)
	if d.Status != 0 {
		row("status", "%d after %s", d.Status, time.Duration(d.TotalMS)*time.Millisecond)
	}
	if d.Answer != "" {
		row("asked", "the destination said %s (%d) of an earlier delivery", d.Answer, d.AnswerStatus)
	}
	if d.Reply != "" {
		row("reply", "%d bytes: %s", d.ReplyBytes, firstLine(d.Reply))
	}
	if d.LateAt != nil {
		row("late", "%s: its worker reported %s (%d) when the effect was no longer its own", e.both(*d.LateAt), d.LateOutcome, d.LateStatus)
	}
	return b.String()
}
