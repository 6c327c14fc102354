package boot

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/pg/pgtest"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
)

// Through a pooler no session setting is sent and no statement is prepared; the
// limits must come from the role.
func TestPooled(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	c := configFor(withParams(db.URL(), "&connect_timeout=7")) // any other URL of the same database
	c.DirectURL = db.URL()
	_, err := Open(context.Background(), c)
	if err == nil {
		t.Fatal("a role without limits was accepted")
	}
	for _, s := range settings(DefaultLease) {
		if s.wish || s.name == "default_transaction_isolation" || strings.HasPrefix(s.name, "tcp_") {
			continue // nothing depends on it; the server's defaults will do, or do not matter on its socket; see TestWrong
		}
		if !strings.Contains(err.Error(), s.name+" is ") {
			t.Errorf("got %v, want %s refused", err, s.name)
		}
	}
	if want := "onefold migrate --runtime-role postgres"; !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q in it", err, want)
	}
	c.DatabaseURL = db.Runtime(t, Settings(DefaultLease))
	a := open(t, c)
	var prepared int
	tryStatements(t, a.Pool, a.Kinds.Config().Kinds["llm.chat"].Hash())
	err = pgx.BeginTxFunc(context.Background(), a.Pool, store.ReadCommitted, func(tx pgx.Tx) error {
		return tx.QueryRow(context.Background(), "SELECT count(*) FROM pg_prepared_statements").Scan(&prepared)
	})
	if err != nil || prepared != 0 {
		t.Errorf("%d statements are prepared, %v, want none", prepared, err)
	}
}

// What holds for one URL must hold for the other, and both must lead to one place.
func TestBothURLs(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	runtime := db.Runtime(t, Settings(DefaultLease))
	for name, c := range map[string]struct {
		direct string
		want   string // in the error
	}{
		"a limit switched off":   {withParams(db.URL(), "&lock_timeout=0"), "past the pooler: lock_timeout is off"},
		"durability off":         {withParams(db.URL(), "&synchronous_commit=off"), "past the pooler: synchronous_commit is off"},
		"another isolation":      {withParams(db.URL(), "&default_transaction_isolation=serializable"), `is "serializable", "read committed" is needed`},
		"another database":       {pgtest.New(t).URL(), "leads to another database"},
		"nobody there":           {"postgres://127.0.0.1:1/x", "past the pooler: "},
		"fewer limits than ours": {withParams(db.URL(), "&statement_timeout=3600000"), "statement_timeout is 1h0m0s, at most 10m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := configFor(runtime)
			cfg.DirectURL = c.direct
			if _, err := Open(context.Background(), cfg); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q in it", err, c.want)
			}
		})
	}
}

// tryStatements runs statements whose parameters are of every sort we use, for
// without preparing nobody asks the server for their types.
func tryStatements(t *testing.T, pool *pgxpool.Pool, hash string) {
	t.Helper()
	ctx := context.Background()
	run := time.Now().Add(time.Hour)
	parent := task.NewID()
	n := &store.New{
		ID: task.NewID(), Slot: store.Slot{Tenant: "a", Kind: "llm.chat", Key: "k"}, Dedupe: api.DedupeKey, Provider: "openai", Queue: "p-openai",
		ConfigHash: hash, DeadlineAfter: time.Hour, Input: []byte("{}"), FingerprintV: 1, RunAt: &run, ParentID: &parent, TraceID: "t", Metadata: []byte(`{"a":"b"}`),
	}
	won, err := store.InsertTasks(ctx, pool, []*store.New{n, {
		ID: task.NewID(), Slot: store.Slot{Tenant: "a", Kind: "llm.chat", Key: "k2"}, Dedupe: api.DedupeKey, Provider: "openai", Queue: "p-openai",
		ConfigHash: hash, DeadlineAfter: time.Hour, Input: []byte("{}"), FingerprintV: 1,
	}})
	if err != nil || len(won) != 2 {
		t.Fatalf("insert: got %v, %v", won, err)
	}
	rows, err := store.TasksByID(ctx, pool, []task.ID{n.ID})
	if err != nil || len(rows) != 1 || rows[0].ParentID == nil {
		t.Errorf("read by id: got %v, %v", rows, err)
	}
	if _, err := store.TasksBySlot(ctx, pool, []store.Slot{n.Slot}); err != nil {
		t.Error(err)
	}
	if _, err := store.TasksWaited(ctx, pool, []task.ID{n.ID}); err != nil {
		t.Error(err)
	}
	f := store.TaskFilter{
		Tenant: "a", States: []api.State{api.Pending}, Kind: "llm.chat", Key: "k", TraceID: "t", Metadata: map[string]string{"a": "b"},
		CreatedBefore: &run, Before: nil, InputHash: make([]byte, 32),
	}
	page, _, err := store.Tasks(ctx, pool, f, 10)
	if err != nil || len(page) != 1 {
		t.Errorf("list: got %v, %v", page, err)
	}
	if _, err := store.TaskLatency(ctx, pool, "a", "llm.chat"); err != nil {
		t.Error(err)
	}
	if _, _, err := store.QueuePlace(ctx, pool, rows[0]); err != nil {
		t.Error(err)
	}
	if err := store.NotifySettled(ctx, pool, []task.ID{n.ID}); err != nil {
		t.Error(err)
	}
	if _, err := store.TombstoneOf(ctx, pool, "a", n.ID); err != nil {
		t.Error(err)
	}
}

func TestWrong(t *testing.T) {
	t.Parallel()
	want := map[string]setting{}
	for _, s := range settings(DefaultLease) {
		want[s.name] = s
		if wrong := s.wrong(s.value, true, true); wrong != "" {
			t.Errorf("%s: our own value %s", s.name, wrong)
		}
	}
	for _, c := range []struct {
		name, have string
		tcp, linux bool
		want       string
	}{
		{"tcp_user_timeout", "0", true, true, "is off"},
		{"tcp_user_timeout", "0", true, false, ""},
		{"tcp_user_timeout", "0", false, true, ""},
		{"tcp_user_timeout", "900000", true, true, "is 15m0s"},
		{"tcp_keepalives_idle", "7200", true, true, "is 2h0m0s"},
		{"tcp_keepalives_idle", "7200", true, false, "is 2h0m0s"},
		{"tcp_keepalives_idle", "0", false, true, ""},
		{"tcp_keepalives_interval", "75", true, true, ""},
		{"tcp_keepalives_count", "0", true, true, "above 0"},
		{"tcp_keepalives_count", "9", true, true, ""},
		{"idle_in_transaction_session_timeout", "5001", true, true, "at most 5s"},
		{"lock_timeout", "", true, true, "is off"},
		{"default_transaction_isolation", "repeatable read", true, true, "read committed"},
		{"enable_seqscan", "on", true, true, ""},
	} {
		if got := want[c.name].wrong(c.have, c.tcp, c.linux); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s = %q: got %q, want %q", c.name, c.have, got, c.want)
		}
	}
}

// A connection keeps the plans it makes while a table is small; they must not be
// ones that read all of it when it has grown.
func TestPlansForSmallTables(t *testing.T) {
	t.Parallel()
	a := open(t, configFor(pgtest.New(t).URL()))
	var scans int
	err := pgx.BeginTxFunc(context.Background(), a.Pool, store.ReadCommitted, func(tx pgx.Tx) error {
		for range 10 { // Postgres keeps a plan from the sixth time on
			if _, err := store.TasksBySlot(context.Background(), tx, []store.Slot{{Tenant: "a", Kind: "k", Key: "1"}}); err != nil {
				return err
			}
			if _, err := store.LockTasks(context.Background(), tx, []task.ID{task.NewID()}, false); err != nil {
				return err
			}
		}
		return tx.QueryRow(context.Background(), "SELECT coalesce(sum(seq_scan), 0) FROM pg_stat_xact_user_tables WHERE relname = 'tasks'").Scan(&scans)
	})
	if err != nil || scans != 0 {
		t.Errorf("the table of tasks was read as a whole %d times, %v, want never", scans, err)
	}
}
