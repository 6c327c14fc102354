package proxytest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/onefold-dev/onefold/internal/pg/pgtest"
	"github.com/onefold-dev/onefold/internal/pg/proxytest"
)

// patience is far beyond what anything here takes.
const patience = 60 * time.Second

func setup(t *testing.T) (*proxytest.Proxy, *pgx.Conn) {
	t.Helper()
	db := pgtest.New(t)
	direct := connect(t, db.URL())
	if _, err := direct.Exec(t.Context(), `CREATE TABLE public.kept (n int)`); err != nil {
		t.Fatal(err)
	}
	return proxytest.New(t, db.URL()), direct
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// insert commits n through conn.
func insert(ctx context.Context, conn *pgx.Conn, n int) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO public.kept VALUES ($1)`, n)
		return err
	})
}

func rows(t *testing.T, conn *pgx.Conn) (n int) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM public.kept`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func await(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("waited in vain for %s", what)
	}
}

// Each fate meets the COMMIT it was armed for and no other.
func TestFates(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fate proxytest.Fate
		kept int
	}{
		"cut before":  {proxytest.CutBefore, 1},
		"reply lost":  {proxytest.DropReply, 2},
		"cut between": {proxytest.CutDuring, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, direct := setup(t)
			conn := connect(t, p.URL())
			f := p.AtCommit("INSERT INTO public.kept", 2, c.fate)
			if err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
				_, err := tx.Exec(t.Context(), `SELECT 1`)
				return err
			}); err != nil {
				t.Fatalf("another transaction: %v", err)
			}
			if err := insert(t.Context(), conn, 1); err != nil {
				t.Fatalf("the first commit: %v", err)
			}
			err := insert(t.Context(), conn, 2)
			var pg *pgconn.PgError
			if err == nil || errors.As(err, &pg) || !conn.IsClosed() {
				t.Errorf("got %v, want a lost connection and nothing from the server", err)
			}
			await(t, "the fault", f.Hit())
			if c.fate != proxytest.CutBefore {
				await(t, "the commit", f.Landed())
			}
			if got := rows(t, direct); got != c.kept {
				t.Errorf("got %d rows, want %d", got, c.kept)
			}
			if err := insert(t.Context(), connect(t, p.URL()), 3); err != nil {
				t.Errorf("afterwards: %v", err)
			}
		})
	}
}

func TestStall(t *testing.T) {
	t.Parallel()
	p, direct := setup(t)
	conn := connect(t, p.URL())
	f := p.AtCommit("INSERT INTO public.kept", 1, proxytest.Stall)
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() { failed <- insert(ctx, conn, 1) }()
	await(t, "the fault", f.Hit())
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the client's own end", err)
	}
	if got := rows(t, direct); got != 0 {
		t.Errorf("got %d rows, want none", got)
	}
}

func TestFreezeRefuseCut(t *testing.T) {
	t.Parallel()
	p, _ := setup(t)
	conn := connect(t, p.URL())
	p.Freeze()
	short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := pgx.Connect(short, p.URL()); err == nil {
		t.Error("a connection was made while all traffic is held")
	}
	done := make(chan error, 1)
	go func() { done <- insert(t.Context(), conn, 1) }()
	p.Thaw()
	if err := <-done; err != nil {
		t.Errorf("after the thaw: %v", err)
	}
	p.Refuse(true)
	if _, err := pgx.Connect(t.Context(), p.URL()); err == nil {
		t.Error("a refused connection was made")
	}
	if err := insert(t.Context(), conn, 2); err != nil {
		t.Errorf("a connection from before: %v", err)
	}
	p.Cut()
	if err := insert(t.Context(), conn, 3); err == nil {
		t.Error("a cut connection works")
	}
	p.Refuse(false)
	if err := insert(t.Context(), connect(t, p.URL()), 4); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// A connection that listens goes silent; others go on.
func TestSilence(t *testing.T) {
	t.Parallel()
	p, direct := setup(t)
	listening, other := connect(t, p.URL()), connect(t, p.URL())
	if _, err := listening.Exec(t.Context(), `LISTEN news`); err != nil {
		t.Fatal(err)
	}
	if got := p.Clients("LISTEN"); got != 1 {
		t.Errorf("got %d listening clients, want 1", got)
	}
	p.Silence("LISTEN")
	if _, err := direct.Exec(t.Context(), `NOTIFY news`); err != nil {
		t.Fatal(err)
	}
	if err := insert(t.Context(), other, 1); err != nil {
		t.Errorf("another connection: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if n, err := listening.WaitForNotification(ctx); err == nil {
		t.Errorf("heard %v through a black hole", n)
	}
}

// A held statement waits, and what others do happens before it.
func TestHold(t *testing.T) {
	t.Parallel()
	p, direct := setup(t)
	conn := connect(t, p.URL())
	h := p.HoldAt("INSERT INTO public.kept")
	done := make(chan error, 1)
	go func() { done <- insert(t.Context(), conn, 1) }()
	await(t, "the statement", h.Reached())
	if err := insert(t.Context(), direct, 2); err != nil {
		t.Fatal(err)
	}
	if got := rows(t, direct); got != 1 {
		t.Errorf("got %d rows while one insert is held, want 1", got)
	}
	h.Release()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := rows(t, direct); got != 2 {
		t.Errorf("got %d rows, want 2", got)
	}
}
