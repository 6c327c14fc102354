package pg

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// logBuffer is an Opts.Log that may be read while the server writes.
type logBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// openDir makes a folder that any user may enter; those of t.TempDir are closed
// to the user that Postgres runs as when we are root.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(ephemeralParent(), "onefold-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	return dir
}

func start(t *testing.T, o Opts) *Server {
	t.Helper()
	s, err := Start(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// eval runs one statement and returns its one value as text.
func eval(t *testing.T, s *Server, sql string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.URL("postgres"))
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	defer conn.Close(context.Background())
	var got string
	if err := conn.QueryRow(t.Context(), sql).Scan(&got); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return got
}

const (
	writeMark = "CREATE TABLE IF NOT EXISTS mark AS SELECT 'kept'::text AS v"
	readMark  = "SELECT v FROM mark"
)

func mark(t *testing.T, s *Server) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.URL("postgres"))
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), writeMark); err != nil {
		t.Fatal(err)
	}
}

func TestRestartKeepsData(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"fast", "immediate"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s := start(t, Opts{Dir: filepath.Join(openDir(t), "pg")})
			mark(t, s)
			url, pid := s.URL("postgres"), s.PID()
			if err := s.Stop(mode); err != nil {
				t.Fatal(err)
			}
			if conn, err := net.Dial("tcp", s.address()); err == nil {
				conn.Close()
				t.Error("the stopped server still listens")
			}
			if err := s.Stop(mode); err != nil {
				t.Errorf("stopping it again: %v", err)
			}
			if err := s.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := s.URL("postgres"); got != url {
				t.Errorf("URL after restart: got %s, want %s", got, url)
			}
			if s.PID() == pid {
				t.Errorf("process id after restart is still %d", pid)
			}
			if got := eval(t, s, readMark); got != "kept" {
				t.Errorf("got %q, want kept", got)
			}
		})
	}
}

func TestStopMode(t *testing.T) {
	t.Parallel()
	s := start(t, Opts{Ephemeral: true})
	if err := s.Stop("gently"); err == nil {
		t.Error("an unknown mode is accepted")
	}
	if got := eval(t, s, "SELECT 'up'"); got != "up" {
		t.Errorf("got %q, want up", got)
	}
}

func TestStartAgain(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(openDir(t), "pg")
	first := start(t, Opts{Dir: dir})
	mark(t, first)
	if _, err := Start(t.Context(), Opts{Dir: dir}); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a second server on the same folder: got %v, want in use", err)
	}
	url := first.URL("postgres")
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := first.Restart(t.Context()); err == nil {
		t.Error("a closed server restarts")
	}
	second := start(t, Opts{Dir: dir})
	if got := second.URL("postgres"); got != url {
		t.Errorf("URL of the same folder: got %s, want %s", got, url)
	}
	if got := eval(t, second, readMark); got != "kept" {
		t.Errorf("got %q, want kept", got)
	}
}

func TestPortTaken(t *testing.T) {
	t.Parallel()
	// It accepts and says nothing: the worst that can sit on our port.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := l.Addr().(*net.TCPAddr).Port
	dir := filepath.Join(openDir(t), "pg")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "port"), []byte(strconv.Itoa(taken)), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, Opts{Dir: dir})
	if s.port == taken {
		t.Fatalf("it claims the port of somebody else, %d", taken)
	}
	if got := eval(t, s, "SELECT 'up'"); got != "up" {
		t.Errorf("got %q, want up", got)
	}
}

func TestSideBySide(t *testing.T) {
	t.Parallel()
	a, b := start(t, Opts{Ephemeral: true}), start(t, Opts{Ephemeral: true})
	mark(t, a)
	if got := eval(t, b, "SELECT count(*)::text FROM pg_tables WHERE tablename = 'mark'"); got != "0" {
		t.Errorf("the second cluster sees %s tables of the first", got)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if got := eval(t, b, "SELECT 'up'"); got != "up" {
		t.Errorf("got %q, want up", got)
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	s := start(t, Opts{Ephemeral: true, Settings: map[string]string{"max_connections": "17"}})
	for name, want := range map[string]string{"max_connections": "17", "fsync": "on", "synchronous_commit": "on", "TimeZone": "UTC"} {
		if got := eval(t, s, "SELECT current_setting('"+name+"')"); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}

func TestBadSettingIsTold(t *testing.T) {
	t.Parallel()
	_, err := Start(t.Context(), Opts{Ephemeral: true, Settings: map[string]string{"no_such": "1"}})
	if err == nil || !strings.Contains(err.Error(), "no_such") {
		t.Errorf("got %v, want what Postgres said", err)
	}
}

func TestPasswordNeeded(t *testing.T) {
	t.Parallel()
	s := start(t, Opts{Ephemeral: true})
	bare := strings.Replace(s.URL("postgres"), ":"+s.password+"@", ":wrong@", 1)
	if conn, err := pgx.Connect(t.Context(), bare); err == nil {
		conn.Close(t.Context())
		t.Error("any user of this machine can be superuser")
	}
}

func TestContextEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	s, err := Start(ctx, Opts{Ephemeral: true})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	<-s.Done()
	if err := s.Close(); err != nil { // waits for the one that the context began
		t.Error(err)
	}
	if _, err := os.Stat(s.Dir()); !os.IsNotExist(err) {
		t.Errorf("the folder of an ephemeral cluster is still there: %v", err)
	}
}

// TestForgotten drops the Server, as the tests of a whole binary do that never
// stop theirs: a collected Server must not take Postgres with it.
func TestForgotten(t *testing.T) {
	t.Parallel()
	url, pid, done := func() (string, int, <-chan struct{}) {
		s, err := Start(context.Background(), Opts{Ephemeral: true})
		if err != nil {
			t.Fatal(err)
		}
		return s.URL("postgres"), s.PID(), s.Done()
	}()
	for range 20 { // what a collection sets off takes a moment to end the server
		runtime.GC()
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatalf("the server is gone: %v", err)
		}
		conn.Close(t.Context())
	}
	if err := syscall.Kill(pid, syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	<-done
}

func TestOtherVersion(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(openDir(t), "pg")
	if err := os.MkdirAll(filepath.Join(dir, "data"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "data", "PG_VERSION"), []byte("9\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Start(t.Context(), Opts{Dir: dir})
	if err == nil || !strings.Contains(err.Error(), "Postgres 9") {
		t.Errorf("got %v, want one that names version 9", err)
	}
}

func TestOpts(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]Opts{"nothing": {}, "both": {Dir: openDir(t), Ephemeral: true}} {
		if s, err := Start(t.Context(), o); err == nil {
			s.Close()
			t.Errorf("%s: accepted", name)
		}
	}
}

// TestWatcher is the whole protection where the kernel sends no death signal.
func TestWatcher(t *testing.T) {
	t.Parallel()
	s := start(t, Opts{Ephemeral: true})
	folder := t.TempDir()
	w, err := startWatcher("QUIT", folder, filepath.Join(s.folder.data(), "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.watch(s.PID()); err != nil {
		t.Fatal(err)
	}
	if err := w.in.Close(); err != nil { // what the kernel does when we die
		t.Fatal(err)
	}
	<-s.Done()
	if err := w.cmd.Wait(); err != nil {
		t.Errorf("the watcher: %v", err)
	}
	if _, err := os.Stat(folder); !os.IsNotExist(err) {
		t.Errorf("the folder is still there: %v", err)
	}
}

func TestSweep(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	old := time.Now().Add(-time.Hour)
	make := func(name string) string {
		dir := filepath.Join(parent, ephemeralPrefix+name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "lock"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(dir, old, old); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	left, used := make("left"), make("used")
	f := &folder{path: used}
	if err := f.acquire(); err != nil {
		t.Fatal(err)
	}
	defer f.lock.Close()
	sweep(parent)
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Errorf("a folder nobody uses is still there: %v", err)
	}
	if _, err := os.Stat(used); err != nil {
		t.Errorf("a folder in use was removed: %v", err)
	}
}

func (s *Server) address() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }
