package submit_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/job"
	"github.com/onefold-dev/onefold/internal/kinds"
	"github.com/onefold-dev/onefold/internal/outbox"
	"github.com/onefold-dev/onefold/internal/pg/pgtest"
	"github.com/onefold-dev/onefold/internal/submit"
)

const testConfig = `
providers:
  p: {type: fake, base_url: "http://127.0.0.1:1"}
kinds:
  k: {provider: p, max_runs: 2}
  o: {provider: p, dedupe: open}
  n: {provider: p, dedupe: none}
  w: {provider: p, dedupe: "window: 1h"}
  llm.chat: {provider: p}
`

type bundle struct {
	*submit.Service
	pool *pgxpool.Pool
}

// setup gives several services on one database, as several processes would have.
func setup(t *testing.T, n int) []bundle {
	t.Helper()
	db, cfg := pgtest.New(t), parse(t)
	out := make([]bundle, n)
	for i := range out {
		out[i] = serve(t, cfg, db.Pool(t))
	}
	return out
}

func parse(t *testing.T) *config.Config {
	t.Helper()
	cfg, err := config.Parse("test.yaml", []byte(testConfig), config.Opts{SkipSecrets: true})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// serve is one service on a pool of its own.
func serve(t *testing.T, cfg *config.Config, pool *pgxpool.Pool) bundle {
	t.Helper()
	book := kinds.New(cfg, config.Opts{SkipSecrets: true})
	if err := book.Store(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	notifier := job.NewNotifier(pool, log)
	s := submit.New(submit.Config{Pool: pool, Kinds: book, Outbox: outbox.New(outbox.Opts{Config: cfg}), Notifier: notifier, Log: log})
	t.Cleanup(func() {
		s.Close()
		notifier.Close()
	})
	return bundle{s, pool}
}

func request(kind, key, input string) submit.Request {
	return submit.Request{Tenant: "a", Key: key, KeySent: key != "", Body: []byte(fmt.Sprintf(`{"kind":%q,"input":%s}`, kind, input))}
}

func code(err error) api.Code {
	var e *api.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

func (b bundle) count(t *testing.T, sql string, args ...any) int {
	t.Helper()
	var n int
	if err := b.pool.QueryRow(context.Background(), sql, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestOneRowAKey(t *testing.T) {
	t.Parallel()
	b := setup(t, 3)
	const keys, each = 40, 30
	type got struct {
		id      string
		created bool
		err     error
	}
	var work []int
	for k := range keys {
		for range each {
			work = append(work, k)
		}
	}
	rand.Shuffle(len(work), func(i, j int) { work[i], work[j] = work[j], work[i] })
	all := make([]got, len(work))
	var wg sync.WaitGroup
	for i, k := range work {
		wg.Go(func() {
			input := fmt.Sprintf(`{"n":%d}`, k)
			if i%20 == 0 {
				input = `{"n":"changed"}`
			}
			a, err := b[i%3].Submit(context.Background(), request("k", fmt.Sprintf("key-%d", k), input))
			if err != nil {
				all[i] = got{err: err}
				return
			}
			all[i] = got{a.Row.ID.String(), a.Created, nil}
		})
	}
	wg.Wait()
	ids, created := map[int]map[string]bool{}, map[int]int{}
	for i, k := range work {
		switch {
		case all[i].err != nil && code(all[i].err) == api.CodeKeyReused:
		case all[i].err != nil:
			t.Errorf("key %d: %v", k, all[i].err)
		default:
			if ids[k] == nil {
				ids[k] = map[string]bool{}
			}
			ids[k][all[i].id] = true
			if all[i].created {
				created[k]++
			}
		}
	}
	for k := range keys {
		if len(ids[k]) > 1 || created[k] > 1 {
			t.Errorf("key %d: %d ids, created %d times", k, len(ids[k]), created[k])
		}
	}
	if got := b[0].count(t, `SELECT count(*) FROM onefold.tasks`); got != keys {
		t.Errorf("%d tasks for %d keys", got, keys)
	}
	if got := b[0].count(t, `SELECT count(*) FROM onefold.river_job j JOIN onefold.tasks t ON t.job_id = j.id AND (j.args->>'id')::uuid = t.id WHERE j.state = 'available'`); got != keys {
		t.Errorf("%d wake-ups for %d tasks", got, keys)
	}
}

func TestMismatchChangesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)[0]
	first, err := b.Submit(t.Context(), request("k", "x", `{"a":{"b":[1,2]},"c":1}`))
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.Submit(t.Context(), request("k", "x", `{"a":{"b":[1,3]},"c":1}`))
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.CodeKeyReused || !errors.Is(err, api.ErrKeyReused) {
		t.Fatalf("got %v, want key_reused", err)
	}
	if diff := cmp.Diff(e.Mismatch, []string{"input.a.b[1]"}); diff != "" {
		t.Error(diff)
	}
	again, err := b.Submit(t.Context(), request("k", "x", `{"c":1.0,"a":{"b":[1,20e-1]}}`))
	if err != nil || again.Created || again.Row.ID != first.Row.ID {
		t.Errorf("an equal payload in another spelling: %+v, %v", again, err)
	}
}

func TestDedupeModes(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)[0]
	ids := func(r submit.Request) string {
		t.Helper()
		a, err := b.Submit(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		return a.Row.ID.String()
	}
	first, second := ids(request("n", "", `1`)), ids(request("n", "", `1`))
	if first == second {
		t.Error("dedupe none folded two submits")
	}
	first, second = ids(request("n", "x", `1`)), ids(request("n", "x", `1`))
	if first == second {
		t.Error("dedupe none folded two submits under one key")
	}
	at := func(when string) submit.Request {
		r := request("w", "x", `1`)
		r.Body = []byte(`{"kind":"w","input":1,"occurred_at":"` + when + `"}`)
		return r
	}
	if ids(at("2026-01-01T10:00:00Z")) != ids(at("2026-01-01T10:59:59Z")) {
		t.Error("two events within a window did not fold")
	}
	if ids(at("2026-01-01T10:59:59Z")) == ids(at("2026-01-01T11:00:00Z")) {
		t.Error("two events of two windows folded")
	}
	if _, err := b.Submit(t.Context(), request("w", "y", `1`)); code(err) != api.CodeOccurredRequired {
		t.Errorf("a window without occurred_at: %v", err)
	}
	if _, err := b.Submit(t.Context(), request("k", "", `1`)); code(err) != api.CodeKeyMissing {
		t.Errorf("no key: %v", err)
	}
}

func TestExpiredKeyIsANewIntent(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)[0]
	first, err := b.Submit(t.Context(), request("k", "x", `1`))
	if err != nil {
		t.Fatal(err)
	}
	b.exec(t, `UPDATE onefold.tasks SET state = 'cancelled', finished_at = now() - interval '2 h', expires_at = now() - interval '1 h' WHERE id = $1`, first.Row.ID)
	second, err := b.Submit(t.Context(), request("k", "x", `2`))
	if err != nil || !second.Created || second.Row.ID == first.Row.ID {
		t.Fatalf("got %+v, %v; want a new task", second, err)
	}
	if got := b.count(t, `SELECT count(*) FROM onefold.tombstones WHERE task_id = $1`, first.Row.ID); got != 1 {
		t.Errorf("%d tombstones, want 1", got)
	}
}

func (b bundle) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	if _, err := b.pool.Exec(context.Background(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

func TestReopen(t *testing.T) {
	t.Parallel()
	b := setup(t, 2)
	first, err := b[0].Submit(t.Context(), request("k", "x", `1`))
	if err != nil {
		t.Fatal(err)
	}
	fail := func(permanent bool) {
		b[0].exec(t, `UPDATE onefold.tasks SET state = 'failed', error_code = 'attempts_exhausted', error_permanent = $2, finished_at = now(), expires_at = now() + interval '1 h' WHERE id = $1`, first.Row.ID, permanent)
	}
	fail(true)
	if a, err := b[0].Submit(t.Context(), request("k", "x", `1`)); err != nil || a.Reopened || a.Row.State != api.Failed {
		t.Fatalf("a permanent failure was reopened: %+v, %v", a, err)
	}
	fail(false)
	var wg sync.WaitGroup
	var mu sync.Mutex
	reopened := 0
	for i := range 20 {
		wg.Go(func() {
			a, err := b[i%2].Submit(context.Background(), request("k", "x", `1`))
			if err != nil || a.Row.ID != first.Row.ID || a.Row.State != api.Pending || a.Row.Run != 2 {
				t.Errorf("got %+v, %v", a.Row, err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if a.Reopened {
				reopened++
			}
		})
	}
	wg.Wait()
	if reopened != 1 {
		t.Errorf("reopened %d times", reopened)
	}
	fail(false)
	if a, err := b[0].Submit(t.Context(), request("k", "x", `1`)); err != nil || a.Reopened {
		t.Errorf("reopened beyond max_runs: %+v, %v", a, err)
	}
	if got := b[0].count(t, `SELECT count(*) FROM onefold.river_job`); got != 1 {
		t.Errorf("%d wake-ups, want 1: each new one takes the old one's place", got)
	}
}

func TestOpenKeyIsFreeOnceFinal(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)[0]
	first, err := b.Submit(t.Context(), request("o", "x", `1`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Cancel(t.Context(), submit.Act{Tenant: "a", ID: first.Row.ID, Actor: "t"}); err != nil {
		t.Fatal(err)
	}
	second, err := b.Submit(t.Context(), request("o", "x", `2`))
	if err != nil || !second.Created {
		t.Fatalf("the key of a final open task is not free: %+v, %v", second, err)
	}
	b.exec(t, `UPDATE onefold.tasks SET state = 'failed', error_code = 'deadline', error_permanent = false WHERE id = $1`, first.Row.ID)
	epoch := b.epoch(t, first.Row.ID.String())
	_, err = b.Retry(t.Context(), submit.Act{Tenant: "a", ID: first.Row.ID, Actor: "t", Epoch: &epoch})
	if code(err) != api.CodeSuperseded {
		t.Errorf("retry of an open task whose key is taken: %v", err)
	}
}

func (b bundle) epoch(t *testing.T, id string) int64 {
	t.Helper()
	var n int64
	if err := b.pool.QueryRow(context.Background(), `SELECT epoch FROM onefold.tasks WHERE id = $1::text::uuid`, id).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestCancelIsOfItsTenant(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)[0]
	a, err := b.Submit(t.Context(), request("k", "x", `1`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Cancel(t.Context(), submit.Act{Tenant: "b", ID: a.Row.ID, Actor: "t"}); code(err) != api.CodeNotFound {
		t.Errorf("another tenant's cancel: %v", err)
	}
	row, err := b.Cancel(t.Context(), submit.Act{Tenant: "a", ID: a.Row.ID, Actor: "t"})
	if err != nil || row.State != api.Cancelled {
		t.Fatalf("got %+v, %v", row, err)
	}
	if got := b.count(t, `SELECT count(*) FROM onefold.river_job`); got != 0 {
		t.Errorf("a cancelled task has %d wake-ups", got)
	}
	if row, err = b.Cancel(t.Context(), submit.Act{Tenant: "a", ID: a.Row.ID, Actor: "t"}); err != nil || row.State != api.Cancelled {
		t.Errorf("a second cancel: %+v, %v", row, err)
	}
}

func TestDuplicatesAreCounted(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)[0]
	for range 5 {
		if _, err := b.Submit(t.Context(), request("k", "x", `1`)); err != nil {
			t.Fatal(err)
		}
	}
	for deadline := time.Now().Add(10 * time.Second); ; {
		if b.count(t, `SELECT coalesce(sum(count), 0)::int FROM onefold.task_duplicates`) == 4 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the four duplicates were not counted")
		}
		<-time.After(20 * time.Millisecond)
	}
}

// A replay is answered by what is stored, also when its times have passed.
func TestReplayAfterTheDeadline(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)[0]
	r := request("k", "x", `1`)
	r.Body = []byte(`{"kind":"k","input":1,"deadline":"2020-01-01T00:00:00Z"}`)
	if _, err := b.Submit(t.Context(), r); code(err) != api.CodeInvalidField {
		t.Fatalf("a new task with a deadline that has passed: %v", err)
	}
	if got := b.count(t, `SELECT count(*) FROM onefold.tasks`); got != 0 {
		t.Fatalf("%d tasks stored", got)
	}
	first, err := b.Submit(t.Context(), request("k", "x", `1`))
	if err != nil {
		t.Fatal(err)
	}
	again, err := b.Submit(t.Context(), r)
	if err != nil || again.Created || again.Row.ID != first.Row.ID {
		t.Errorf("the replay: %+v, %v", again, err)
	}
	r.Body = []byte(`{"kind":"k","input":2,"deadline":"2020-01-01T00:00:00Z"}`)
	if _, err := b.Submit(t.Context(), r); code(err) != api.CodeKeyReused {
		t.Errorf("another payload: %v", err)
	}
}
