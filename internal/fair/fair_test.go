package fair

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// line is what waits at one provider, served in the order of its places.
type line struct {
	*Clock
	waiting []waiting
	served  map[string]int
	seq     int
}

type waiting struct {
	Flow
	at  time.Time
	seq int
}

func newLine(weights map[string]int) *line {
	return &line{
		Clock:  newClock(Opts{Weight: func(t string) int { return cmp.Or(weights[t], DefaultWeight) }}),
		served: map[string]int{},
	}
}

func (l *line) put(f Flow, n int) {
	for range n {
		l.seq++
		l.waiting = append(l.waiting, waiting{f, l.Place(f), l.seq})
	}
}

// serve serves the next one, and lets the clock see where the provider is.
func (l *line) serve() Flow {
	first := slices.MinFunc(l.waiting, func(a, b waiting) int { return cmp.Or(a.at.Compare(b.at), a.seq-b.seq) })
	l.waiting = slices.DeleteFunc(l.waiting, func(w waiting) bool { return w.seq == first.seq })
	q := l.queues[first.Provider]
	q.now = max(q.now, int64(first.at.Sub(Origin)))
	l.served[first.Tenant]++
	return first.Flow
}

func flow(tenant string) Flow { return Flow{Provider: "p", Tenant: tenant, Priority: normal} }

func TestNewcomerIsNext(t *testing.T) {
	t.Parallel()
	l := newLine(nil)
	l.put(flow("flood"), 500)
	for range 100 {
		l.serve()
	}
	l.put(flow("newcomer"), 1)
	for n := 1; ; n++ {
		if l.serve().Tenant == "newcomer" {
			if n > 2 {
				t.Errorf("served as number %d", n)
			}
			return
		}
	}
}

// Whoever was alone for long owes nobody for it.
func TestIdleTimeIsForgotten(t *testing.T) {
	t.Parallel()
	l := newLine(nil)
	l.put(flow("old"), 300)
	for range 300 {
		l.serve()
	}
	q := l.queues["p"]
	q.now = max(q.now, q.lanes[laneKey{tenant: "old"}].finish[normal]) // as the exchange sees an empty queue
	l.put(flow("new"), 100)
	l.put(flow("old"), 100)
	for range 100 {
		l.serve()
	}
	if d := l.served["old"] - 300 - l.served["new"]; d < -2 || d > 2 {
		t.Errorf("of the next 100 the old one got %d, the new one %d", l.served["old"]-300, l.served["new"])
	}
}

func TestBatchBelowInteractive(t *testing.T) {
	t.Parallel()
	l := newLine(nil)
	batch := flow("batch")
	batch.Batch = true
	l.put(batch, 400)
	l.put(flow("live"), 400)
	for range 330 {
		l.serve()
	}
	if got := l.served["batch"]; got < 29 || got > 31 {
		t.Errorf("the batch got %d of 330, want a tenth of the other's share", got)
	}
}

func TestPriorityIsAWeightWithinATenant(t *testing.T) {
	t.Parallel()
	l := newLine(nil)
	high, low := flow("a"), flow("a")
	high.Priority, low.Priority = 5, 4
	for range 300 { // submitted side by side
		l.put(high, 1)
		l.put(low, 1)
		l.put(flow("b"), 1)
	}
	got := map[string]int{}
	for range 300 {
		f := l.serve()
		got[fmt.Sprint(f.Tenant, f.Priority)]++
	}
	if a, b := got["a5"]+got["a4"], got["b4"]; a < 145 || a > 155 {
		t.Errorf("two priorities got tenant a %d places, b %d: want the same", a, b)
	}
	if r := float64(got["a5"]) / float64(got["a4"]); r < 1.9 || r > 2.1 {
		t.Errorf("priority 5 to 4 is %d to %d, want 2 to 1", got["a5"], got["a4"])
	}
}

// With a backlog of each, no two tenants are ever further apart than one task of
// each, measured in their shares: the bound of start-time fair queueing. So
// nobody starves either.
func TestShares(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 5).Draw(t, "tenants")
		weights := map[string]int{}
		var names []string
		for i := range n {
			name := string(rune('a' + i))
			weights[name] = rapid.IntRange(10, 100).Draw(t, "weight")
			names = append(names, name)
		}
		l := newLine(weights)
		const rounds = 60
		order := rapid.Permutation(names).Draw(t, "order")
		for _, name := range order {
			l.put(flow(name), rounds)
		}
		for k := 1; k <= rounds; k++ {
			l.serve()
			for _, a := range names {
				for _, b := range names {
					got := float64(l.served[a])/float64(weights[a]) - float64(l.served[b])/float64(weights[b])
					if most := 1/float64(weights[a]) + 1/float64(weights[b]); got > most*1.01 {
						t.Fatalf("after %d: %s (weight %d) got %d, %s (weight %d) %d", k, a, weights[a], l.served[a], b, weights[b], l.served[b])
					}
				}
			}
		}
	})
}

// Whatever comes when: the places of a flow never go back, and a tenant that is
// served at all is passed by at most what others had before it and their shares.
func TestPlacesNeverGoBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := newLine(map[string]int{"a": 1, "b": 50, "c": 1000})
		last := map[Flow]time.Time{}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			if len(l.waiting) > 0 && rapid.Bool().Draw(t, "serve") {
				l.serve()
				continue
			}
			f := Flow{
				Provider: "p", Tenant: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "tenant"),
				Batch: rapid.Bool().Draw(t, "batch"), Priority: rapid.Int16Range(0, 9).Draw(t, "priority"),
			}
			at := l.Place(f)
			if at.Before(last[f]) {
				t.Fatalf("%v: %s after %s", f, at, last[f])
			}
			if now := Origin.Add(time.Duration(l.queues["p"].now)).Truncate(time.Microsecond); at.Before(now) {
				t.Fatalf("%v: %s is before what is served, %s", f, at, now)
			}
			last[f] = at
			l.seq++
			l.waiting = append(l.waiting, waiting{f, at, l.seq})
		}
	})
}
