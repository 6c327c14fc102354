package diagnose_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/diagnose"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(d time.Duration) time.Time { return start.Add(d) }

func ptr(t time.Time) *time.Time { return &t }

func attempt(after time.Duration, a api.Attempt) api.Event {
	a.Number, a.ClaimedAt = max(a.Number, 1), at(after)
	return api.Event{At: at(after), What: api.EventAttempt, Attempt: &a}
}

func fold(after time.Duration, client, agent string) api.Event {
	return api.Event{At: at(after), What: api.EventFolded, Client: client, UserAgent: agent}
}

// Which rows of the table each story looks like.
func TestLook(t *testing.T) {
	t.Parallel()
	made := api.Event{At: start, What: api.EventSubmitted, Client: "aa", UserAgent: "agent/1"}
	for name, c := range map[string]struct {
		events []api.Event
		near   []diagnose.Neighbour
		state  api.State
		done   time.Duration
		reject int64
		want   []string
	}{
		"nothing": {state: api.Succeeded, want: nil},
		"a timeout, and the reply came": {
			events: []api.Event{attempt(0, api.Attempt{Outcome: "unknown", Code: "total_timeout", SentAt: ptr(start), LateAt: ptr(at(time.Minute))})}, want: []string{"T1"},
		},
		"a double click": {events: []api.Event{fold(300*time.Millisecond, "aa", "agent/1")}, want: []string{"T2"}},
		"a queue's redeliveries": {
			events: []api.Event{fold(30*time.Second, "aa", "agent/1"), fold(60*time.Second, "aa", "agent/1")}, want: []string{"T3"},
		},
		"a lost worker":          {events: []api.Event{attempt(0, api.Attempt{Outcome: "lost"}), attempt(time.Minute, api.Attempt{Outcome: "succeeded", Number: 2})}, want: []string{"T3"}},
		"cron on every instance": {events: []api.Event{fold(50*time.Millisecond, "bb", "agent/1")}, want: []string{"T4", "T2"}},
		"a key for each retry": {
			near: []diagnose.Neighbour{{ID: "n", Key: "other", CreatedAt: at(5 * time.Second), SameInput: true, SameTrace: true, UserAgent: "agent/1", Client: "aa"}},
			want: []string{"T5"},
		},
		"a gateway gave up": {
			events: []api.Event{attempt(time.Second, api.Attempt{Outcome: "succeeded", ClosedAt: ptr(at(90 * time.Second))}), fold(60*time.Second, "aa", "agent/1")},
			done:   90 * time.Second, want: []string{"T7", "T3"},
		},
		"429":                   {events: []api.Event{attempt(0, api.Attempt{Outcome: "refused", Status: 429}), attempt(time.Second, api.Attempt{Outcome: "succeeded", Number: 2})}, want: []string{"T8"}},
		"401":                   {events: []api.Event{attempt(0, api.Attempt{Outcome: "unauthorized", Status: 401})}, state: api.Pending, want: []string{"T9"}},
		"one key, two payloads": {reject: 3, want: []string{"K14"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			line := api.Timeline{Key: "k", State: c.state, CreatedAt: start, Refused: c.reject, Events: append([]api.Event{made}, c.events...)}
			if line.State == "" {
				line.State = api.Succeeded
			}
			if c.done > 0 {
				line.FinishedAt = ptr(at(c.done))
			}
			d := diagnose.Look(line, c.near)
			var got []string
			for _, f := range d.Findings {
				got = append(got, f.Row)
				if f.Title == "" || f.Do == "" || len(f.Evidence) == 0 {
					t.Errorf("%s says too little: %+v", f.Row, f)
				}
			}
			if diff := cmp.Diff(got, c.want); diff != "" {
				t.Errorf("-got +want:\n%s", diff)
			}
			if (d.CannotTell == "") != (len(c.want) > 0) {
				t.Errorf("cannot tell: %q with %d findings", d.CannotTell, len(d.Findings))
			}
		})
	}
}
