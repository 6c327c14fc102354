package promises

import (
	"strings"
	"testing"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/e2e/proc"
)

const body = `{"to": "crm", "task": "t1", "run": 1, "outcome": "succeeded", "result": "hello req-2"}`

// sound is evidence of a run in which all went well: one task that was lost
// once, and then succeeded; one that failed, was reopened, and succeeded.
func sound() *Evidence {
	saw := func(id string, run int, epoch int64, result string) Sight {
		return Sight{ID: id, Run: run, Epoch: epoch, State: api.Succeeded, Sum: hash([]byte(result))}
	}
	return &Evidence{
		tasks: []taskRow{
			{ID: "t1", Tenant: "e2e", Kind: "saved", Key: "k1", State: api.Succeeded, Run: 1, Epoch: 3, Result: []byte(`"hello req-2"`)},
			{ID: "t2", Tenant: "e2e", Kind: "plain", Key: "k2", State: api.Succeeded, Run: 2, Epoch: 4, Result: []byte(`"hi req-4"`)},
			{ID: "t3", Tenant: "e2e", Kind: "careful", Key: "k3", State: api.Unknown, Run: 1, Epoch: 2},
			{ID: "t4", Tenant: "e2e", Kind: "posted", Key: "k4", State: api.Succeeded, Run: 1, Epoch: 5, Result: []byte(`"hey req-6"`)},
		},
		attempts: map[string][]attemptRow{
			"t1": {{Epoch: 1, Run: 1, Outcome: "lost"}, {Epoch: 3, Run: 1, Outcome: "succeeded", Phase: "done", RequestID: "req-2", Dispatched: true}},
			"t2": {{Epoch: 2, Run: 1, Outcome: "unknown", Status: 500, RequestID: "req-3"}, {Epoch: 4, Run: 2, Outcome: "succeeded", Phase: "done", RequestID: "req-4"}},
			"t3": {{Epoch: 1, Run: 1, Outcome: "lost"}, {Epoch: 2, Run: 1, Outcome: "lost", Dispatched: true}},
			"t4": {
				{Epoch: 1, Run: 1, Outcome: "lost", Dispatched: true, Job: "j", JobOver: true},
				{Epoch: 3, Run: 1, Outcome: "lost"},
				{Epoch: 5, Run: 1, Outcome: "succeeded", Phase: "done", RequestID: "req-6", Job: "j", JobOver: true},
			},
		},
		effects: map[string][]effectRow{
			"t1": {
				{ID: "e1", Name: "notify", Type: "webhook", Run: 1, Outcome: api.Succeeded, State: api.EffectDelivered, Destination: "crm", Body: []byte(body), Deliveries: 2, Delivered: 1},
				{ID: "e2", Name: "save", Type: "sql", Run: 1, Outcome: api.Succeeded, State: api.EffectDelivered},
			},
			"t2": {
				{ID: "e3", Name: "sorry", Type: "webhook", Run: 1, Outcome: api.Failed, State: api.EffectDelivered, Destination: "crm", Body: []byte("sorry"), Deliveries: 1, Delivered: 1},
				{ID: "e4", Name: "notify", Type: "webhook", Run: 2, Outcome: api.Succeeded, State: api.EffectDelivered, Destination: "crm", Body: []byte(`{"result": "hi req-4"}`), Deliveries: 1, Delivered: 1},
			},
			"t4": {{ID: "e6", Name: "notify", Type: "webhook", Run: 1, Outcome: api.Succeeded, State: api.EffectDelivered, Destination: "crm", Body: []byte(`{"result": "hey req-6"}`), Deliveries: 1, Delivered: 1}},
			"t3": {{ID: "e5", Name: "alarm", Type: "webhook", Run: 1, Outcome: api.Unknown, State: api.EffectDelivered, Destination: "crm", Body: []byte("alarm"), Deliveries: 1, Delivered: 1}},
		},
		saved: map[string][]savedRow{"t1": {{1, "hello req-2"}}},
		received: map[string]proc.Received{
			"e1": {Count: 2, Taken: 1, Body: []byte(body)}, "e3": {Count: 1, Taken: 1, Body: []byte("sorry")},
			"e4": {Count: 1, Taken: 1, Body: []byte(`{"result": "hi req-4"}`)}, "e5": {Count: 1, Taken: 1, Body: []byte("alarm")},
			"e6": {Count: 1, Taken: 1, Body: []byte(`{"result": "hey req-6"}`)},
		},
		calls: map[string]int{"t1": 2, "t2": 2, "t3": 1, "t4": 1},
		asked: map[string]string{"req-1": "t1", "req-2": "t1", "req-3": "t2", "req-4": "t2", "req-5": "t3", "req-6": "t4"},
		told: map[string]Told{
			"t1": {"k1", saw("t1", 1, 3, `"hello req-2"`)}, "t2": {"k2", Sight{ID: "t2", Run: 1, Epoch: 2, State: api.Failed}},
		},
	}
}

// TestCheckNotices: the check is silent on sound evidence, and names the one
// thing that is not sound.
func TestCheckNotices(t *testing.T) {
	t.Parallel()
	if found := sound().Check(); len(found) > 0 {
		t.Fatalf("sound evidence is not: %v", found)
	}
	for name, c := range map[string]struct {
		spoil func(*Evidence)
		want  string
	}{
		"a key with two rows": {func(e *Evidence) {
			e.tasks[2].Kind, e.tasks[2].Key = "saved", "k1"
		}, "two rows of one key"},
		"a lost task":        {func(e *Evidence) { e.tasks = e.tasks[1:] }, "the acknowledged task t1 is lost"},
		"a task under way":   {func(e *Evidence) { e.tasks[2].State = api.Running }, "neither final nor in review"},
		"another result":     {func(e *Evidence) { e.tasks[0].Result = []byte(`"hello req-1"`) }, "the result changed"},
		"a result of nobody": {func(e *Evidence) { e.tasks[1].Result = []byte(`"hi req-3"`) }, "is not the reply to the call req-4"},
		"a fenced worker":    {func(e *Evidence) { e.attempts["t1"][1].Epoch = 2 }, "a fenced worker wrote"},
		"two that succeeded": {func(e *Evidence) { e.attempts["t1"][0].Outcome = "succeeded" }, "2 succeeded attempts"},
		"a failure that succeeded": {func(e *Evidence) {
			e.tasks[2].State, e.attempts["t3"][1].Outcome = api.Failed, "succeeded"
		}, "the task is failed and has 1 succeeded attempts"},
		"a reply to another": {func(e *Evidence) { e.attempts["t2"][0].RequestID = "req-1" }, `a call of task "t1"`},
		"a call too many":    {func(e *Evidence) { e.calls["t1"] = 3 }, "3 model calls, the ledger says 1 to 2"},
		"a call too few":     {func(e *Evidence) { e.calls["t2"] = 1 }, "1 model calls, the ledger says 2 to 2"},
		"a call never noted": {func(e *Evidence) { e.calls["t3"] = 2 }, "2 model calls, the ledger says 0 to 1"},
		"a job paid twice":   {func(e *Evidence) { e.calls["t4"] = 2 }, "2 model calls, the ledger says 1 to 1"},
		"a job given up": {func(e *Evidence) {
			e.attempts["t4"][0].JobOver, e.attempts["t4"][2].Job, e.calls["t4"] = false, "k", 2
		}, "2 model calls, the ledger says 1 to 1"},
		"an open attempt":     {func(e *Evidence) { e.attempts["t1"][0].Open = true }, "was never closed"},
		"no effect":           {func(e *Evidence) { e.effects["t3"] = nil }, "not those of the outcomes"},
		"an effect of no run": {func(e *Evidence) { e.effects["t2"][0].Run = 2 }, "not those of the outcomes"},
		"no alarm of a run": {func(e *Evidence) {
			e.tasks[2].Run, e.effects["t3"] = 2, nil
		}, "run 1 unknown: alarm"},
		"an effect on the way":   {func(e *Evidence) { e.effects["t1"][0].State = api.EffectWaiting }, "e1 notify is waiting"},
		"an effect never taken":  {func(e *Evidence) { delete(e.received, "e5") }, "the receiver never took it"},
		"an effect from nowhere": {func(e *Evidence) { e.received["e9"] = proc.Received{Count: 1} }, "which is no effect"},
		"another body":           {func(e *Evidence) { r := e.received["e1"]; r.Differ = 1; e.received["e1"] = r }, "1 others"},
		"a delivery never noted": {func(e *Evidence) { e.effects["t1"][0].Deliveries = 1 }, "received 2 times, the ledger has 1"},
		"a delivery without end": {func(e *Evidence) { e.effects["t1"][0].Open = 1 }, "a delivery that was never closed"},
		"arrived twice":          {func(e *Evidence) { e.effects["t1"][0].Delivered = 2 }, "after 2 deliveries that arrived"},
		"a harmful repeat":       {func(e *Evidence) { e.effects["t1"][0].Destination = "once" }, "a repeat does harm"},
		"another result told":    {func(e *Evidence) { e.tasks[1].Result = []byte(`"ho req-4"`) }, "another result than the task's"},
		"no row of sql":          {func(e *Evidence) { delete(e.saved, "t1") }, "rows of the sql effect"},
		"two rows of sql":        {func(e *Evidence) { e.saved["t1"] = append(e.saved["t1"], e.saved["t1"][0]) }, "rows of the sql effect"},
		"a false signature":      {func(e *Evidence) { e.badSigns = 1 }, "wrong signature"},
	} {
		e := sound()
		c.spoil(e)
		said := ""
		for _, m := range e.Check() {
			said += m.Key + ": " + m.What + "\n"
		}
		if !strings.Contains(said, c.want) {
			t.Errorf("%s: got %q, want %q in it", name, said, c.want)
		}
	}
}

// TestWrongOrder: what an answer may not say after another one.
func TestWrongOrder(t *testing.T) {
	t.Parallel()
	at := func(run int, epoch int64, state api.State, sum string) Sight {
		return Sight{ID: "t", Run: run, Epoch: epoch, State: state, Sum: sum}
	}
	for name, c := range map[string]struct {
		before, now Sight
		want        string
	}{
		"runs, waits again":       {at(1, 2, api.Running, ""), at(1, 2, api.Pending, ""), ""},
		"taken by another":        {at(1, 2, api.Running, ""), at(1, 4, api.Running, ""), ""},
		"reopened":                {at(1, 2, api.Failed, ""), at(2, 2, api.Pending, ""), ""},
		"cancelled in review":     {at(1, 2, api.Unknown, ""), at(1, 3, api.Cancelled, ""), ""},
		"the same":                {at(1, 2, api.Succeeded, "a"), at(1, 2, api.Succeeded, "a"), ""},
		"the epoch goes back":     {at(1, 2, api.Running, ""), at(1, 1, api.Running, ""), "epoch"},
		"the run goes back":       {at(2, 2, api.Running, ""), at(1, 2, api.Failed, ""), "run went back"},
		"runs after success":      {at(1, 2, api.Succeeded, "a"), at(1, 2, api.Running, ""), "changed its state"},
		"runs again":              {at(1, 2, api.Succeeded, "a"), at(2, 2, api.Pending, ""), "runs again"},
		"another result":          {at(1, 2, api.Succeeded, "a"), at(1, 2, api.Succeeded, "b"), "result changed"},
		"another epoch":           {at(1, 2, api.Failed, ""), at(1, 3, api.Failed, ""), "worked on"},
		"another task of the key": {at(1, 2, api.Failed, ""), Sight{ID: "u", Run: 1, Epoch: 2, State: api.Failed}, "another task"},
	} {
		if got := Wrong(c.before, c.now); (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
