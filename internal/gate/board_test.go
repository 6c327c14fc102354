package gate_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/gate"
	"github.com/onefold-dev/onefold/internal/pg/pgtest"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/telemetry"
)

// process is one process's board, with a credential that can be changed and a
// log that can be read.
type process struct {
	*gate.Board
	log *lines

	mu     sync.Mutex
	secret string
}

func (p *process) credential() telemetry.Secret {
	p.mu.Lock()
	defer p.mu.Unlock()
	return telemetry.NewSecret(p.secret)
}

func (p *process) change(secret string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.secret = secret
}

type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), text)
}

var llm = gate.Provider("llm")

func start(t *testing.T, db *pgtest.DB, secret string, run bool) *process {
	t.Helper()
	p := &process{log: &lines{}, secret: secret}
	var err error
	p.Board, err = gate.New(t.Context(), gate.Opts{
		Pool: db.Pool(t), Log: slog.New(slog.NewTextHandler(p.log, nil)), Names: []gate.Name{llm},
		Connect:     func(ctx context.Context) (*pgx.Conn, error) { return pgx.Connect(ctx, db.URL()) },
		Credentials: map[gate.Name]func() telemetry.Secret{llm: p.credential},
	})
	if err != nil {
		t.Fatal(err)
	}
	if !run {
		return p
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return p
}

// observe is a transaction that sees what it is given and commits, or not.
func (p *process) observe(t *testing.T, commit bool, all ...gate.Observation) {
	t.Helper()
	var m *gate.Moved
	err := pgx.BeginTxFunc(t.Context(), p.Pool, store.ReadCommitted, func(tx pgx.Tx) (err error) {
		if m, err = p.Observe(t.Context(), tx, all); err == nil && !commit {
			err = context.Canceled
		}
		return err
	})
	if commit {
		if err != nil {
			t.Fatal(err)
		}
		m.Committed()
	} else if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

// until waits for f, which another goroutine will make true.
func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	limit := time.After(time.Minute)
	for look := time.NewTicker(10 * time.Millisecond); !f(); {
		select {
		case <-look.C:
		case <-limit:
			t.Fatalf("never: %s", what)
		}
	}
}

func texts(t *testing.T, pool *pgxpool.Pool, sql string) []string {
	t.Helper()
	rows, err := pool.Query(t.Context(), sql)
	if err != nil {
		t.Fatal(err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return out
}

const audited = `SELECT actor || ' ' || action || ' ' || target_type || ' ' || target_id FROM onefold.audit ORDER BY id`

// Many processes see the same refusal at once: one alert, one entry.
func TestOneAlert(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	var all []*process
	for range 4 {
		all = append(all, start(t, db, "old", true))
	}
	var wg sync.WaitGroup
	for _, p := range all {
		for range 5 {
			wg.Go(func() {
				p.observe(t, true, gate.Observation{Gate: llm, What: gate.Unauthorized, Credential: p.Fingerprint(llm), Reason: "HTTP 401"})
			})
		}
	}
	wg.Wait()
	alerts := 0
	for _, p := range all {
		alerts += p.log.count(gate.MsgClosed)
		until(t, "every process sees the gate held", func() bool { return p.State(llm).State == api.GateHeld })
	}
	if alerts != 1 {
		t.Errorf("%d alerts, want 1", alerts)
	}
	if diff := cmp.Diff(texts(t, all[0].Pool, audited), []string{"onefold gate.held provider llm"}); diff != "" {
		t.Errorf("audit: %s", diff)
	}
	if got := texts(t, all[0].Pool, `SELECT cardinality(refused)::text FROM onefold.gates`)[0]; got != "1" {
		t.Errorf("%s refused credentials, want the one", got)
	}
	if _, err := all[0].Release(t.Context(), gate.Act{Gate: llm, Actor: "key:x", Reason: "paid"}); err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		until(t, "every process sees the gate open", func() bool { return p.Open(llm) && !p.Barred(llm) })
	}
}

// The gate moves with the outcome or not at all.
func TestRolledBack(t *testing.T) {
	t.Parallel()
	p := start(t, pgtest.New(t), "k", false)
	p.observe(t, false, gate.Observation{Gate: llm, What: gate.Unauthorized})
	if err := p.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !p.Open(llm) || p.log.count(gate.MsgClosed) != 0 {
		t.Errorf("the gate is %s after a transaction that did not commit", p.State(llm).State)
	}
}

// A changed credential releases what was held for the old one; a process that
// still has the old one leaves the provider alone instead of closing it again.
func TestChangedCredential(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	changing, old := start(t, db, "old", true), start(t, db, "old", true)
	used := old.Fingerprint(llm)
	changing.observe(t, true, gate.Observation{Gate: llm, What: gate.Unauthorized, Credential: changing.Fingerprint(llm)})
	until(t, "held everywhere", func() bool { return !old.Open(llm) })
	changing.change("new")
	for _, p := range []*process{changing, old} {
		until(t, "open again", func() bool { return p.Open(llm) })
	}
	if changing.Barred(llm) || !old.Barred(llm) {
		t.Errorf("left alone: by the one with the new credential %v, by the one with the old %v", changing.Barred(llm), old.Barred(llm))
	}
	// A call that was made with the old one comes back late.
	changing.observe(t, true, gate.Observation{Gate: llm, What: gate.Unauthorized, Credential: used})
	if !changing.Open(llm) {
		t.Error("what the old credential was told closed the gate again")
	}
	if diff := cmp.Diff(texts(t, old.Pool, audited), []string{"onefold gate.held provider llm", "onefold gate.release provider llm"}); diff != "" {
		t.Errorf("audit: %s", diff)
	}
	old.change("newer") // never refused
	if err := old.Refresh(t.Context()); err != nil || old.Barred(llm) {
		t.Errorf("left alone with a credential that was never refused: %v", err)
	}
	old.change("old") // it came back on purpose: tried again
	until(t, "tried again", func() bool {
		return !old.Barred(llm) && texts(t, old.Pool, `SELECT cardinality(refused)::text FROM onefold.gates`)[0] == "0"
	})
}

// An operator's hold is released by an operator alone.
func TestOperatorHold(t *testing.T) {
	t.Parallel()
	p := start(t, pgtest.New(t), "k", true)
	if _, err := p.Hold(t.Context(), gate.Act{Gate: llm, Actor: "key:x"}); err == nil {
		t.Error("a hold without a reason was taken")
	}
	g, err := p.Hold(t.Context(), gate.Act{Gate: llm, Actor: "key:x", Reason: "duplicates found"})
	if err != nil || g.State != api.GateHeld || g.Actor != "key:x" {
		t.Fatalf("got %+v, %v", g, err)
	}
	p.change("another")
	p.observe(t, true, gate.Observation{Gate: llm, What: gate.Unauthorized, Credential: p.Fingerprint(llm)})
	p.change("a third")
	for range 3 { // looks at credentials
		if err := p.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if s := p.State(llm); s.State != api.GateHeld || s.Code != gate.CodeOperator || s.Reason != "duplicates found" {
		t.Errorf("got %+v", s)
	}
	if g, err = p.Release(t.Context(), gate.Act{Gate: llm, Actor: "key:x"}); err != nil || g.State != api.GateOpen {
		t.Errorf("got %+v, %v", g, err)
	}
}

// Healthy outcomes write nothing where nothing is counted.
func TestHealthyCostsNothing(t *testing.T) {
	t.Parallel()
	p := start(t, pgtest.New(t), "k", false)
	version := func() string { return texts(t, p.Pool, `SELECT xmin::text FROM onefold.gates`)[0] }
	before := version()
	p.observe(t, true, gate.Observation{Gate: llm, What: gate.Healthy})
	if version() != before {
		t.Error("the gate's row was written")
	}
	p.observe(t, true, gate.Observation{Gate: llm, What: gate.Failed})
	p.observe(t, true, gate.Observation{Gate: llm, What: gate.Healthy})
	if err := p.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := p.State(llm); s.Failures != 0 || version() == before {
		t.Errorf("%d failures are left", s.Failures)
	}
}

func TestNilBoardIsOpen(t *testing.T) {
	t.Parallel()
	var b *gate.Board
	m, err := b.Observe(t.Context(), nil, []gate.Observation{{Gate: llm, What: gate.Unauthorized}})
	m.Committed()
	if err != nil || !b.Open(llm) || b.Barred(llm) || b.Stopped(api.StopClaims, gate.Subject{Tenant: "a"}) != nil || !b.Await(t.Context(), llm, time.Second) {
		t.Errorf("a nil board closes something: %v", err)
	}
}
