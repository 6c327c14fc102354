package breakage

import (
	"context"
	"fmt"
	"strings"

	"github.com/onefold-dev/onefold/e2e/promises"
)

// Each query gives one line of text a row about the task with key $1.
var storyQueries = []struct{ title, sql string }{
	{"the task", `SELECT (to_jsonb(t) - 'input' - 'result' - 'fingerprint' - 'input_hash')::text || ' result: ' ||
       coalesce(convert_from(t.result, 'UTF8'), '')
FROM onefold.tasks AS t WHERE key = $1`},
	{"attempts", `SELECT (jsonb_strip_nulls(to_jsonb(a) - 'reply' - 'config_hash' - 'task_id'))::text
FROM onefold.attempts AS a JOIN onefold.tasks AS t ON t.id = a.task_id WHERE t.key = $1 ORDER BY a.epoch`},
	{"effects", `SELECT (jsonb_strip_nulls(to_jsonb(e) - 'body' - 'headers' - 'task_id'))::text || ' body: ' || coalesce(convert_from(e.body, 'UTF8'), '')
FROM onefold.effects AS e JOIN onefold.tasks AS t ON t.id = e.task_id WHERE t.key = $1 ORDER BY e.id`},
	{"deliveries", `SELECT (jsonb_strip_nulls(to_jsonb(d)))::text
FROM onefold.deliveries AS d JOIN onefold.effects AS e ON e.id = d.effect_id JOIN onefold.tasks AS t ON t.id = e.task_id
WHERE t.key = $1 ORDER BY d.effect_id, d.epoch`},
	{"rows of the sql effect", `SELECT to_jsonb(s)::text FROM public.saved AS s JOIN onefold.tasks AS t ON t.id = s.task_id WHERE t.key = $1`},
	{"its owners", `SELECT to_jsonb(w)::text FROM onefold.workers AS w
WHERE incarnation IN (SELECT a.incarnation FROM onefold.attempts AS a JOIN onefold.tasks AS t ON t.id = a.task_id WHERE t.key = $1)
ORDER BY started_at`},
}

// story is everything that is known about a key: the rows, what callers were
// told, the model's calls, the processes' log lines, and what was broken when.
func (r *run) story(key string) string {
	var b strings.Builder
	part := func(title string, lines []string) {
		fmt.Fprintf(&b, "\n-- %s", title)
		for _, l := range lines {
			b.WriteString("\n   " + l)
		}
	}
	if key != "" {
		for _, q := range storyQueries {
			part(q.title, r.lines(q.sql, key))
		}
		r.book.mu.Lock()
		if p := r.book.pages[key]; p != nil {
			part(fmt.Sprintf("told to callers (kind %s, first %d)", p.kind, pageLines), p.lines)
			r.book.mu.Unlock()
			part("calls at the model", r.calls(p.last.ID))
			part("log lines", r.logLines(p.last.ID))
		} else {
			r.book.mu.Unlock()
		}
	}
	part("what was broken", r.acts.all())
	return b.String()
}

func (r *run) lines(sql, key string) []string {
	rows, err := r.w.Pool.Query(context.Background(), sql, key)
	if err != nil {
		return []string{err.Error()}
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			return append(out, err.Error())
		}
		out = append(out, line)
	}
	return out
}

func (r *run) calls(id string) (out []string) {
	for _, e := range r.w.Model.Log(promises.MaxCalls) {
		if e.Task == id {
			out = append(out, fmt.Sprintf("%s run %s attempt %s: %s, client gone %t, at %s", e.RequestID, e.Run, e.Attempt, e.Outcome, e.Gone, e.At.UTC().Format("15:04:05.000")))
		}
	}
	return out
}

func (r *run) logLines(id string) (out []string) {
	for _, v := range append(append([]*victim(nil), r.apis...), r.workers...) {
		for l := range strings.Lines(v.Log()) {
			if strings.Contains(l, id) && !strings.Contains(l, `"msg":"request"`) {
				out = append(out, v.name+" "+strings.TrimSpace(l))
			}
		}
	}
	return out[:min(len(out), 40)]
}
