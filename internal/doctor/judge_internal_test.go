package doctor

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/pg/pgtest"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/migrations"
)

// Each judgement, once as it should be and once as it should not.
func TestJudgements(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	later := now.Add(time.Hour)
	sound := store.Server{Version: "15.2", Number: 150002, Encoding: "UTF8", MostConnections: 100, Connections: 10}
	bent := func(f func(*store.Server)) []Finding { s := sound; f(&s); return judgeServer(s) }
	one := func(f Finding) []Finding { return []Finding{f} }
	all := []store.Index{{Table: "tasks", Name: "a", Valid: true}}
	for _, name := range promised {
		all = append(all, store.Index{Name: name, Valid: true, Unique: true})
	}
	for name, c := range map[string]struct {
		got  []Finding
		want Level
	}{
		"server":             {judgeServer(sound), OK},
		"old server":         {bent(func(s *store.Server) { s.Number = 140000 }), Fail},
		"standby":            {bent(func(s *store.Server) { s.Standby = true }), Fail},
		"read-only":          {bent(func(s *store.Server) { s.ReadOnly = true }), Fail},
		"latin":              {bent(func(s *store.Server) { s.Encoding = "LATIN1" }), Fail},
		"no connections":     {bent(func(s *store.Server) { s.Connections = 90 }), Warn},
		"clock":              {one(judgeClock(now, now, now.Add(time.Second))), OK},
		"slow answer":        {one(judgeClock(now, now.Add(-5*time.Second), now.Add(5*time.Second))), OK},
		"clock ahead":        {one(judgeClock(now, now.Add(3*time.Second), now.Add(3*time.Second))), Warn},
		"clock far behind":   {one(judgeClock(now, now.Add(-2*time.Minute), now.Add(-2*time.Minute))), Fail},
		"settings":           {judgeSettings(map[string]string{"fsync": "on", "autovacuum": "on", "synchronous_standby_names": "x"}), OK},
		"no standby named":   {judgeSettings(map[string]string{"synchronous_standby_names": ""}), Note},
		"fsync off":          {judgeSettings(map[string]string{"fsync": "off"}), Fail},
		"commit local":       {judgeSettings(map[string]string{"synchronous_commit": "local"}), Fail},
		"indexes":            {judgeIndexes(all, []string{"a"}), OK},
		"index missing":      {judgeIndexes(all, []string{"a", "b"}), Fail},
		"promise missing":    {judgeIndexes(all[:2], nil), Fail},
		"index invalid":      {judgeIndexes(append([]store.Index{{Name: "z"}}, all...), nil), Fail},
		"vacuum":             {judgeVacuum([]store.TableRows{{Table: "t", Dead: 20_000, Live: 30_000}}, store.Health{}, 0), OK},
		"dead rows":          {judgeVacuum([]store.TableRows{{Table: "t", Dead: 20_000, Live: 10_000}}, store.Health{}, 0), Warn},
		"open transaction":   {judgeVacuum(nil, store.Health{XminFor: time.Hour}, 0), Warn},
		"stale slot":         {judgeVacuum(nil, store.Health{XminAge: 5_000_000}, 0), Warn},
		"old rows":           {judgeVacuum(nil, store.Health{}, 1_100_000_000), Warn},
		"oldest rows":        {judgeVacuum(nil, store.Health{}, 1_700_000_000), Fail},
		"versions":           {one(judgeVersions(map[string]int{"v1": 2}, "v1")), OK},
		"another version":    {one(judgeVersions(map[string]int{"v1": 2}, "v2")), Note},
		"two versions":       {one(judgeVersions(map[string]int{"v1": 2, "v2": 1}, "v2")), Warn},
		"no worker":          {one(judgeVersions(nil, "v2")), Warn},
		"gates":              {judgeGates([]store.Gate{{State: api.GateOpen}}, now), OK},
		"cooling":            {judgeGates([]store.Gate{{State: api.GateCooling, Until: &later, Since: now}}, now), Note},
		"has cooled":         {judgeGates([]store.Gate{{State: api.GateCooling, Until: &now, Since: now}}, later), OK},
		"held":               {judgeGates([]store.Gate{{State: api.GateHeld, Since: now}}, later), Warn},
		"needs attention":    {judgeGates([]store.Gate{{State: api.GateOpen, NeedsAttention: true}}, now), Warn},
		"review empty":       {one(judgeReview(nil, false)), OK},
		"review of today":    {one(judgeReview([]store.ReviewCount{{Reason: api.ReviewUnknown, Age: api.AgeDay, Count: 3}}, false)), OK},
		"review of old":      {one(judgeReview([]store.ReviewCount{{Reason: api.ReviewUnknown, Age: api.AgeOlder, Count: 3}}, true)), Warn},
		"left review again":  {one(judgeReview([]store.ReviewCount{{Age: api.AgeOlder, Count: 3}}, false)), OK},
		"built-in kinds":     {ran(Configuration, Env{Config: &config.Config{}}), OK},
		"wrong onefold.yaml": {ran(Configuration, Env{ConfigErr: config.Errors{{File: "f", Message: "m"}}}), Fail},
	} {
		if got := Worst(c.got); got != c.want {
			t.Errorf("%s: got %s, want %s: %+v", name, got, c.want, c.got)
		}
		for _, f := range c.got {
			if f.Text == "" || f.Subject == "" || f.Level == Warn && f.Fix == "" {
				t.Errorf("%s: a finding says too little: %+v", name, f)
			}
		}
	}
}

func ran(f func(context.Context, Env) ([]Finding, error), e Env) []Finding {
	found, _ := f(context.Background(), e)
	return found
}

// A migrated database is in order, and a second clock, an index too few, or a
// schema of another age is found on the real thing.
func TestOnDatabase(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t).Pool(t)
	e := Env{DB: pool, Config: &config.Config{}}
	level := func(f func(context.Context, Env) ([]Finding, error)) Level {
		t.Helper()
		found, err := f(t.Context(), e)
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range found {
			t.Logf("%s %s: %s", one.Level, one.Subject, one.Text)
		}
		return Worst(found)
	}
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	for name, f := range map[string]func(context.Context, Env) ([]Finding, error){
		"schema": Schema, "clock": Clock, "indexes": Indexes, "gates": Gates, "review": Review,
	} {
		if got := level(f); got != OK {
			t.Errorf("%s: got %s, want ok", name, got)
		}
	}
	e.Now = func() time.Time { return time.Now().Add(time.Hour) }
	if got := level(Clock); got != Fail {
		t.Errorf("a clock an hour ahead: got %s", got)
	}
	exec(`DROP INDEX onefold.tasks_run_at`)
	if got := level(Indexes); got != Fail {
		t.Errorf("without an index: got %s", got)
	}
	exec(`INSERT INTO onefold.goose_version (version_id, is_applied) VALUES ($1, true)`, migrations.Latest()+1)
	if got := level(Schema); got != Note {
		t.Errorf("a newer schema: got %s", got)
	}
	exec(`DELETE FROM onefold.goose_version WHERE version_id >= $1`, migrations.Latest())
	if got := level(Schema); got != Fail {
		t.Errorf("an older schema: got %s", got)
	}
	exec(`DROP TABLE onefold.gates`)
	found := Run(t.Context(), e, []Check{{Name: "gates", Run: Gates}})
	if len(found) != 1 || found[0].Level != Note || found[0].Fix == "" {
		t.Errorf("a table that this schema lacks: got %+v", found)
	}
}

// The names taken from the migrations are those of the database.
func TestIndexNames(t *testing.T) {
	t.Parallel()
	want, err := indexNames(migrations.Files())
	if err != nil || len(want) < 10 {
		t.Fatalf("got %d names, %v", len(want), err)
	}
	have, err := store.Indexes(t.Context(), pgtest.New(t).Pool(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range judgeIndexes(have, want) {
		if f.Level != OK {
			t.Errorf("%s: %s", f.Subject, f.Text)
		}
	}
}

// A server that takes connections and says nothing is one finding; nothing hangs.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
		}
	}()
	pool, err := pgxpool.New(t.Context(), "postgres://u:p@"+l.Addr().String()+"/d?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { go pool.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	began := time.Now()
	found := Run(ctx, Env{DB: pool, Config: &config.Config{}}, Checks)
	if Worst(found) != Fail || len(found) != len(Checks) {
		t.Errorf("got %+v", found)
	}
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("it took %s", took)
	}
}
