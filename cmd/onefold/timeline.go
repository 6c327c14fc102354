package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/client"
)

// named names a task by its id, or by its key and kind.
type named struct {
	Task string `arg:"" name:"key-or-id" help:"The task's id, or its key."`
	Kind string `placeholder:"KIND" default:"llm.chat" help:"With a key: its kind."`
}

// find is the id of the task; of several under one key the newest.
func (c *named) find(ctx context.Context, cl *client.Client) (string, error) {
	if _, err := uuid.Parse(c.Task); err == nil {
		return c.Task, nil
	}
	for t, err := range cl.List(ctx, client.ListOpts{Kind: c.Kind, Key: c.Task, Limit: 1}) {
		if err != nil {
			return "", err
		}
		return t.ID, nil
	}
	return "", api.Errorf(api.CodeNotFound, "there is no task of kind %s under this key", c.Kind).
		WithFix("Name its kind with --kind, or give its id. A purged task is told of by its id only.")
}

type timelineCmd struct{ named }

func (c *timelineCmd) Run(ctx context.Context, e *env) error {
	cl, err := e.client()
	if err != nil {
		return err
	}
	id, err := c.find(ctx, cl)
	if err != nil {
		return err
	}
	t, err := cl.Timeline(ctx, id)
	if err != nil {
		return err
	}
	if e.json {
		return e.jsonLine(t)
	}
	return e.print(e.story(t))
}

// story shows a timeline to a person.
func (e *env) story(t *api.Timeline) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s  %s\n", clean(orDash(t.Key)), clean(t.Kind), e.state(t.State, 0))
	e.faint(&b, "task %s  provider %s  run %d  %s, %s refused", t.TaskID, t.Provider, t.Run, count(t.Duplicates, "duplicate"), fmt.Sprint(t.Refused))
	if t.TraceID != "" {
		e.faint(&b, "trace %s", t.TraceID)
	}
	e.faint(&b, "input %s", t.InputHash)
	b.WriteByte('\n')
	longest := int64(1)
	told := map[api.EventWhat]int64{}
	for _, ev := range t.Events {
		told[ev.What]++
		if ev.Attempt != nil {
			longest = max(longest, ev.QueueMS+ev.Attempt.TotalMS)
		}
	}
	for i := range t.Events {
		e.event(&b, t, i, longest)
	}
	if more := t.Duplicates - told[api.EventFolded] - told[api.EventReopened]; more > 0 {
		e.faint(&b, "and %s more, counted only", count(more, "duplicate"))
	}
	if more := t.Refused - told[api.EventRefused]; more > 0 {
		e.faint(&b, "and %s more with another payload, counted only", count(more, "submit"))
	}
	return b.String()
}

func (e *env) faint(b *strings.Builder, format string, args ...any) {
	b.WriteString(e.paint(grey, clean(fmt.Sprintf(format, args...))) + "\n")
}

func (e *env) paint(color, s string) string {
	if !e.color || color == "" {
		return s
	}
	return color + s + off
}

// looks are the sign and colour of each sort of event.
var looks = map[api.EventWhat][2]string{
	api.EventSubmitted: {"●", cyan}, api.EventFolded: {"↩", grey}, api.EventReopened: {"↻", cyan}, api.EventRefused: {"✗", yellow},
	api.EventAttempt: {"▶", cyan}, api.EventGate: {"▮", yellow}, api.EventEffect: {"◇", cyan}, api.EventDelivery: {"→", cyan},
	api.EventAct: {"☛", yellow}, api.EventSettled: {"■", green},
}

func (e *env) event(b *strings.Builder, t *api.Timeline, i int, longest int64) {
	ev := t.Events[i]
	look := looks[ev.What]
	name, text, bad := e.told(t, i)
	color := look[1]
	if bad {
		color = red
	}
	fmt.Fprintf(b, "%s  %s  %s %s  %s\n", ev.At.UTC().Format("15:04:05.000"), e.paint(grey, fmt.Sprintf("%9s", "+"+brief(ev.At.Sub(t.CreatedAt)))),
		e.paint(color, look[0]), e.paint(color, fmt.Sprintf("%-12s", clean(name))), clean(text))
	if a := ev.Attempt; a != nil && (a.TotalMS > 0 || ev.QueueMS > 0) {
		fmt.Fprintf(b, "%28s %s  %s\n", "", e.bar(ev, longest), e.paint(grey, phases(ev)))
	}
}

// told is an event in words, and whether it is bad news.
func (e *env) told(t *api.Timeline, i int) (name, text string, bad bool) {
	ev := t.Events[i]
	switch ev.What {
	case api.EventAttempt:
		return e.toldAttempt(t, i)
	case api.EventEffect:
		f := ev.Effect
		text = strings.TrimSpace(fmt.Sprintf("%s %s to %s: %s", f.Type, f.Name, orDash(f.Destination), f.State))
		if f.Error != nil {
			text += ", " + string(f.Error.Code) + ": " + f.Error.Message
		}
		return "effect", text, f.State == api.EffectDead || f.State == api.EffectUnknown
	case api.EventDelivery:
		d := ev.Delivery
		text = fmt.Sprintf("of %s: %s", ev.Target, orWord(d.Outcome, "under way"))
		if d.Status != 0 {
			text += fmt.Sprintf(", status %d", d.Status)
		}
		if d.Code != "" {
			text += ", " + d.Code + ": " + d.Message
		}
		return fmt.Sprintf("delivery %d", d.Number), text + fmt.Sprintf(" (%s)", brief(time.Duration(d.TotalMS)*time.Millisecond)), d.Outcome != "delivered" && d.Outcome != ""
	case api.EventGate:
		return "gate", fmt.Sprintf("%s: %s, %s", ev.Target, ev.Action, orDash(ev.Reason)), true
	case api.EventAct:
		return "act", fmt.Sprintf("%s by %s: %s", ev.Action, ev.Actor, orDash(ev.Reason)), false
	case api.EventSettled:
		text = string(ev.State)
		if t.Error != nil {
			text += ", " + string(t.Error.Code) + ": " + t.Error.Message
		}
		return "result", text, ev.State != api.Succeeded
	}
	return string(ev.What), fmt.Sprintf("request %s  client %s  %s  %s", orDash(ev.RequestID), orDash(ev.Client), orDash(ev.UserAgent), ev.Actor), ev.What == api.EventRefused
}

func (e *env) toldAttempt(t *api.Timeline, i int) (name, text string, bad bool) {
	a := t.Events[i].Attempt
	text = orWord(a.Outcome, "under way")
	if a.Code != "" && a.Code != a.Outcome {
		text += ", " + a.Code
	}
	if a.Status != 0 && a.Outcome != "succeeded" {
		text += fmt.Sprintf(", status %d", a.Status)
	}
	if a.Message != "" {
		text += ": " + a.Message
	}
	text += "; " + strings.TrimSpace(a.Provider+" "+a.Model) + ", billed " + string(a.Billed)
	if u := a.Usage; u != nil {
		text += fmt.Sprintf(", %d+%d tokens", u.InputTokens, u.OutputTokens)
	}
	if a.RequestID != "" {
		text += ", its request " + a.RequestID
	}
	for _, later := range t.Events[i+1:] {
		if later.What == api.EventAttempt && a.Outcome != "succeeded" {
			text += "; tried again after " + brief(later.At.Sub(t.Events[i].At))
			break
		}
	}
	return fmt.Sprintf("attempt %d", a.Number), text, a.Outcome != "succeeded" && a.Outcome != ""
}

// barWidth is how wide the longest attempt's bar is.
const barWidth = 40

// bar shows where an attempt's time went: waiting, connecting, to the first byte, to the end.
func (e *env) bar(ev api.Event, longest int64) string {
	a := ev.Attempt
	first := max(a.FirstByteMS-a.ConnectMS, 0)
	if a.FirstByteMS == 0 {
		first = max(a.TotalMS-a.ConnectMS, 0)
	}
	rest := max(a.TotalMS-a.ConnectMS-first, 0)
	var b strings.Builder
	n := 0
	for _, p := range []struct {
		ms    int64
		sign  string
		color string
	}{{ev.QueueMS, "░", grey}, {a.ConnectMS, "▒", cyan}, {first, "▓", cyan}, {rest, "█", green}} {
		w := int(p.ms * barWidth / longest)
		if p.ms > 0 && w == 0 {
			w = 1
		}
		n += w
		b.WriteString(e.paint(p.color, strings.Repeat(p.sign, w)))
	}
	return b.String() + strings.Repeat(" ", max(barWidth-n, 0))
}

func phases(ev api.Event) string {
	a := ev.Attempt
	ms := func(n int64) string { return brief(time.Duration(n) * time.Millisecond) }
	text := "queue " + ms(ev.QueueMS) + " ░"
	if a.TotalMS > 0 {
		text += " connect " + ms(a.ConnectMS) + " ▒"
		if a.FirstByteMS > 0 {
			text += " first byte " + ms(a.FirstByteMS) + " ▓"
		}
		text += " total " + ms(a.TotalMS) + " █"
	}
	return text
}

// brief is a duration in one unit.
func brief(d time.Duration) string {
	switch {
	case d < 0:
		return "0ms"
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
}

func orWord(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
