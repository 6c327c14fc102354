package promises

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/e2e/proc"
)

// MaxCalls is how many calls the model server's log keeps.
const MaxCalls = 20_000

// Evidence is all that the check judges by: nothing in it changes any more.
type Evidence struct {
	tasks    []taskRow
	attempts map[string][]attemptRow // by task
	effects  map[string][]effectRow  // by task
	saved    map[string][]savedRow   // by task
	received map[string]proc.Received
	badSigns int
	calls    map[string]int    // model calls by task
	asked    map[string]string // request id of a model call -> its task
	told     map[string]Told
}

type taskRow struct {
	ID, Tenant, Kind, Key string
	State                 api.State
	Run                   int
	Epoch                 int64
	Permanent             bool
	Result                []byte
}

type attemptRow struct {
	Epoch      int64
	Run        int
	Outcome    string
	Phase      string
	Status     int
	RequestID  string
	Dispatched bool
	Late       bool
	Open       bool
	Result     string // what it brought too late
	Job        string // the background job it waited for
	JobOver    bool
}

type effectRow struct {
	ID, Name, Type string
	Run            int
	Outcome        api.State
	State          api.EffectState
	Destination    string
	Body           []byte
	Deliveries     int
	Delivered      int // deliveries that are recorded as having arrived
	Open           int // deliveries without an end
}

type savedRow struct {
	Run    int
	Result string
}

// Told is what callers were told last of the task of a key.
type Told struct {
	Key  string
	Last Sight
}

// Gather reads the evidence of a World whose work is done. told is by task.
func Gather(tb testing.TB, w *proc.World, told map[string]Told) *Evidence {
	tb.Helper()
	e := &Evidence{
		attempts: map[string][]attemptRow{}, effects: map[string][]effectRow{}, saved: map[string][]savedRow{},
		received: w.Receiver.Received(), badSigns: w.Receiver.Bad(), calls: w.Model.Calls().ByTask, asked: map[string]string{},
		told: told,
	}
	for _, c := range w.Model.Log(MaxCalls) {
		e.asked[c.RequestID] = c.Task
	}
	read(tb, w, `
SELECT id::text, tenant, kind, key, state, run, epoch, coalesce(error_permanent, false), result
FROM onefold.tasks ORDER BY id`, func(row pgx.CollectableRow) error {
		var t taskRow
		defer func() { e.tasks = append(e.tasks, t) }()
		return row.Scan(&t.ID, &t.Tenant, &t.Kind, &t.Key, &t.State, &t.Run, &t.Epoch, &t.Permanent, &t.Result)
	})
	read(tb, w, `
SELECT task_id::text, epoch, run, coalesce(outcome, ''), coalesce(phase, ''), coalesce(status, 0), coalesce(request_id, ''),
       dispatched_at IS NOT NULL, late_at IS NOT NULL, closed_at IS NULL,
       coalesce(provider_job, ''), job_over
FROM onefold.attempts ORDER BY task_id, epoch`, func(row pgx.CollectableRow) error {
		var id string
		var a attemptRow
		defer func() { e.attempts[id] = append(e.attempts[id], a) }()
		return row.Scan(&id, &a.Epoch, &a.Run, &a.Outcome, &a.Phase, &a.Status, &a.RequestID, &a.Dispatched, &a.Late, &a.Open,
			&a.Job, &a.JobOver)
	})
	read(tb, w, `
SELECT task_id::text, id::text, name, type, run, outcome, state, coalesce(destination, ''), coalesce(body, ''),
       (SELECT count(*) FROM onefold.deliveries AS d WHERE d.effect_id = e.id),
       (SELECT count(*) FROM onefold.deliveries AS d WHERE d.effect_id = e.id AND d.outcome = 'delivered'),
       (SELECT count(*) FROM onefold.deliveries AS d WHERE d.effect_id = e.id AND d.closed_at IS NULL)
FROM onefold.effects AS e ORDER BY task_id, run, name`, func(row pgx.CollectableRow) error {
		var id string
		var f effectRow
		defer func() { e.effects[id] = append(e.effects[id], f) }()
		return row.Scan(&id, &f.ID, &f.Name, &f.Type, &f.Run, &f.Outcome, &f.State, &f.Destination, &f.Body, &f.Deliveries,
			&f.Delivered, &f.Open)
	})
	read(tb, w, `SELECT task_id::text, run, result FROM public.saved`, func(row pgx.CollectableRow) error {
		var id string
		var s savedRow
		defer func() { e.saved[id] = append(e.saved[id], s) }()
		return row.Scan(&id, &s.Run, &s.Result)
	})
	return e
}

func read(tb testing.TB, w *proc.World, sql string, scan func(pgx.CollectableRow) error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	rows, err := w.Pool.Query(ctx, sql)
	if err != nil {
		tb.Fatalf("read the evidence: %v", err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			tb.Fatalf("read the evidence: %v", err)
		}
	}
	if err := rows.Err(); err != nil {
		tb.Fatalf("read the evidence: %v", err)
	}
}

// Summary says how much was there to be judged.
func (e *Evidence) Summary() string {
	states, outcomes := map[string]int{}, map[string]int{}
	reruns, late, deliveries, effects := 0, 0, 0, 0
	for _, t := range e.tasks {
		states[string(t.State)]++
		if t.Run > 1 {
			reruns++
		}
	}
	for _, all := range e.attempts {
		for _, a := range all {
			outcomes[a.Outcome]++
			if a.Late {
				late++
			}
		}
	}
	for _, all := range e.effects {
		for _, f := range all {
			effects++
			deliveries += f.Deliveries
		}
	}
	return fmt.Sprintf("%d tasks (%s), %d reopened; attempts: %s; %d replies too late; %d model calls; %d effects, %d deliveries",
		len(e.tasks), words(states), reruns, words(outcomes), late, len(e.asked), effects, deliveries)
}

func words(counts map[string]int) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		out = append(out, fmt.Sprintf("%d %s", counts[name], name))
	}
	return strings.Join(out, ", ")
}

// text is the text that a stored result of the kinds here is.
func text(result []byte) string {
	var s string
	if json.Unmarshal(result, &s) != nil {
		return "not a text: " + string(result)
	}
	return s
}
