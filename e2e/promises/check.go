package promises

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/api"
)

// Mistake is a broken promise; Key is empty when it is about no single one.
type Mistake struct{ Key, What string }

// Check returns every broken promise it finds.
func (e *Evidence) Check() []Mistake {
	c := &checking{Evidence: e, effectOf: map[string]bool{}}
	c.rows()
	for _, t := range e.tasks {
		c.settled(t)
		c.ledger(t)
		c.oneResult(t)
		c.effectsOf(t)
		c.sqlEffects(t)
	}
	c.receiver()
	return c.found
}

type checking struct {
	*Evidence
	found    []Mistake
	effectOf map[string]bool // ids of all webhook effects
}

func (c *checking) wrong(key, format string, args ...any) {
	c.found = append(c.found, Mistake{key, fmt.Sprintf(format, args...)})
}

// rows: one row a key, and every acknowledged submit has one, as its caller was
// told last.
func (c *checking) rows() {
	byKey, byID := map[string]string{}, map[string]taskRow{}
	for _, t := range c.tasks {
		k := t.Tenant + " " + t.Kind + " " + t.Key
		if other := byKey[k]; other != "" {
			c.wrong(t.Key, "two rows of one key: %s and %s", other, t.ID)
		}
		byKey[k], byID[t.ID] = t.ID, t
	}
	for id, told := range c.told {
		t, ok := byID[id]
		if !ok {
			c.wrong(told.Key, "the acknowledged task %s is lost", id)
			continue
		}
		now := Sight{ID: t.ID, Run: t.Run, Epoch: t.Epoch, State: t.State, Permanent: t.Permanent}
		if t.Result != nil {
			now.Sum = hash(t.Result)
		}
		if what := Wrong(told.Last, now); what != "" {
			c.wrong(told.Key, "%s: the row says %s, callers were told of %s", what, now, told.Last)
		}
	}
}

func (c *checking) settled(t taskRow) {
	if !t.State.Settled() {
		c.wrong(t.Key, "the task is neither final nor in review but %s", t.State)
	}
}

// sends says how many calls an attempt made for certain, and how many at most.
func (a attemptRow) sends(kind string) (known, most int) {
	switch {
	case a.Outcome == "not_sent":
		return 0, 0
	case a.Job != "":
		return 1, 1
	case a.Status != 0 || a.Late || slices.Contains([]string{"headers", "first_token", "body", "done"}, a.Phase):
		return 1, 1
	case kind == "careful" && !a.Dispatched:
		return 0, 0 // its call would have been noted before it was sent
	}
	return 0, 1
}

// ledger: the model was called as often as the ledger of sends says: at least
// the known sends, at most those and the ones whose phase is not known. From the
// moment that a background job is stored until it is over it is only asked for.
func (c *checking) ledger(t taskRow) {
	known, most := 0, 0
	all := c.attempts[t.ID]
	for i, a := range all {
		if !asks(all, i) {
			k, m := a.sends(t.Kind)
			known, most = known+k, most+m
		}
		if a.Open {
			c.wrong(t.Key, "the attempt of epoch %d was never closed", a.Epoch)
		}
		if a.Epoch > t.Epoch {
			c.wrong(t.Key, "an attempt of epoch %d, the task is at %d", a.Epoch, t.Epoch)
		}
		if asked, ok := c.asked[a.RequestID]; a.RequestID != "" && (!ok || asked != t.ID) {
			c.wrong(t.Key, "the attempt of epoch %d has the reply to %s, a call of task %q", a.Epoch, a.RequestID, asked)
		}
	}
	if n := c.calls[t.ID]; n < known || n > most {
		c.wrong(t.Key, "%d model calls, the ledger says %d to %d", n, known, most)
	}
}

// asks says that the attempt has nothing to send: a job that an earlier attempt
// of its run stored is not over, or it is this one that heard of its end.
func asks(all []attemptRow, i int) bool {
	for k := range i {
		job := all[k].Job
		if job == "" || all[k].Run != all[i].Run {
			continue
		}
		if !all[k].JobOver || slices.ContainsFunc(all[i:], func(a attemptRow) bool { return a.Job == job }) {
			return true
		}
	}
	return false
}

// oneResult: a succeeded task has one attempt that succeeded, the one of its own
// epoch, and the result is what that attempt's call brought; any other task has
// none, but that a cancel wins over a call which succeeded. A worker that was
// fenced would show here.
func (c *checking) oneResult(t taskRow) {
	var won []attemptRow
	for _, a := range c.attempts[t.ID] {
		if a.Outcome == "succeeded" {
			won = append(won, a)
		}
	}
	if t.State != api.Succeeded {
		if len(won) > 0 && t.State != api.Cancelled || len(won) > 1 || t.Result != nil {
			c.wrong(t.Key, "the task is %s and has %d succeeded attempts, result %q", t.State, len(won), t.Result)
		}
		return
	}
	switch {
	case len(won) != 1:
		c.wrong(t.Key, "the task succeeded with %d succeeded attempts", len(won))
	case won[0].Epoch != t.Epoch || won[0].Run != t.Run:
		c.wrong(t.Key, "the result came from the attempt of epoch %d run %d, the task is at %d run %d: a fenced worker wrote",
			won[0].Epoch, won[0].Run, t.Epoch, t.Run)
	case !strings.HasSuffix(text(t.Result), " "+won[0].RequestID):
		c.wrong(t.Key, "the result %q is not the reply to the call %s of the attempt that succeeded", text(t.Result), won[0].RequestID)
	}
}

// effectsOf: every outcome has its effects and no others: the runs before the
// last one failed or were not known, or they would not have been run again.
func (c *checking) effectsOf(t taskRow) {
	var want, got []string
	for run := 1; run <= t.Run; run++ {
		state := t.State
		if run < t.Run {
			state = c.ended(t, run)
		}
		for _, name := range expected[t.Kind][state] {
			want = append(want, fmt.Sprintf("run %d %s: %s", run, state, name))
		}
	}
	for _, f := range c.effects[t.ID] {
		got = append(got, fmt.Sprintf("run %d %s: %s", f.Run, f.Outcome, f.Name))
		c.left(t, f)
	}
	if diff := cmp.Diff(got, want); diff != "" {
		c.wrong(t.Key, "the effects are not those of the outcomes: -got +want:\n%s", diff)
	}
}

// ended is how an earlier run of a task ended.
func (c *checking) ended(t taskRow, run int) api.State {
	for _, a := range c.attempts[t.ID] {
		if a.Run == run && t.Kind == "careful" && (a.Outcome == "unknown" || a.Outcome == "lost" && a.Dispatched) {
			return api.Unknown
		}
	}
	return api.Failed
}

// left: an effect that is delivered was received; one that left where a repeat
// does harm was received at most once, unless nothing is known of it but that.
func (c *checking) left(t taskRow, f effectRow) {
	if f.Type != "webhook" {
		return
	}
	c.effectOf[f.ID] = true
	got := c.received[f.ID]
	switch {
	case f.State != api.EffectDelivered && !(f.State == api.EffectUnknown && f.Destination == "once"):
		c.wrong(t.Key, "effect %s %s is %s", f.ID, f.Name, f.State)
	case f.Open > 0:
		c.wrong(t.Key, "effect %s %s has a delivery that was never closed", f.ID, f.Name)
	case (f.State == api.EffectDelivered) != (f.Delivered == 1) || f.Delivered > 1:
		c.wrong(t.Key, "effect %s %s is %s after %d deliveries that arrived: a fenced worker wrote", f.ID, f.Name, f.State, f.Delivered)
	case f.State == api.EffectDelivered && got.Taken == 0:
		c.wrong(t.Key, "effect %s %s is delivered, the receiver never took it", f.ID, f.Name)
	case f.Destination == "once" && got.Count > 1:
		c.wrong(t.Key, "effect %s %s was received %d times, a repeat does harm", f.ID, f.Name, got.Count)
	case got.Count > f.Deliveries:
		c.wrong(t.Key, "effect %s %s was received %d times, the ledger has %d deliveries", f.ID, f.Name, got.Count, f.Deliveries)
	case got.Count > 0 && (got.Differ > 0 || string(got.Body) != string(f.Body)):
		c.wrong(t.Key, "effect %s %s: received %q and %d others, stored is %q", f.ID, f.Name, got.Body, got.Differ, f.Body)
	}
	var body struct{ Result *string }
	if f.Name != "notify" {
		return
	}
	if err := json.Unmarshal(f.Body, &body); err != nil || body.Result == nil || *body.Result != text(t.Result) {
		c.wrong(t.Key, "effect %s %s tells of another result than the task's: %s", f.ID, f.Name, f.Body)
	}
}

// sqlEffects happen exactly once, with the result that was stored.
func (c *checking) sqlEffects(t taskRow) {
	var want []savedRow
	if t.Kind == "saved" && t.State == api.Succeeded {
		want = []savedRow{{t.Run, text(t.Result)}}
	}
	if diff := cmp.Diff(c.saved[t.ID], want); diff != "" {
		c.wrong(t.Key, "rows of the sql effect: -got +want:\n%s", diff)
	}
}

// receiver: nothing came that is not an effect of an outcome that stands.
func (c *checking) receiver() {
	for id, got := range c.received {
		if !c.effectOf[id] {
			c.wrong("", "the receiver got %s, which is no effect: %s", id, got.Body)
		}
	}
	if c.badSigns > 0 {
		c.wrong("", "%d webhooks had a wrong signature", c.badSigns)
	}
}
