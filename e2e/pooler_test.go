package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/e2e/proc"
	"github.com/onefold-dev/onefold/internal/boot"
	"github.com/onefold-dev/onefold/internal/casetest"
)

// What must hold directly holds through a pooler: storms of keys over two api
// processes, a killed and a second worker, effects that leave. In transaction
// mode every transaction may come on another connection, and far fewer of them
// than there are clients.
func TestThroughPooler(t *testing.T) {
	t.Parallel()
	c := casetest.Get(t, "C274")
	var want struct{ Pass bool }
	c.Expect(t, &want)
	for _, mode := range []string{"session", "transaction"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			w := proc.New(t, nil)
			direct := []string{"--database-direct-url", w.Runtime}
			shortLease(t, w)
			size := 8 // of the pooler's connections to the server
			if mode == "session" {
				size = 100 // each client keeps one
			}
			w.Runtime = pooler(t, mode, size, w.Runtime)
			s := newSenders(t, w, w.API(t, direct...), w.API(t, direct...))
			first := w.Worker(t, direct...)
			w.Worker(t, direct...)
			const keys, each = 40, 15
			var shots []*shot
			for i := range keys * each {
				k := strconv.Itoa(i % keys)
				shots = append(shots, &shot{key: "k" + k, body: work("fake:latency=100ms", "text "+k)})
			}
			s.fire(t, shots[:len(shots)/2])
			first.Kill(t)
			if err := first.Start(); err != nil {
				t.Fatal(err)
			}
			s.fire(t, shots[len(shots)/2:])
			statuses, ids := tally(shots)
			if diff := cmp.Diff(statuses, map[int]int{202: keys, 200: keys * (each - 1)}); (diff == "" && len(ids) == keys) != want.Pass {
				t.Errorf("got %d ids; statuses: -got +want:\n%s", len(ids), diff)
			}
			drained(t, w)
			if n := w.Count(t, `SELECT count(*) FROM onefold.tasks WHERE state = $1`, string(api.Succeeded)); n != keys {
				t.Errorf("%d tasks succeeded, want %d", n, keys)
			}
			if n := w.Count(t, `SELECT count(*) FROM onefold.effects WHERE state = 'delivered'`); n != keys {
				t.Errorf("%d effects delivered, want %d", n, keys)
			}
		})
	}
}

// shortLease gives the runtime role the limits of the workers' short lease: what
// runs through a pooler cannot set them itself.
func shortLease(t *testing.T, w *proc.World) {
	t.Helper()
	u, err := url.Parse(w.Runtime)
	if err != nil {
		t.Fatal(err)
	}
	role, database := pgx.Identifier{u.User.Username()}.Sanitize(), pgx.Identifier{strings.TrimPrefix(u.Path, "/")}.Sanitize()
	for _, s := range boot.Settings(3 * time.Second) {
		sql := fmt.Sprintf("ALTER ROLE %s IN DATABASE %s SET %s = '%s'", role, database, s.Name, s.Value)
		if _, err := w.Pool.Exec(context.Background(), sql); err != nil {
			t.Fatal(err)
		}
	}
}

// work is a task of the kind work, whose result is delivered to the receiver.
func work(model, text string) string {
	return fmt.Sprintf(`{"kind":"work","input":{"model":%q,"text":%q}}`, model, text)
}

// pooler runs PgBouncer before the server that dsn leads to, and returns the way
// through it. Without the program the test is skipped, but not in CI, where it
// is installed where that is allowed.
func pooler(t *testing.T, mode string, size int, dsn string) string {
	t.Helper()
	program := pgbouncer(t)
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	_ = l.Close()
	dir, err := os.MkdirTemp("", "pooler-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	password, _ := u.User.Password()
	for name, text := range map[string]string{
		"users": fmt.Sprintf("%q %q\n", u.User.Username(), password),
		"ini": fmt.Sprintf(`[databases]
* = host=%s port=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %s
unix_socket_dir =
auth_type = trust
auth_file = %s
pool_mode = %s
default_pool_size = %d
max_client_conn = 1000
ignore_startup_parameters = extra_float_digits
`, u.Hostname(), u.Port(), port, filepath.Join(dir, "users"), mode, size),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	args := []string{filepath.Join(dir, "ini")}
	if os.Geteuid() == 0 { // it refuses to be root
		args = append([]string{"-u", "nobody"}, args...)
	}
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = io.Discard, io.Discard
	if err := cmd.Start(); err != nil {
		t.Fatalf("start the pooler: %v", err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	u.Host = net.JoinHostPort("127.0.0.1", port)
	proc.Until(t, "the pooler answers", func() bool {
		conn, err := pgx.Connect(context.Background(), u.String())
		return err == nil && conn.Close(context.Background()) == nil
	})
	return u.String()
}

func pgbouncer(t *testing.T) string {
	t.Helper()
	find := func() string {
		for _, p := range []string{"pgbouncer", "/usr/sbin/pgbouncer", "/opt/homebrew/bin/pgbouncer"} {
			if found, err := exec.LookPath(p); err == nil {
				return found
			}
		}
		return ""
	}
	if found := find(); found != "" {
		return found
	}
	const install = "apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y pgbouncer"
	if me, err := user.Current(); os.Getenv("CI") == "true" && err == nil && me.Uid == "0" {
		if out, err := exec.Command("sh", "-c", install).CombinedOutput(); err != nil {
			t.Logf("%s: %v\n%s", install, err, out)
		}
	}
	found := find()
	switch {
	case found == "" && os.Getenv("CI") == "true":
		t.Fatalf("there is no pgbouncer; install it: %s", install)
	case found == "":
		t.Skipf("there is no pgbouncer on this machine; install it: %s", install)
	}
	return found
}
