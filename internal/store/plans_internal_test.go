package store

import (
	"context"
	"strings"
	"testing"

	"github.com/onefold-dev/onefold/internal/pg/pgtest"
)

// What closes one attempt finds it by its key. Where the table was counted while
// no attempt was open, the index of open ones looks empty, and it holds a dead
// entry for each attempt closed since.
func TestCloseAttemptPlan(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	conn, err := pgtest.New(t).Pool(t).Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	for _, sql := range []string{
		`SET session_replication_role = replica`, // no tasks are needed
		`SET plan_cache_mode = force_generic_plan`,
		`ALTER TABLE onefold.attempts SET (autovacuum_enabled = false)`,
		`INSERT INTO onefold.attempts (task_id, epoch, run, number, incarnation, token, provider, config_hash)
SELECT gen_random_uuid(), 1, 1, 1, gen_random_uuid(), gen_random_uuid(), 'p', 'h' FROM generate_series(1, 2000)`,
		`UPDATE onefold.attempts SET closed_at = now(), outcome = 'succeeded'`,
		`VACUUM ANALYZE onefold.attempts`,
		`PREPARE closing AS ` + closeAttempt,
	} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
	rows, err := conn.Query(ctx, `EXPLAIN EXECUTE closing (`+strings.Repeat("NULL, ", strings.Count(closeAttempt, "$")-countRepeats(closeAttempt)-1)+`NULL)`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var plan strings.Builder
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			t.Fatal(err)
		}
		plan.WriteString(line + "\n")
	}
	if err := rows.Err(); err != nil || !strings.Contains(plan.String(), "attempts_pkey") {
		t.Errorf("got the plan\n%s%v; want one by the key", &plan, err)
	}
}

// countRepeats is how many parameters of a statement stand there a further time.
func countRepeats(sql string) (n int) {
	seen := map[string]bool{}
	for _, part := range strings.Split(sql, "$")[1:] {
		number := part[:len(part)-len(strings.TrimLeft(part, "0123456789"))]
		if seen[number] {
			n++
		}
		seen[number] = true
	}
	return n
}
