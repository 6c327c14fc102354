package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/client"
)

type attemptsCmd struct {
	which
	Epoch int64  `placeholder:"N" help:"With --part: the attempt's epoch."`
	Part  string `placeholder:"PART" help:"Print what is kept of one attempt, byte for byte: partial, reply, late_result or kept_result."`
}

func (c *attemptsCmd) Run(ctx context.Context, e *env) error {
	if (c.Part != "") != (c.Epoch != 0) {
		return usage("--part and --epoch go together", "For example: onefold attempts %s --epoch 1 --part partial", c.ID)
	}
	if c.Part != "" {
		return e.part(ctx, &c.which, func(cl *client.Client, id string) ([]byte, error) {
			return cl.AttemptPart(ctx, id, c.Epoch, api.AttemptPart(c.Part))
		})
	}
	cl, err := e.client()
	if err != nil {
		return err
	}
	id, err := c.task(ctx, cl)
	if err != nil {
		return err
	}
	all, err := cl.Attempts(ctx, id)
	if err != nil {
		return err
	}
	for _, a := range all {
		if e.json {
			err = e.jsonLine(a)
		} else {
			err = e.print(e.attempt(&a))
		}
		if err != nil {
			return err
		}
	}
	if len(all) == 0 && !e.json {
		e.say("no attempts yet")
	}
	return nil
}

// attempt shows one entry of the ledger to a person.
func (e *env) attempt(a *api.Attempt) string {
	var b strings.Builder
	row := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-10s%s\n", name, clean(fmt.Sprintf(format, args...)))
	}
	row("attempt", "%d (run %d, epoch %d)%s", a.Number, a.Run, a.Epoch, attemptNotes(a))
	outcome := a.Outcome
	if outcome == "" {
		outcome = "under way"
	}
	if a.Code != "" {
		outcome += ", " + a.Code
	}
	if a.Message != "" {
		outcome += ": " + a.Message
	}
	row("outcome", "%s", outcome)
	row("provider", "%s", strings.TrimSpace(a.Provider+" "+a.Model))
	if a.SentAt != nil {
		row("sent", "%s", e.both(*a.SentAt))
	}
	row("came to", "%s; %d bytes; first byte %d ms, total %d ms", orDash(a.Phase), a.Bytes, a.FirstByteMS, a.TotalMS)
	if a.Usage != nil {
		row("usage", "%s", usageOf(a.Usage))
	} else {
		row("usage", "not known, billed %s", a.Billed)
	}
	if a.RequestID != "" {
		row("request", "%s", a.RequestID)
	}
	if a.ProviderJob != "" {
		row("job", "%s", a.ProviderJob)
	}
	if a.PartialBytes > 0 {
		row("partial", "%d bytes: %s", a.PartialBytes, firstLine(a.Partial))
	}
	if a.LateAt != nil {
		row("late", "a reply came %s, too late to be the result", e.both(*a.LateAt))
	}
	return b.String() + "\n"
}

func attemptNotes(a *api.Attempt) string {
	var notes []string
	if a.Regeneration {
		notes = append(notes, "an earlier call may have been carried out")
	}
	if !a.Counted && a.Outcome != "" {
		notes = append(notes, "not counted")
	}
	if a.Orphaned {
		notes = append(notes, "given up while the provider may have been at work")
	}
	if len(notes) == 0 {
		return ""
	}
	return ": " + strings.Join(notes, "; ")
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// firstLine is the beginning of a text, short enough for a line.
func firstLine(s string) string {
	line, _, more := strings.Cut(s, "\n")
	if len(line) > 80 {
		line, more = strings.ToValidUTF8(line[:80], ""), true
	}
	if more {
		line += " ..."
	}
	return line
}

// jsonLine prints something that is no task as one line of JSON.
func (e *env) jsonLine(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode the output: %w", err)
	}
	return e.print(string(b) + "\n")
}
