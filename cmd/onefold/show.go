package main

import (
	"fmt"
	"strings"

	"github.com/onefold-dev/onefold/api"
)

// maxShown is how much of a result is shown to a person; `onefold result` and
// -o json print all of it.
const maxShown = 4 << 10

// show prints a task for a person. how says where it came from ("new" ...), or
// is empty.
func (e *env) show(t *api.Task, how string) error {
	if e.json {
		return e.document(t)
	}
	var b strings.Builder
	row := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-10s%s\n", name, clean(fmt.Sprintf(format, args...)))
	}
	if how != "" {
		how = "  (" + how + ")"
	}
	row("task", "%s%s", t.ID, how)
	row("kind", "%s", t.Kind)
	if t.Key != "" {
		row("key", "%s", t.Key)
	}
	fmt.Fprintf(&b, "%-10s%s%s\n", "state", e.state(t.State, 0), stateNote(t))
	if t.Error != nil {
		row("error", "%s: %s", t.Error.Code, t.Error.Message)
		fix := t.Error.Fix
		if fix == "" {
			fix = api.Codes[api.Code(t.Error.Code)].Fix
		}
		if fix != "" {
			row("fix", "%s", fix)
		}
	}
	row("run", "%d, epoch %d, %s, %s", t.Run, t.Epoch, count(int64(t.Attempts), "attempt"), count(t.Duplicates, "duplicate"))
	if t.DuplicateOf != "" {
		row("repeats", "%s, a person says", t.DuplicateOf)
	}
	e.showTimes(row, t)
	if u := t.Usage; u != nil {
		row("usage", "%s", usageOf(u))
	}
	if len(t.Metadata) > 0 {
		row("metadata", "%s", t.Metadata)
	}
	e.showResult(row, t)
	return e.print(b.String())
}

func stateNote(t *api.Task) string {
	switch {
	case t.CancelAsked && !t.State.Settled():
		return ", to be cancelled"
	case t.State == api.Failed && t.Error != nil && t.Error.Permanent:
		return ", for good"
	case t.State == api.Unknown:
		return ", a person or a check decides"
	}
	return ""
}

func (e *env) showTimes(row func(string, string, ...any), t *api.Task) {
	row("created", "%s", e.both(t.CreatedAt))
	if t.State == api.Pending && t.RunAt.After(t.CreatedAt) {
		row("runs", "%s", e.both(t.RunAt))
	}
	if q := t.Queue; q != nil {
		eta := ""
		if q.ETASeconds > 0 {
			eta = fmt.Sprintf(", %.0f s to go", q.ETASeconds)
		}
		row("queue", "about place %d%s", q.Position, eta)
	}
	if t.StartedAt != nil {
		row("started", "%s", e.both(*t.StartedAt))
	}
	switch {
	case t.FinishedAt != nil:
		row("finished", "%s", e.both(*t.FinishedAt))
	case t.Deadline != nil:
		row("deadline", "%s", e.both(*t.Deadline))
	}
	if t.ExpiresAt != nil {
		row("kept", "until %s", e.both(*t.ExpiresAt))
	}
}

func (e *env) showResult(row func(string, string, ...any), t *api.Task) {
	if t.ResultExpired {
		row("result", "expired; its SHA-256 was %s", t.ResultHash)
	}
	if len(t.Result) == 0 {
		return
	}
	notes := ""
	if t.Truncated {
		notes = " (cut off by its length limit)"
	}
	if len(t.Result) > maxShown {
		row("result", "%s ... (%d bytes; `onefold result %s` prints all)%s", strings.ToValidUTF8(string(t.Result[:maxShown]), ""), len(t.Result), t.ID, notes)
		return
	}
	row("result", "%s%s", t.Result, notes)
}

func usageOf(u *api.Usage) string {
	s := fmt.Sprintf("%d tokens in (%d cached), %d out (%d reasoning)", u.InputTokens, u.CachedTokens, u.OutputTokens, u.ReasoningTokens)
	if u.Cost != "" {
		s += ", cost " + u.Cost
	}
	return s + ", billed " + string(u.Billed)
}

func count(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// brief prints a task in one line, for a command about several.
func (e *env) brief(t *api.Task) error {
	if e.json {
		return e.line(t)
	}
	s := fmt.Sprintf("%s  %s", clean(t.ID), e.state(t.State, 9))
	if t.Error != nil {
		s += "  " + clean(t.Error.Code+": "+t.Error.Message)
	}
	return e.print(strings.TrimRight(s, " ") + "\n")
}
