package gate

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
)

// step is one transaction's news of a gate, so many seconds after the start.
type step struct {
	at   int
	news []Observation
}

// shown is what the steps led to.
type shown struct {
	State     api.GateState
	Code      string
	Opens     int // seconds from the last step
	Failures  int32
	Attention bool
	Epoch     int64
}

func TestFold(t *testing.T) {
	t.Parallel()
	key, other := []byte("key"), []byte("other")
	a, b, c := task.NewID(), task.NewID(), task.NewID()
	wait := func(s int) Observation { return Observation{What: Refused, RetryAfter: time.Duration(s) * time.Second} }
	seen := func(w What) Observation { return Observation{What: w} }
	suspect := func(id task.ID) Observation { return Observation{What: Suspect, Task: id} }
	fails := func(n, from int) (out []step) {
		for i := range n {
			out = append(out, step{from + i, []Observation{seen(Failed)}})
		}
		return out
	}
	for _, tt := range []struct {
		name  string
		steps []step
		want  shown
	}{
		{"429 with a time", []step{{0, []Observation{wait(7)}}}, shown{State: "cooling", Code: "rate_limited", Opens: 7, Epoch: 1}},
		{"the longest time of many counts", []step{{0, []Observation{wait(7), wait(20), wait(3)}}}, shown{State: "cooling", Code: "rate_limited", Opens: 20, Epoch: 1}},
		{"a shorter one later does not shorten", []step{{0, []Observation{wait(20)}}, {1, []Observation{wait(2)}}}, shown{State: "cooling", Code: "rate_limited", Opens: 19, Epoch: 1}},
		{"a longer one later lengthens", []step{{0, []Observation{wait(20)}}, {1, []Observation{wait(30)}}}, shown{State: "cooling", Code: "rate_limited", Opens: 30, Epoch: 1}},
		{"days are clamped to an hour", []step{{0, []Observation{wait(999999)}}}, shown{State: "cooling", Code: "rate_limited", Opens: 3600, Epoch: 1}},
		{"no time named", []step{{0, []Observation{wait(0)}}}, shown{State: "cooling", Code: "rate_limited", Opens: 2, Epoch: 1}},
		{"no time named by those under way", []step{{0, []Observation{wait(0)}}, {1, []Observation{wait(0)}}}, shown{State: "cooling", Code: "rate_limited", Opens: 1, Epoch: 1}},
		{"no time named, soon again: twice as long", []step{{0, []Observation{wait(0)}}, {3, []Observation{wait(0)}}}, shown{State: "cooling", Code: "rate_limited", Opens: 4, Epoch: 2}},
		{"no time named, long after", []step{{0, []Observation{wait(0)}}, {9, []Observation{wait(0)}}}, shown{State: "cooling", Code: "rate_limited", Opens: 2, Epoch: 2}},
		{"a pause is over by itself", []step{{0, []Observation{wait(7)}}, {8, nil}}, shown{State: "open", Epoch: 1}},
		{"what goes well does not end a pause", []step{{0, []Observation{wait(7)}}, {1, []Observation{seen(Healthy)}}}, shown{State: "cooling", Code: "rate_limited", Opens: 6, Epoch: 1}},
		{"401 holds", []step{{0, []Observation{seen(Unauthorized)}}}, shown{State: "held", Code: "unauthorized", Epoch: 1}},
		{"401 of many holds once", []step{{0, []Observation{seen(Unauthorized), seen(Unauthorized)}}, {1, []Observation{seen(Unauthorized)}}}, shown{State: "held", Code: "unauthorized", Epoch: 1}},
		{"401 beside successes holds", []step{{0, []Observation{seen(Healthy), seen(Unauthorized), seen(Healthy)}}}, shown{State: "held", Code: "unauthorized", Epoch: 1}},
		{"held stays held", []step{{0, []Observation{seen(Quota)}}, {1, []Observation{seen(Healthy), wait(5)}}}, shown{State: "held", Code: "quota_exhausted", Epoch: 1}},
		{"401 while cooling", []step{{0, []Observation{wait(7)}}, {1, []Observation{seen(Unauthorized)}}}, shown{State: "held", Code: "unauthorized", Epoch: 2}},
		{"two tasks are no proof", []step{{0, []Observation{suspect(a)}}, {1, []Observation{suspect(b)}}}, shown{State: "open"}},
		{"one task three times is none", []step{{0, []Observation{suspect(a)}}, {1, []Observation{suspect(a)}}, {2, []Observation{suspect(a)}}}, shown{State: "open"}},
		{"three tasks in a row are one", []step{{0, []Observation{suspect(a), suspect(b)}}, {1, []Observation{suspect(c)}}}, shown{State: "held", Code: "unauthorized", Epoch: 1}},
		{"not in a row", []step{{0, []Observation{suspect(a), suspect(b)}}, {1, []Observation{seen(Healthy)}}, {2, []Observation{suspect(c)}}}, shown{State: "open"}},
		{"four failures", fails(4, 0), shown{State: "open", Failures: 4}},
		{"five failures", fails(5, 0), shown{State: "cooling", Code: "failing", Opens: 30, Failures: 5, Attention: true, Epoch: 1}},
		{"failures not in a row", append(append(fails(4, 0), step{4, []Observation{seen(Healthy)}}), fails(4, 5)...), shown{State: "open", Failures: 4}},
		{"failures of those under way count nothing", append(fails(5, 0), fails(3, 5)...), shown{State: "cooling", Code: "failing", Opens: 27, Failures: 5, Attention: true, Epoch: 1}},
		{"one more after the pause: twice as long", append(fails(5, 0), step{40, []Observation{seen(Failed)}}), shown{State: "cooling", Code: "failing", Opens: 60, Failures: 6, Attention: true, Epoch: 2}},
		{"well after the pause", append(fails(5, 0), step{40, []Observation{seen(Healthy)}}), shown{State: "open", Epoch: 2}},
		{"410 disables", []step{{0, []Observation{seen(Gone)}}, {1, []Observation{seen(Healthy), wait(3)}}}, shown{State: "disabled", Code: "gone", Epoch: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			g, now := store.Gate{State: api.GateOpen}, start
			for _, s := range tt.steps {
				now = start.Add(time.Duration(s.at) * time.Second)
				was := g.Epoch
				fold(&g, s.news, now, func() float64 { return 0 })
				if g.Epoch != was {
					g.Since = now
				}
			}
			s := stateOf(g, now)
			got := shown{s.State, s.Code, int(s.Opens / time.Second), s.Failures, s.NeedsAttention, s.Epoch}
			if diff := cmp.Diff(got, tt.want); diff != "" {
				t.Errorf("-got +want:\n%s", diff)
			}
		})
	}
	g := store.Gate{State: api.GateOpen}
	fold(&g, []Observation{{What: Unauthorized, Credential: key}, {What: Unauthorized, Credential: key}, {What: Unauthorized, Credential: other}}, time.Now(), nil)
	if diff := cmp.Diff(g.Refused, [][]byte{key, other}); diff != "" {
		t.Errorf("refused credentials: %s", diff)
	}
}

// A call that was begun before an operator released the gate does not close it
// again, one that was begun after it does.
func TestReleaseOvertakesCallsUnderWay(t *testing.T) {
	t.Parallel()
	released := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, what := range []What{Unauthorized, Quota, Suspect} {
		for _, tt := range []struct {
			begun time.Time
			want  api.GateState
		}{
			{released.Add(-time.Second), api.GateOpen},
			{released.Add(time.Second), api.GateHeld},
			{time.Time{}, api.GateHeld},
		} {
			g := store.Gate{State: api.GateOpen, Epoch: 2, Since: released}
			for id := range byte(SuspectsNeeded) {
				fold(&g, []Observation{{What: what, Task: task.ID{id}, Credential: []byte("key"), Begun: tt.begun}}, released.Add(time.Minute), nil)
			}
			if g.State != tt.want || tt.want == api.GateOpen && (len(g.Refused) > 0 || len(g.Suspects) > 0) {
				t.Errorf("%v of a call begun %v after the release: got %+v, want it %s", what, tt.begun.Sub(released), g, tt.want)
			}
		}
	}
}
