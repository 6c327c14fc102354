package store_test

import (
	"strconv"
	"testing"

	"github.com/onefold-dev/onefold/internal/pg/pgtest"
	"github.com/onefold-dev/onefold/internal/store"
)

// A connection that looked up slots while the table was empty does not go by the
// plan of then, which reads all tasks of the tenant for each slot.
func TestSlotsAfterGrowth(t *testing.T) {
	t.Parallel()
	conn, err := pgtest.New(t).Pool(t).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	exec := func(sql string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	var slots []store.Slot
	for i := range 32 {
		slots = append(slots, store.Slot{Tenant: "a", Kind: "k", Key: "new-" + strconv.Itoa(i)})
	}
	look := func() {
		t.Helper()
		if _, err := store.TasksBySlot(t.Context(), conn, slots); err != nil {
			t.Fatal(err)
		}
	}
	read := func() (n int64) {
		t.Helper()
		exec(`SELECT pg_stat_force_next_flush()`)
		err := conn.QueryRow(t.Context(), `SELECT sum(idx_tup_read + idx_tup_fetch)::bigint FROM pg_stat_user_indexes WHERE relname = 'tasks'`).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	exec(`SET enable_seqscan = off`)
	exec(`SET session_replication_role = replica`)
	exec(`ALTER TABLE onefold.tasks SET (autovacuum_enabled = false)`)
	for range 10 { // by then a kept plan is one for any parameters
		look()
	}
	exec(`
INSERT INTO onefold.tasks (id, tenant, kind, key, dedupe, provider, fingerprint, fingerprint_version, input_hash, deadline_after, deadline, input, config_hash)
SELECT gen_random_uuid(), 'a', 'k', 'old-' || i, 'key', 'p', sha256(''), 1, sha256(''), '1 h', now(), '1', 'h' FROM generate_series(1, 20000) AS i`)
	before := read()
	look()
	if n := read() - before; n > 1000 {
		t.Errorf("32 slots were looked up by reading %d rows", n)
	}
}
