package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/api"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// onTerminal is an env as a person sees it, in colour, at noon.
func onTerminal() (*env, *bytes.Buffer) {
	var out bytes.Buffer
	return &env{stdout: &out, stderr: &out, getenv: none, now: func() time.Time { return noon }, tty: true, color: true, errColor: true}, &out
}

func TestShowOnATerminal(t *testing.T) {
	t.Parallel()
	e, out := onTerminal()
	started, finished, expires := noon.Add(-3*time.Minute), noon.Add(-2*time.Second), noon.Add(30*24*time.Hour)
	task := &api.Task{
		ID: "0199", Kind: "invoice.extract", Key: "order:7", State: api.Failed, Run: 2, Epoch: 5, Attempts: 1, Duplicates: 12,
		CreatedAt: noon.Add(-5 * time.Hour), StartedAt: &started, FinishedAt: &finished, ExpiresAt: &expires,
		Error: &api.TaskError{Code: "deadline", Message: "too late\u009b2J"}, Metadata: json.RawMessage(`{"a":1}`),
		Usage: &api.Usage{InputTokens: 1, CachedTokens: 2, OutputTokens: 3, ReasoningTokens: 4, Cost: "0.01", Billed: api.BilledUnknown},
	}
	if err := e.show(task, "new"); err != nil {
		t.Fatal(err)
	}
	want := `task      0199  (new)
kind      invoice.extract
key       order:7
state     ` + red + `failed` + off + `
error     deadline: too late\u009b2J
fix       Submit the same key again to reopen, with a later deadline.
run       2, epoch 5, 1 attempt, 12 duplicates
created   5 h ago (2026-03-01T07:00:00Z)
started   3 min ago (2026-03-01T11:57:00Z)
finished  2 s ago (2026-03-01T11:59:58Z)
kept      until in 30 days (2026-03-31T12:00:00Z)
usage     1 tokens in (2 cached), 3 out (4 reasoning), cost 0.01, billed unknown
metadata  {"a":1}
`
	if diff := cmp.Diff(out.String(), want); diff != "" {
		t.Errorf("-got +want:\n%s", diff)
	}
}

func TestShowAPendingTask(t *testing.T) {
	t.Parallel()
	e, out := onTerminal()
	deadline := noon.Add(24 * time.Hour)
	task := &api.Task{
		ID: "0199", Kind: "k", State: api.Pending, Run: 1, CreatedAt: noon, RunAt: noon.Add(90 * time.Minute), Deadline: &deadline,
		Queue: &api.Queue{Position: 4, ETASeconds: 12.6},
	}
	if err := e.show(task, ""); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"runs      in 1 h (2026-03-01T13:30:00Z)\n", "queue     about place 4, 13 s to go\n", "deadline  in 24 h", "created   now (", "run       1, epoch 0, 0 attempts, 0 duplicates\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in:\n%s", want, out)
		}
	}
}

func TestLongResultsAreCutForPeopleOnly(t *testing.T) {
	t.Parallel()
	e, out := onTerminal()
	task := &api.Task{ID: "0199", State: api.Succeeded, Result: json.RawMessage(`"` + strings.Repeat("é", 5000) + `"`), Truncated: true}
	if err := e.show(task, ""); err != nil {
		t.Fatal(err)
	}
	if out.Len() > 5000 || !strings.Contains(out.String(), "(10002 bytes; `onefold result 0199` prints all) (cut off by its length limit)") {
		t.Errorf("got %d bytes, ending %q", out.Len(), out.String()[out.Len()-100:])
	}
	out.Reset()
	e.json = true
	if err := e.show(task, ""); err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(out.Bytes(), task.Result) {
		t.Error("-o json does not hold the result")
	}
}

func TestRelative(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "now", -300 * time.Millisecond: "now", -1500 * time.Millisecond: "1 s ago", 59 * time.Second: "in 59 s", -time.Hour: "1 h ago",
		47 * time.Hour: "in 47 h", -72 * time.Hour: "3 days ago",
	} {
		if got := relative(d); got != want {
			t.Errorf("%s: got %q, want %q", d, got, want)
		}
	}
}

func TestClean(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain é ✓\n\tx": "plain é ✓\n\tx", "\x1b]0;title\x07": `\u001b]0;title\u0007`, "a\rb": `a\u000db`, "\u009b2J": `\u009b2J`,
		"\u202etxt": `\u202etxt`, "bad \xff": "bad \ufffd",
	} {
		if got := clean(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestColumnsStayAlignedUnderColour(t *testing.T) {
	t.Parallel()
	e, out := onTerminal()
	err := e.rows([][]string{{"ID", "STATE", "KEY"}, {"é", "succeeded", "k"}, {"long", "failed", ""}}, map[int]func(string) string{1: e.paintState})
	if err != nil {
		t.Fatal(err)
	}
	want := "ID    STATE      KEY\n" +
		"é     " + green + "succeeded" + off + "  k\n" +
		"long  " + red + "failed   " + off + "  \n"
	if diff := cmp.Diff(out.String(), want); diff != "" {
		t.Errorf("-got +want:\n%s", diff)
	}
}

func TestExitCode(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, exitOK},
		{errors.New("anything"), exitError},
		{usage("wrong", "do right"), exitUsage},
		{ending(exitUnknown), exitUnknown},
		{fmt.Errorf("wrapped: %w", api.Errorf(api.CodeNotFound, "no")), exitNotFound},
		{api.Errorf(api.CodeExpired, "no"), exitNotFound},
		{api.Errorf(api.CodeUnavailable, "no"), exitUnavailable},
		{api.Errorf(api.CodeKeyReused, "no"), exitError},
		{context.DeadlineExceeded, exitUnavailable},
		{fmt.Errorf("get: %w", context.Canceled), exitInterrupted},
	} {
		if got := exitCode(c.err); got != c.want {
			t.Errorf("%v: got %d, want %d", c.err, got, c.want)
		}
	}
}

func TestMoment(t *testing.T) {
	t.Parallel()
	read := func(s string) (m moment) {
		if err := m.UnmarshalText([]byte(s)); err != nil {
			t.Fatal(err)
		}
		return m
	}
	after, at, none := read("2h"), read("2026-01-01T01:00:00+01:00"), moment{}
	if got := after.ahead(noon); !got.Equal(noon.Add(2 * time.Hour)) {
		t.Errorf("2h ahead: got %s", got)
	}
	if got := after.ago(noon); !got.Equal(noon.Add(-2 * time.Hour)) {
		t.Errorf("2h ago: got %s", got)
	}
	if got := at.ago(noon).Format(time.RFC3339); got != "2026-01-01T00:00:00Z" {
		t.Errorf("a time: got %s", got)
	}
	if none.ahead(noon) != nil {
		t.Error("no time became one")
	}
	for _, s := range []string{"", "-2h", "tomorrow", "2026-01-01"} {
		var m moment
		if err := m.UnmarshalText([]byte(s)); err == nil {
			t.Errorf("%q was read", s)
		}
	}
}
