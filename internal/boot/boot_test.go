package boot

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/pg/pgtest"
	"github.com/onefold-dev/onefold/internal/store"
)

// lines is a log that tells when it gets a line.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
	got chan struct{}
}

func newLines() *lines { return &lines{got: make(chan struct{}, 100)} }

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.got <- struct{}{}:
	default:
	}
	return l.buf.Write(b)
}

func (l *lines) String() string { l.mu.Lock(); defer l.mu.Unlock(); return l.buf.String() }

func configFor(url string) Config {
	getenv := func(name string) string {
		return map[string]string{"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}[name]
	}
	return Config{Service: "api", DatabaseURL: url, Configuration: config.Opts{SkipSecrets: true, Getenv: getenv}}
}

func open(t *testing.T, c Config) *App {
	t.Helper()
	a, err := Open(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	return a
}

func TestOpen(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	a := open(t, configFor(db.URL()))
	want := map[string]string{
		"idle_in_transaction_session_timeout": "5s", "lock_timeout": "5s", "statement_timeout": "30s", "application_name": "onefold-api",
		"default_transaction_isolation": "read committed", "enable_seqscan": "off", "jit": "off",
	}
	conn, err := a.Direct(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for _, q := range []store.DBTX{a.Pool, conn} {
		got := map[string]string{}
		for name := range want {
			var v string
			if err := q.QueryRow(context.Background(), "SELECT current_setting($1)", name).Scan(&v); err != nil {
				t.Fatal(err)
			}
			got[name] = v
		}
		if diff := cmp.Diff(got, want); diff != "" {
			t.Errorf("-got +want:\n%s", diff)
		}
	}
	var kinds int
	if err := a.Pool.QueryRow(context.Background(), "SELECT count(*) FROM onefold.kind_configs").Scan(&kinds); err != nil || kinds != 1 {
		t.Errorf("got %d kind configurations stored, %v, want 1", kinds, err)
	}
	if err := a.Ready(context.Background()); err != nil {
		t.Errorf("not ready: %v", err)
	}
}

func TestLeaseBoundsIdleTransactions(t *testing.T) {
	t.Parallel()
	c := configFor(pgtest.New(t).URL())
	c.Lease = 6 * time.Second
	a := open(t, c)
	var got string
	if err := a.Pool.QueryRow(context.Background(), "SHOW idle_in_transaction_session_timeout").Scan(&got); err != nil || got != "2s" {
		t.Errorf("got %q, %v, want 2s, a third of the lease", got, err)
	}
}

// TestRefused is about databases on which the promises would not hold.
func TestRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		set  []string // of the database
		url  string   // added to its URL
		want []string // in the error
	}{
		"synchronous_commit off":   {set: []string{"synchronous_commit = off"}, want: []string{"synchronous_commit is off", "ALTER ROLE"}},
		"synchronous_commit local": {set: []string{"synchronous_commit = local"}, want: []string{"synchronous_commit is local"}},
		"read-only":                {set: []string{"default_transaction_read_only = on"}, want: []string{"read-only"}},
		"no limits": {
			url:  "&statement_timeout=0&lock_timeout=0&idle_in_transaction_session_timeout=0", // by hand, over ours
			want: []string{"statement_timeout is off", "lock_timeout is off", "idle_in_transaction_session_timeout is off", "ALTER ROLE"},
		},
		"idle limit beyond a third of the lease": {
			url: "&idle_in_transaction_session_timeout=8000", want: []string{"idle_in_transaction_session_timeout is 8s, at most 5s"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			setDatabase(t, db, c.set...)
			_, err := Open(context.Background(), configFor(withParams(db.URL(), c.url)))
			if err == nil {
				t.Fatal("it was accepted")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %q, want %q in it", err, want)
				}
			}
		})
	}
}

func withParams(url, params string) string {
	if params != "" && !strings.Contains(url, "?") {
		return url + "?" + strings.TrimPrefix(params, "&")
	}
	return url + params
}

// setDatabase changes settings of the database for connections to come.
func setDatabase(t *testing.T, db *pgtest.DB, settings ...string) {
	t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, db.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	for _, s := range settings {
		if _, err := conn.Exec(ctx, "ALTER DATABASE "+pgx.Identifier{conn.Config().Database}.Sanitize()+" SET "+s); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSchemaMissing(t *testing.T) {
	t.Parallel()
	_, err := Open(context.Background(), configFor(pgtest.Empty(t).URL()))
	if err == nil || !strings.Contains(err.Error(), "onefold migrate") {
		t.Errorf("got %v, want to be told to migrate", err)
	}
}

func TestHopelessEndsAtOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn, err := pgx.Connect(context.Background(), db.URL())
	if err != nil {
		t.Fatal(err)
	}
	name := conn.Config().Database
	_ = conn.Close(context.Background())
	for what, c := range map[string]struct{ url, want string }{
		"no such database": {strings.Replace(db.URL(), name, "nosuch", 1), "createdb"},
		"no such setting":  {withParams(db.URL(), "&nosuch_setting=1"), "setting"},
	} {
		// Patience beyond the test's own time limit: it must not be used.
		cfg := configFor(c.url)
		cfg.StartPatience = 24 * time.Hour
		_, err := Open(context.Background(), cfg)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q in it", what, err, c.want)
		}
	}
}

func TestPatienceEnds(t *testing.T) {
	t.Parallel()
	c := configFor("postgres://nobody:verysecret@127.0.0.1:1/none")
	c.StartPatience = 300 * time.Millisecond
	_, err := Open(context.Background(), c)
	if err == nil || !strings.Contains(err.Error(), "check that Postgres runs") {
		t.Errorf("got %v, want what to check", err)
	}
	if err != nil && strings.Contains(err.Error(), "verysecret") {
		t.Errorf("the error shows the password: %v", err)
	}
}

// A process that is started before its database waits for it and says so.
func TestWaitsForTheDatabase(t *testing.T) {
	t.Parallel()
	cluster := pgtest.Cluster(t)
	db := pgtest.NewIn(t, cluster)
	if err := cluster.Stop("immediate"); err != nil {
		t.Fatal(err)
	}
	log := newLines()
	c := configFor(db.URL())
	c.LogTo = log
	opened := make(chan error, 1)
	go func() {
		a, err := Open(context.Background(), c)
		if err == nil {
			a.Close()
		}
		opened <- err
	}()
	<-log.got
	if !strings.Contains(log.String(), "waiting for the database") {
		t.Errorf("got the log %s, want it to say what is waited for", log)
	}
	if err := cluster.Restart(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := <-opened; err != nil {
		t.Error(err)
	}
}

func TestValidateReportsAllAtOnce(t *testing.T) {
	t.Parallel()
	c := Config{LogLevel: "loud", Lease: time.Second}
	err := c.Validate()
	if err == nil {
		t.Fatal("it was accepted")
	}
	for _, want := range []string{"no service name", "--database-url", "lease of 1s", `"loud" is no log level`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %q, want %q in it", err, want)
		}
	}
}

// A COMMIT that stopped waiting for its standbys is answered like any other but
// for a warning; that must not be missed.
func TestCommitWarned(t *testing.T) {
	t.Parallel()
	cluster := pgtest.Cluster(t)
	db := pgtest.NewIn(t, cluster)
	a := open(t, configFor(db.URL()))
	ctx := context.Background()
	admin, err := pgx.Connect(ctx, db.URL()) // its own settings: no limits
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(ctx)
	conn, err := a.Pool.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	commit := func() error {
		_, err := conn.Exec(ctx, "INSERT INTO onefold.tenants (id) VALUES (substr(md5(random()::text), 1, 20))")
		return err
	}
	if err := commit(); err != nil {
		t.Fatal(err)
	}
	if store.CommitWarned(conn.Conn()) {
		t.Fatal("a whole commit counts as warned")
	}
	reload := func(set string) {
		for _, sql := range []string{"ALTER SYSTEM " + set, "SELECT pg_reload_conf()"} {
			if _, err := admin.Exec(ctx, sql); err != nil {
				t.Fatal(err)
			}
		}
	}
	reload("SET synchronous_standby_names = 'ghost'")
	defer reload("RESET synchronous_standby_names") // or the end of the test waits for it, too
	// The server heeds the setting a little later; commits until then are whole.
	done, stop := make(chan error, 1), make(chan struct{})
	go func() {
		for {
			if err := commit(); err != nil || store.CommitWarned(conn.Conn()) {
				done <- err
				return
			}
			select {
			case <-stop:
				done <- errors.New("the warning was missed")
				return
			default:
			}
		}
	}()
	cancelWait(t, admin, conn.Conn().PgConn().PID())
	close(stop)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if store.CommitWarned(conn.Conn()) {
		t.Error("one warning counts twice")
	}
}

// cancelWait cancels a backend once it waits for its standbys.
func cancelWait(t *testing.T, admin *pgx.Conn, pid uint32) {
	t.Helper()
	for look := time.NewTicker(5 * time.Millisecond); ; <-look.C {
		var waits bool
		err := admin.QueryRow(context.Background(),
			"SELECT coalesce(wait_event = 'SyncRep', false) FROM pg_stat_activity WHERE pid = $1", pid).Scan(&waits)
		if err != nil {
			t.Fatal(err)
		}
		if waits {
			break
		}
	}
	if _, err := admin.Exec(context.Background(), "SELECT pg_cancel_backend($1)", pid); err != nil {
		t.Fatal(err)
	}
}

func TestFsyncOff(t *testing.T) {
	t.Parallel()
	s := server{version: minServer, fsync: "off", synchronousCommit: "on", encoding: "UTF8"}
	if err := errors.Join(s.durability()...); err == nil || !strings.Contains(err.Error(), "fsync") {
		t.Errorf("got %v, want fsync refused", err)
	}
	old := server{version: 140011, versionText: "14.11", fsync: "on", synchronousCommit: "on", encoding: "SQL_ASCII", standby: true}
	if got := len(old.durability()); got != 3 {
		t.Errorf("got %d problems, want version, standby and encoding: %v", got, old.durability())
	}
}

func TestRunStopsAll(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	until := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		part func(context.Context) error
		want string // in the error; "" = none
		ends bool   // by the context
	}{
		"asked":                {part: until, ends: true},
		"fails":                {part: func(context.Context) error { return broken }, want: "one: broken"},
		"returns":              {part: func(context.Context) error { return nil }, want: "one: stopped without being asked"},
		"fails while stopping": {part: func(ctx context.Context) error { <-ctx.Done(); return broken }, want: "one: broken", ends: true},
	} {
		ctx, cancel := context.WithCancel(context.Background())
		if c.ends {
			cancel()
		}
		stopped := false
		err := Run(ctx, log, Part{"one", c.part}, Part{"two", func(ctx context.Context) error { <-ctx.Done(); stopped = true; return nil }})
		cancel()
		if got := ""; err != nil {
			got = err.Error()
			if c.want == "" || !strings.Contains(got, c.want) {
				t.Errorf("%s: got %q, want %q", name, got, c.want)
			}
		} else if c.want != "" {
			t.Errorf("%s: got no error, want %q", name, c.want)
		}
		if !stopped {
			t.Errorf("%s: the other part was not waited for", name)
		}
	}
}

func TestSignals(t *testing.T) {
	t.Parallel()
	ctx, stop := Signals(context.Background())
	defer stop()
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
	if got := context.Cause(ctx); got == nil || !strings.Contains(got.Error(), "terminated") {
		t.Errorf("got the cause %v, want the signal", got)
	}
}
