package submit

import (
	"log/slog"
	"testing"

	"github.com/onefold-dev/onefold/internal/pg/pgtest"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
)

// What is gathered is counted whole or not at all: a flush that fails half way
// counts nothing, and the next counts it once.
func TestCountedOnce(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t).Pool(t)
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	count := func() (n int) {
		t.Helper()
		err := pool.QueryRow(t.Context(), `SELECT coalesce(sum(count), 0) + (SELECT count(*) FROM onefold.task_submits) FROM onefold.task_duplicates`).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	id := task.NewID()
	exec(`INSERT INTO onefold.kind_configs (hash, kind, body) VALUES ('h', 'k', '')`)
	exec(`
INSERT INTO onefold.tasks (id, tenant, kind, key, dedupe, provider, fingerprint, fingerprint_version, input_hash, deadline_after, deadline, input, config_hash)
VALUES ($1, 'a', 'k', 'x', 'key', 'p', sha256(''), 1, sha256(''), '1 h', now(), '1', 'h')`, id)
	exec(`ALTER TABLE onefold.duplicate_spans RENAME TO away`)
	c := &counter{db: pool, log: slog.New(slog.DiscardHandler), counts: map[task.ID]*store.Tally{}, kept: map[task.ID][2]int8{}}
	c.add(id, whatFolded, &Request{})
	c.add(id, whatFolded, &Request{})
	c.flush()
	if n := count(); n != 0 {
		t.Errorf("a flush that failed counted %d", n)
	}
	exec(`ALTER TABLE onefold.away RENAME TO duplicate_spans`)
	c.flush()
	c.flush()
	if n := count(); n != 4 {
		t.Errorf("got %d counted and kept, want 2 and 2", n)
	}
	for range 100 {
		c.add(id, whatFolded, &Request{})
	}
	if len(c.firsts) != store.FirstSubmits-2 {
		t.Errorf("%d more are offered to be kept, want those that are missing of %d", len(c.firsts), store.FirstSubmits)
	}
	c.flush()
	if n := count(); n != 102+store.FirstSubmits {
		t.Errorf("got %d counted and kept, want 102 and %d", n, store.FirstSubmits)
	}
}
