package doctor_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/internal/doctor"
)

// What the spans of duplicates mean for the retention, in words.
func TestRetention(t *testing.T) {
	t.Parallel()
	const span = `INSERT INTO onefold.duplicate_spans (day, tenant, kind, longest) VALUES (current_date, 'a', 'k', $1::text::interval)`
	for name, c := range map[string]struct {
		span string
		late bool
		want []string
	}{
		"none":                {want: []string{"note kind k: no duplicates in 30 days"}},
		"short":               {span: "90 min", want: []string{"ok kind k: duplicates came up to 2h after the first submit in 30 days, and keys are kept for 720h"}},
		"beyond what is said": {span: "40 h", want: []string{"warn kind k: duplicates came up to 40h after the first submit, and retention.client_schedule says 24h; set client_schedule to 40h, so that the check at start reckons with it"}},
		"close to the end":    {span: "20 days", want: []string{"warn kind k: duplicates came up to 480h after the first submit, and keys are kept for 720h; keep tasks for 960h at least: one that comes after its key was forgotten is a second task"}},
		"too late":            {late: true, want: []string{"warn kind k: 1 keys were submitted again after they had been purged, and became second tasks; raise the retention unless they were new intents under old keys; then make the keys differ"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			exec := func(sql string, args ...any) {
				t.Helper()
				if _, err := b.pool.Exec(t.Context(), sql, args...); err != nil {
					t.Fatal(err)
				}
			}
			if c.span != "" {
				exec(span, c.span)
			}
			if c.late {
				exec(`INSERT INTO onefold.tombstones (task_id, tenant, kind, key, state, created_at, finished_at, purged_at)
				VALUES (gen_random_uuid(), 'a', 'k', 'x', 'succeeded', now() - interval '40 d', now() - interval '39 d', now() - interval '9 d'),
				       (gen_random_uuid(), 'a', 'k', 'y', 'succeeded', now() - interval '40 d', now() - interval '39 d', now() - interval '9 d')`)
			}
			var got []string
			for _, f := range doctor.Run(t.Context(), doctor.Env{DB: b.pool, Config: b.cfg}, []doctor.Check{{Name: "retention", Run: doctor.Retention}}) {
				line := string(f.Level) + " " + f.Subject + ": " + f.Text
				if f.Fix != "" {
					line += "; " + f.Fix
				}
				got = append(got, line)
			}
			if diff := cmp.Diff(got, c.want); diff != "" {
				t.Errorf("-got +want:\n%s", diff)
			}
		})
	}
}
