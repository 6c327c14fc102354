package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/client"
)

type batchCmd struct {
	Run     batchRunCmd     `cmd:"" help:"Upload a JSONL file, wait, and write the results; run again, it goes on where it stopped."`
	Status  batchStatusCmd  `cmd:"" help:"Show a batch, or list all."`
	Results batchResultsCmd `cmd:"" help:"Write the results there are so far."`
	Cancel  batchCancelCmd  `cmd:"" help:"Cancel a batch."`
	Retry   batchRetryCmd   `cmd:"" help:"Run the failed and expired lines of a batch again."`
}

// toFile are the commands whose -o may name a file.
var toFile = []string{"batch run", "batch results"}

// format reads -o, which names a form of output and, for some commands, a file.
func (e *env) format(command, output string) error {
	e.json = output == "json"
	if output == "json" || output == "text" {
		return nil
	}
	if !slices.ContainsFunc(toFile, func(c string) bool { return strings.HasPrefix(command, c) }) {
		return usage(fmt.Sprintf("-o %s is neither text nor json", output), "Use -o text or -o json.")
	}
	e.file = output
	return nil
}

// findBatch finds a batch by its id or its key.
func findBatch(ctx context.Context, cl *client.Client, name string) (*api.Batch, error) {
	b, err := cl.Batch(ctx, name)
	if err == nil || !errors.Is(err, api.ErrNotFound) {
		return b, err
	}
	if found, ferr := cl.FindBatch(ctx, name); ferr == nil {
		return found, nil
	}
	return nil, err
}

type batchStatusCmd struct {
	Name  string `arg:"" optional:"" help:"The batch's id or key; all when absent."`
	Limit int    `short:"n" default:"20" help:"At most so many; 0 for all."`
}

func (c *batchStatusCmd) Run(ctx context.Context, e *env) error {
	cl, err := e.client()
	if err != nil {
		return err
	}
	if c.Name != "" {
		b, err := findBatch(ctx, cl, c.Name)
		if err != nil {
			return err
		}
		return e.showBatch(b)
	}
	rows := [][]string{{"ID", "STATE", "LINES", "DONE", "FAILED", "COST", "CREATED", "KEY"}}
	for b, err := range cl.Batches(ctx, "") {
		if err != nil {
			return err
		}
		if c.Limit > 0 && len(rows) > c.Limit {
			e.say("there are more; --limit 0 lists all")
			break
		}
		if e.json {
			if err := e.batchLine(b); err != nil {
				return err
			}
			continue
		}
		rows = append(rows, []string{
			clean(b.ID), clean(string(b.State)), strconv.Itoa(b.Lines), strconv.Itoa(b.Counts.Settled()), strconv.Itoa(bad(b.Counts)),
			dash(b.Usage.Cost), e.when(b.CreatedAt), clean(b.Key),
		})
	}
	switch {
	case e.json:
		return nil
	case len(rows) == 1:
		e.say("no batches")
		return nil
	}
	return e.rows(rows, nil)
}

// bad is how many lines have ended without a result that a person may look at.
func bad(c api.BatchCounts) int { return c.Failed + c.Unknown + c.Expired + c.Invalid }

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func (e *env) batchLine(b *api.Batch) error {
	text, err := json.Marshal(b)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	return e.print(string(text) + "\n")
}

func (e *env) showBatch(b *api.Batch) error {
	if e.json {
		return e.batchLine(b)
	}
	var out strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&out, "%-10s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("id", "%s", clean(b.ID))
	line("key", "%s", clean(b.Key))
	line("state", "%s", clean(string(b.State)))
	line("lines", "%d (%s)", b.Lines, counts(b.Counts))
	if b.Run > 1 {
		line("run", "%d", b.Run)
	}
	line("usage", "%d tokens in, %d out, cost %s", b.Usage.InputTokens, b.Usage.OutputTokens, dash(b.Usage.Cost))
	line("created", "%s", e.both(b.CreatedAt))
	if b.Deadline != nil && !b.State.Ended() {
		line("deadline", "%s", e.both(*b.Deadline))
	}
	if b.EndedAt != nil {
		line("ended", "%s", e.both(*b.EndedAt))
	}
	for _, l := range b.Invalid {
		line("line "+strconv.Itoa(l.Line), "%s: %s", l.Code, clean(l.Message))
	}
	return e.print(out.String())
}

// counts names those that are not zero.
func counts(c api.BatchCounts) string {
	var parts []string
	for _, p := range []struct {
		n    int
		name string
	}{
		{c.Waiting, "waiting"},
		{c.Pending, "pending"},
		{c.Running, "running"},
		{c.Succeeded, "succeeded"},
		{c.Failed, "failed"},
		{c.Unknown, "unknown"},
		{c.Cancelled, "cancelled"},
		{c.Expired, "expired"},
		{c.Invalid, "invalid"},
	} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.name))
		}
	}
	if len(parts) == 0 {
		return "none counted yet"
	}
	return strings.Join(parts, ", ")
}

// batchCode is the exit code of a batch that has ended.
func batchCode(b *api.Batch) int {
	var codes []int
	c := b.Counts
	for code, n := range map[int]int{exitFailed: c.Failed + c.Expired + c.Invalid, exitUnknown: c.Unknown, exitCancelled: c.Cancelled} {
		if n > 0 {
			codes = append(codes, code)
		}
	}
	for _, code := range worst {
		if slices.Contains(codes, code) {
			return code
		}
	}
	return exitOK
}

type batchCancelCmd struct {
	Name   string `arg:"" help:"The batch's id or key."`
	Reason string `placeholder:"TEXT" help:"Why, for the audit."`
}

func (c *batchCancelCmd) Run(ctx context.Context, e *env) error {
	cl, err := e.client()
	if err != nil {
		return err
	}
	b, err := findBatch(ctx, cl, c.Name)
	if err != nil {
		return err
	}
	if b, err = cl.CancelBatch(ctx, b.ID, c.Reason); err != nil {
		return err
	}
	if b.State == api.BatchCancelling && !e.json {
		e.say("calls under way are asked to end; see `onefold batch status %s`", b.ID)
	}
	return e.showBatch(b)
}

type batchRetryCmd struct {
	Name   string `arg:"" help:"The batch's id or key."`
	Reason string `placeholder:"TEXT" help:"Why, for the audit."`
}

func (c *batchRetryCmd) Run(ctx context.Context, e *env) error {
	cl, err := e.client()
	if err != nil {
		return err
	}
	b, err := findBatch(ctx, cl, c.Name)
	if err != nil {
		return err
	}
	if b, err = cl.RetryBatch(ctx, b.ID, b.Run, c.Reason); err != nil {
		return err
	}
	return e.showBatch(b)
}

type batchResultsCmd struct {
	Name       string `arg:"" help:"The batch's id or key."`
	AsFinished bool   `help:"In the order in which the lines finished, in place of that of the file."`
	Only       string `enum:",succeeded,errors" default:"" placeholder:"succeeded|errors" help:"Only lines that succeeded, or only the others."`
}

func (c *batchResultsCmd) Help() string {
	return "Without -o FILE the results go to stdout. While the batch runs they are those there are so far: in the order of the file up to the first line that has not ended."
}

func (c *batchResultsCmd) Run(ctx context.Context, e *env) error {
	cl, err := e.client()
	if err != nil {
		return err
	}
	b, err := findBatch(ctx, cl, c.Name)
	if err != nil {
		return err
	}
	to, err := e.sink(b, c.AsFinished, "-"+c.Only)
	if err != nil {
		return err
	}
	to.only, to.fresh = c.Only, true
	if err := to.more(ctx, cl); err != nil {
		to.leave()
		return err
	}
	if !e.json && !b.State.Ended() {
		e.say("the batch is %s: %s", b.State, counts(b.Counts))
	}
	return to.finish()
}
