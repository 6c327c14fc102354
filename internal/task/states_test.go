package task_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/task"
)

var update = flag.Bool("update", false, "write docs/states.md anew")

// because says what makes a task move; every legal move has its reason here.
var because = map[api.State]map[api.State]string{
	api.Pending: {
		api.Running:   "a worker claims it",
		api.Cancelled: "cancelled before a worker had it",
		api.Failed:    "its deadline passed",
		api.Unknown:   "its deadline passed, and an earlier call of a kind that wants review has no known outcome",
	},
	api.Running: {
		api.Succeeded: "the result is committed, together with its effects",
		api.Failed:    "the request was rejected, or attempts or the deadline are used up",
		api.Unknown:   "nobody knows what the call did, and the kind wants review; or three leases in a row were lost; or the finish failed",
		api.Cancelled: "cancelled while it ran; what the call brings is kept on its attempt",
		api.Pending:   "a retry, a worker that stops gracefully, or a lease that ran out",
	},
	api.Unknown: {
		api.Succeeded: "a person or a check resolved it",
		api.Failed:    "a person or a check resolved it",
		api.Cancelled: "a person cancelled it",
		api.Pending:   "a person or a check has it run again",
	},
	api.Failed: {
		api.Pending: "reopened by a submit after a failure by the system's fault, or retried by a person",
	},
}

// becauseEffect is the same for effects.
var becauseEffect = map[api.EffectState]map[api.EffectState]string{
	api.EffectWaiting: {
		api.EffectDelivering: "it is due, and a worker takes it",
		api.EffectHeld:       "its destination is held",
		api.EffectDiscarded:  "a person discards it",
	},
	api.EffectDelivering: {
		api.EffectDelivered: "the destination took it",
		api.EffectWaiting:   "not this time: it is sent again on the schedule",
		api.EffectUnknown:   "nobody knows whether it arrived, and repeating it may do harm",
		api.EffectDead:      "the destination will not take it, or the schedule is used up",
		api.EffectHeld:      "its destination was held meanwhile",
	},
	api.EffectHeld: {
		api.EffectWaiting:   "its destination is released",
		api.EffectDiscarded: "a person discards it",
	},
	api.EffectUnknown: {
		api.EffectWaiting:   "a check or a person says that it did not arrive",
		api.EffectDelivered: "a check or a person says that it arrived",
		api.EffectDiscarded: "a person discards it",
	},
	api.EffectDead: {
		api.EffectWaiting:   "a person has it sent again",
		api.EffectDiscarded: "a person discards it",
	},
}

const statesHead = `# States

Made from the tables in ` + "`internal/task/moves.go`" + `; do not edit. Renew it with ` + "`go generate ./internal/task`" + `.

A state changes in no other way than these. Every change is one guarded UPDATE; one that finds the row elsewhere changes nothing.
`

const taskText = `
Polling may stop once a task is settled: final, or unknown. ` + "`succeeded` and `cancelled`" + ` are for ever. ` + "`failed`" + ` carries
` + "`error.permanent`" + `: true says that the request itself was at fault, or a person said so; false that attempts, deadline or quota
ran out, and then the same request may run again on the same row. Each run has its own effects.
`

const effectText = `
An effect is made in the transaction that commits the outcome it belongs to, and only there. ` + "`unknown` and `dead`" + ` wait for a
person; what is to be sent stays stored until it is delivered or discarded.
`

// TestStatesDoc keeps docs/states.md to the tables of moves.
func TestStatesDoc(t *testing.T) {
	t.Parallel()
	path := filepath.Join("..", "..", "docs", "states.md")
	var b strings.Builder
	b.WriteString(statesHead + "\n## A task\n" + taskText)
	draw(t, &b, api.States, task.Moves, because)
	b.WriteString("\n## An effect\n" + effectText)
	draw(t, &b, []api.EffectState{
		api.EffectWaiting, api.EffectDelivering, api.EffectHeld, api.EffectUnknown, api.EffectDead, api.EffectDelivered, api.EffectDiscarded,
	}, task.EffectMoves, becauseEffect)
	if *update && !t.Failed() {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(got), b.String()); diff != "" {
		t.Errorf("docs/states.md is stale; run: go generate ./internal/task\n-got +want:\n%s", diff)
	}
}

// draw writes the picture and the table of one machine. states gives the order;
// the first is where it starts.
func draw[S ~string](t *testing.T, b *strings.Builder, states []S, moves map[S][]S, why map[S]map[S]string) {
	t.Helper()
	fmt.Fprintf(b, "\n```mermaid\nstateDiagram-v2\n  [*] --> %s\n", states[0])
	var table, last strings.Builder
	for _, from := range states {
		to, ok := moves[from]
		if !ok {
			t.Errorf("the table of moves has no row for %s", from)
		}
		if len(to) == 0 {
			fmt.Fprintf(&last, "  %s --> [*]\n", from)
		}
		for _, s := range to {
			if why[from][s] == "" || !slices.Contains(states, s) {
				t.Errorf("the move from %s to %s is not explained: say in states_test.go what makes it", from, s)
			}
			fmt.Fprintf(b, "  %s --> %s\n", from, s)
			fmt.Fprintf(&table, "| `%s` | `%s` | %s |\n", from, s, why[from][s])
		}
		for s := range why[from] {
			if !slices.Contains(to, s) {
				t.Errorf("states_test.go explains a move from %s to %s that is not legal", from, s)
			}
		}
	}
	fmt.Fprintf(b, "%s```\n\n| from | to | when |\n|---|---|---|\n%s", last.String(), table.String())
	if len(moves) != len(states) {
		t.Errorf("the table of moves has %d states, %d are drawn", len(moves), len(states))
	}
}
