package pg

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
)

// TestStalePIDFile kills the server so that its postmaster.pid stays, as after a
// power cut, once with a dead process id in it and once with that of a live
// process which is no Postgres.
func TestStalePIDFile(t *testing.T) {
	t.Parallel()
	for name, pid := range map[string]int{"of a dead process": 0, "of another process": os.Getpid()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(openDir(t), "pg")
			first := start(t, Opts{Dir: dir})
			mark(t, first)
			if err := syscall.Kill(first.PID(), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			<-first.Done()
			if err := first.Close(); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(dir, "data", "postmaster.pid")
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatalf("the kill left no file to be stale: %v", err)
			}
			if pid != 0 {
				_, rest, _ := strings.Cut(string(b), "\n")
				if err := os.WriteFile(file, []byte(strconv.Itoa(pid)+"\n"+rest), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if got := eval(t, start(t, Opts{Dir: dir}), readMark); got != "kept" {
				t.Errorf("got %q, want kept", got)
			}
		})
	}
}

// TestRestartAfterKill has a session in the middle of work when the server is
// killed: it lives on for a moment and must not be shared with.
func TestRestartAfterKill(t *testing.T) {
	t.Parallel()
	s := start(t, Opts{Ephemeral: true})
	mark(t, s)
	conn, err := pgx.Connect(t.Context(), s.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	busy := make(chan error, 1)
	go func() {
		_, err := conn.Exec(t.Context(), "SELECT count(*) FROM generate_series(1, 2000000) a")
		busy <- err
	}()
	if err := syscall.Kill(s.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-s.Done()
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := eval(t, s, readMark); got != "kept" {
		t.Errorf("got %q, want kept", got)
	}
	<-busy
}
