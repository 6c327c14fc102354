package server

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
)

func TestHint(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	m := store.Latency{Measured: 9, P50: 10 * time.Second, P95: 40 * time.Second}
	for name, c := range map[string]struct {
		measured store.Latency
		age      time.Duration
		created  time.Duration // before now, where attempts > 1
		want     time.Duration
	}{
		"nothing measured":             {age: 0, want: 2 * time.Second},
		"nothing measured, old":        {age: 100 * time.Second, want: 25 * time.Second},
		"nothing measured, very old":   {age: time.Hour, want: time.Minute},
		"new: the median":              {measured: m, age: 0, want: 10 * time.Second},
		"almost the median":            {measured: m, age: 9500 * time.Millisecond, want: time.Second},
		"past the median: the 95th":    {measured: m, age: 15 * time.Second, want: 25 * time.Second},
		"past the 95th":                {measured: m, age: 44 * time.Second, want: 11 * time.Second},
		"far past it":                  {measured: m, age: time.Hour, want: time.Minute},
		"a clock that went back":       {measured: m, age: 0, want: 10 * time.Second},
		"due in a quarter of an hour":  {measured: m, age: -15 * time.Minute, want: 15*time.Minute + 10*time.Second},
		"due in a day":                 {measured: m, age: -24 * time.Hour, want: time.Hour},
		"tried again: from the start":  {measured: m, age: 0, created: 20 * time.Second, want: 20 * time.Second},
		"a median beyond what is held": {measured: store.Latency{Measured: 1, P50: time.Hour, P95: time.Hour}, want: time.Minute},
	} {
		row := &task.Row{State: api.Pending, Now: now, RunAt: now.Add(-c.age)}
		if c.created > 0 {
			row.TotalAttempts, row.CreatedAt = 2, now.Add(-c.created)
		}
		if got := hintFor(c.measured, row); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}

func TestSeconds(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{1: "1", time.Second: "1", 1001 * time.Millisecond: "2", time.Minute: "60", 0: "1", -time.Second: "1"} {
		if got := seconds(d); got != want {
			t.Errorf("seconds(%s): got %s, want %s", d, got, want)
		}
	}
}

func TestPreferred(t *testing.T) {
	t.Parallel()
	type answer struct {
		d  time.Duration
		ok bool
	}
	for line, want := range map[string]answer{
		"wait=5":                  {5 * time.Second, true},
		"Wait = 5":                {5 * time.Second, true},
		`respond-async, wait="7"`: {7 * time.Second, true},
		"wait=5;foo=bar":          {5 * time.Second, true},
		"wait=100000":             {time.Minute, true},
		"wait=0":                  {0, true},
		"wait":                    {},
		"wait=-1":                 {},
		"wait=1e3":                {},
		"wait=99999999999999999":  {},
		"handling=strict":         {},
		"":                        {},
	} {
		d, ok := preferred(http.Header{"Prefer": {line}})
		if got := (answer{d, ok}); got != want {
			t.Errorf("%q: got %v, want %v", line, got, want)
		}
	}
}

func TestCursorRoundTrip(t *testing.T) {
	t.Parallel()
	id := uuid.Must(uuid.NewV7())
	p := &listParams{Kind: "k", Metadata: map[string]string{"a": "b", "c": "d"}, Limit: 10}
	text := writeCursor(id, p.mark("a"))
	other := &listParams{Kind: "k", Metadata: map[string]string{"c": "d", "a": "b"}, Limit: 20, Cursor: text}
	got, err := readCursor(text, other.mark("a"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(*got, id); diff != "" {
		t.Errorf("-got +want:\n%s", diff)
	}
	for i := range text {
		changed := []byte(text)
		changed[i] = 'A' + (changed[i]+1)%26
		if _, err := readCursor(string(changed), p.mark("a")); err == nil && string(changed) != text {
			t.Errorf("accepted with character %d changed", i)
		}
	}
}
