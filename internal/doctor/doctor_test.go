package doctor_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/doctor"
	"github.com/onefold-dev/onefold/internal/kinds"
	"github.com/onefold-dev/onefold/internal/pg/pgtest"
)

const file = `
providers:
  p: {type: fake, base_url: "http://127.0.0.1:1", timeouts: {first_byte: 10s, idle: 5s, total: 30s}}
kinds:
  k: {provider: p, output: text}
`

type bundle struct {
	t    *testing.T
	pool *pgxpool.Pool
	cfg  *config.Config
	task uuid.UUID
	n    int
}

func setup(t *testing.T) *bundle {
	t.Helper()
	pool := pgtest.New(t).Pool(t)
	cfg, err := config.Parse("test.yaml", []byte(file), config.Opts{SkipSecrets: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := kinds.New(cfg, config.Opts{SkipSecrets: true}).Store(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	b := &bundle{t: t, pool: pool, cfg: cfg, task: uuid.Must(uuid.NewV7())}
	_, err = pool.Exec(t.Context(), `
INSERT INTO onefold.tasks (id, tenant, kind, key, dedupe, provider, fingerprint, fingerprint_version, input_hash, deadline_after, deadline, input, config_hash)
VALUES ($1, 'a', 'k', 'x', 'key', 'p', sha256(''), 1, sha256(''), '1 h', now(), '1', $2)`, b.task, cfg.Kinds["k"].Hash())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// calls adds n calls to the ledger that took so long, under a provider's hash.
func (b *bundle) calls(n int, providerHash, outcome, code, phase string, firstByte, total time.Duration) {
	b.t.Helper()
	_, err := b.pool.Exec(b.t.Context(), `
INSERT INTO onefold.attempts (task_id, epoch, run, number, incarnation, token, provider, config_hash, provider_hash, closed_at, outcome, code, phase,
    asked_model, model, first_byte_ms, total_ms)
SELECT $1, $2 + i, 1, 1, gen_random_uuid(), gen_random_uuid(), 'p', $3, $4, now(), $5, nullif($6, ''), $7, 'm', 'm-2026', $8, $9
FROM generate_series(1, $10::int) AS i`, b.task, b.n, b.cfg.Kinds["k"].Hash(), providerHash, outcome, code, phase, firstByte.Milliseconds(), total.Milliseconds(), n)
	if err != nil {
		b.t.Fatal(err)
	}
	b.n += n
}

// What the timeouts cost, in words.
func TestTimeouts(t *testing.T) {
	t.Parallel()
	const none = "kind k, model m: "
	for name, c := range map[string]struct {
		calls func(b *bundle, hash string)
		want  []string
	}{
		"no calls": {func(*bundle, string) {}, []string{"note kind k: no calls since the change, not enough yet"}},
		"few calls": {func(b *bundle, hash string) {
			b.calls(40, hash, "succeeded", "", "done", time.Second, 3*time.Second)
			b.calls(2, hash, "unknown", "total_timeout", "first_token", time.Second, 30*time.Second)
		}, []string{"note " + none + "42 calls since the change, not enough yet: 100 are needed"}},
		"calls before the change": {func(b *bundle, _ string) {
			b.calls(500, "another", "succeeded", "", "done", time.Second, 3*time.Second)
		}, []string{"note kind k: no calls since the change, not enough yet"}},
		"as it should be": {func(b *bundle, hash string) {
			b.calls(100, hash, "succeeded", "", "done", time.Second, 3*time.Second)
			b.calls(100, hash, "succeeded", "", "done", 2*time.Second, 4*time.Second)
			b.calls(50, hash, "unknown", "bad_gateway", "headers", 0, time.Second)
		}, []string{"ok " + none + "first byte 1.5s/2s/2s of 10s, total 3.5s/4s/4s of 30s (p50/p95/p99 of 200 calls)"}},
		"total cuts": {func(b *bundle, hash string) {
			b.calls(279, hash, "succeeded", "", "done", time.Second, 12*time.Second)
			b.calls(21, hash, "unknown", "total_timeout", "first_token", time.Second, 30*time.Second)
		}, []string{"warn " + none + "your total timeout (30s) cut 7 % of calls that would have succeeded: 21 of 300 were still sending tokens; raise timeouts.total to 1m0s"}},
		"total ends silent calls": {func(b *bundle, hash string) {
			b.calls(190, hash, "succeeded", "", "done", time.Second, 12*time.Second)
			b.calls(10, hash, "unknown", "total_timeout", "written", 0, 30*time.Second)
		}, []string{"warn " + none + "your total timeout (30s) ended 5 % of calls: 10 of 200 had sent nothing yet, so that nobody knows whether they would have succeeded; raise timeouts.total to 1m0s, or stream"}},
		"first byte and idle": {func(b *bundle, hash string) {
			b.calls(180, hash, "succeeded", "", "done", 9*time.Second, 12*time.Second)
			b.calls(20, hash, "unknown", "first_byte_timeout", "headers", 0, 10*time.Second)
			b.calls(2, hash, "unknown", "idle_timeout", "first_token", 0, 10*time.Second)
		}, []string{
			"warn " + none + "your first-byte timeout (10s) ended 10 % of calls, and 99 % of the others had a first byte within 9s; raise timeouts.first_byte to 20s unless the provider hung",
			"warn " + none + "your idle timeout (5s) ended 1.1 % of calls in the middle of a reply; raise timeouts.idle if the model thinks that long between tokens",
		}},
		"close to the tail": {func(b *bundle, hash string) {
			b.calls(200, hash, "succeeded", "", "done", 500*time.Millisecond, 28*time.Second)
		}, []string{"warn " + none + "1 % of calls take 28s or longer, and your total timeout is 30s: it is about to cut calls that would have succeeded; raise timeouts.total to 56s"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			c.calls(b, b.cfg.Providers["p"].Hash())
			var got []string
			for _, f := range doctor.Run(t.Context(), doctor.Env{DB: b.pool, Config: b.cfg}, []doctor.Check{{Name: "timeouts", Run: doctor.Timeouts}}) {
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

// A check that cannot look says so, and the others look all the same.
func TestRun(t *testing.T) {
	t.Parallel()
	got := doctor.Run(t.Context(), doctor.Env{}, []doctor.Check{
		{Name: "one", Run: func(context.Context, doctor.Env) ([]doctor.Finding, error) { return nil, errors.New("no way") }},
		{Name: "two", Run: func(context.Context, doctor.Env) ([]doctor.Finding, error) {
			return []doctor.Finding{{Level: doctor.Warn, Subject: "s", Text: "t"}}, nil
		}},
	})
	want := []doctor.Finding{
		{Check: "one", Level: doctor.Fail, Subject: "the check itself", Text: "it could not look: no way"},
		{Check: "two", Level: doctor.Warn, Subject: "s", Text: "t"},
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("-got +want:\n%s", diff)
	}
	if w := doctor.Worst(got); w != doctor.Fail {
		t.Errorf("the worst is %s", w)
	}
	if w := doctor.Worst(nil); w != doctor.OK {
		t.Errorf("the worst of nothing is %s", w)
	}
}

type lines struct {
	mu  sync.Mutex
	buf strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// A running process tells of a finding once, and again when it comes back.
func TestWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rounds := [][]doctor.Level{{doctor.Warn}, {doctor.Warn}, {doctor.OK}, {doctor.Warn}, {doctor.Fail}}
		n := 0
		check := doctor.Check{Name: "c", Run: func(context.Context, doctor.Env) ([]doctor.Finding, error) {
			var out []doctor.Finding
			for _, l := range rounds[min(n, len(rounds)-1)] {
				out = append(out, doctor.Finding{Level: l, Subject: "s", Text: "found"})
			}
			n++
			return out, nil
		}}
		log := &lines{}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Hour)
		defer cancel()
		doctor.Watch(ctx, doctor.Env{}, []doctor.Check{check}, time.Hour, slog.New(slog.NewTextHandler(log, nil)))
		got := strings.Count(log.buf.String(), "finding=found")
		if n != 5 || got != 3 || strings.Count(log.buf.String(), "level=ERROR") != 1 {
			t.Errorf("%d runs told %d times:\n%s", n, got, log.buf.String())
		}
	})
}
