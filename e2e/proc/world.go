package proc

import (
	"cmp"
	"context"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onefold-dev/onefold/client"
	"github.com/onefold-dev/onefold/internal/auth"
	"github.com/onefold-dev/onefold/internal/boot"
	"github.com/onefold-dev/onefold/internal/fakellm"
	"github.com/onefold-dev/onefold/internal/pg"
	"github.com/onefold-dev/onefold/internal/pg/pgtest"
)

// DefaultConfig is the onefold.yaml of a World that names none. {{FAKELLM}} and
// {{RECEIVER}} stand for the addresses of the World's own servers.
const DefaultConfig = `
retention: {tasks: 720h}
providers:
  model: {type: openai, base_url: "{{FAKELLM}}", timeouts: {connect: 5s, first_byte: 60s, idle: 60s, total: 90s}}
destinations:
  crm: {url: "{{RECEIVER}}", secret_env: E2E_SECRET, repeat: safe, allow_private: true}
kinds:
  llm.chat: {provider: model, max_attempts: 3, on_unknown: retry}
  work:
    provider: model
    output: text
    request: {model: "{{.input.model}}", messages: [{role: user, content: "{{.input.text}}"}]}
    sample: {model: "fake:ok", text: "hello"}
    on_unknown: retry
    effects:
      - {name: notify, type: webhook, destination: crm, body: '{"text": {{json .result}}}'}
`

// Opts are the choices of New; nil means none of them.
type Opts struct {
	Build
	Config string // onefold.yaml; DefaultConfig when empty
	// Cluster is a cluster of the test's own (pgtest.Cluster), which it may stop
	// and start again. Without it the database is one on the shared cluster.
	Cluster *pg.Server
	// Answer says what status the receiver gives the nth delivery of an id (from
	// 1); nil answers 204. It may block.
	Answer func(id string, body []byte, n int) int
	// Env is put into the environment of every process, "NAME=value".
	Env []string
}

// World is what a test's processes share.
type World struct {
	Database   string        // URL, as the cluster's superuser
	Runtime    string        // URL, as the role that api and worker log in as
	Pool       *pgxpool.Pool // for looking into the database
	Model      *fakellm.Server
	Receiver   *Receiver
	Key        string // an API key of the tenant "e2e" with all its scopes
	ConfigFile string
	Dir        string // a folder of the test's own

	bin string
	env []string

	mu    sync.Mutex
	procs []*Process
}

// New builds the programs, makes a database, starts a model server and a
// receiver, and writes the configuration. All of it goes when tb ends, the
// processes first; their last warnings are printed when tb has failed.
func New(tb testing.TB, o *Opts) *World {
	tb.Helper()
	if o == nil {
		o = &Opts{}
	}
	w := &World{bin: Bin(tb, o.Build), Dir: tb.TempDir(), Receiver: newReceiver(o.Answer)}
	var db *pgtest.DB
	if o.Cluster != nil {
		db = pgtest.NewIn(tb, o.Cluster)
	} else {
		db = pgtest.New(tb)
	}
	w.Database, w.Pool = db.URL(), db.Pool(tb)
	w.Runtime = runtimeRole(tb, w.Pool, db)
	w.Model = fakellm.New()
	hooks := httptest.NewServer(w.Receiver)
	tb.Cleanup(func() { w.Model.Close(); hooks.Close() })
	w.env = append([]string{SecretEnv + "=" + Secret, "OPENAI_API_KEY=", "ONEFOLD_CONFIG=", "DATABASE_URL="}, o.Env...)
	text := o.Config
	if text == "" {
		text = DefaultConfig
	}
	text = strings.NewReplacer("{{FAKELLM}}", w.Model.URL(), "{{RECEIVER}}", hooks.URL+"/hooks").Replace(text)
	w.ConfigFile = filepath.Join(w.Dir, "onefold.yaml")
	if err := os.WriteFile(w.ConfigFile, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	w.Key = w.NewKey(tb, "e2e")
	tb.Cleanup(func() { w.cleanUp(tb) })
	return w
}

// runtimeRole makes the role the programs are run with, so that every test here
// also shows that it may do what they do. Of onefold's tables it gets what
// `onefold migrate` gives it; tables a test makes in public are those of an
// operator, who lets it write there.
func runtimeRole(tb testing.TB, pool *pgxpool.Pool, db *pgtest.DB) string {
	tb.Helper()
	dsn := db.Runtime(tb, boot.Settings(boot.DefaultLease))
	u, err := url.Parse(dsn)
	if err != nil {
		tb.Fatal(err)
	}
	for _, what := range []string{"TABLES", "SEQUENCES"} {
		sql := "ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT ALL ON " + what + " TO " + u.User.Username()
		if _, err := pool.Exec(context.Background(), sql); err != nil {
			tb.Fatalf("let the runtime role use what the test makes: %v", err)
		}
	}
	return dsn
}

// NewKey makes an API key of a tenant.
func (w *World) NewKey(tb testing.TB, tenant string) string {
	tb.Helper()
	key, _, err := auth.Create(context.Background(), w.Pool, auth.NewKey{Tenant: tenant, Name: "e2e-" + tenant, Actor: "e2e"})
	if err != nil {
		tb.Fatalf("make an API key: %v", err)
	}
	return key
}

// cleanUp ends every process, stopped ones too, before the database goes.
func (w *World) cleanUp(tb testing.TB) {
	w.mu.Lock()
	procs := slices.Clone(w.procs)
	w.mu.Unlock()
	for _, p := range procs {
		if cmd, _ := p.now(); cmd == nil {
			continue
		}
		if err := p.End(); err != nil {
			tb.Error(err)
		}
		if tb.Failed() {
			tb.Logf("%s (process %d, %d lives), the last warnings:\n%s", p.spec.Name, p.PID(), p.lives,
				p.log.last(15, func(l string) bool { return !routine(l) }))
		}
		if race := p.Log(); strings.Contains(race, "WARNING: DATA RACE") {
			tb.Errorf("%s: the race detector found a race\n%s", p.spec.Name, race[strings.Index(race, "WARNING: DATA RACE"):])
		}
	}
}

// Start starts a process with the World's configuration and database and
// returns it when it is ready.
func (w *World) Start(s Spec) (*Process, error) {
	if s.Name != "onefold" {
		s.Args = append([]string{"--config", w.ConfigFile, "--database-url", w.Runtime}, s.Args...)
	}
	s.Env = append(slices.Clone(w.env), s.Env...)
	p := newProcess(cmp.Or(s.Bin, w.bin), s)
	w.mu.Lock()
	w.procs = append(w.procs, p)
	w.mu.Unlock()
	return p, p.Start()
}

func (w *World) start(tb testing.TB, s Spec) *Process {
	tb.Helper()
	p, err := w.Start(s)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// APISpec and WorkerSpec are the processes that API and Worker start, for those
// who add an environment.
func APISpec(args ...string) Spec {
	return Spec{Name: "api", Args: append([]string{"--addr", "127.0.0.1:0"}, args...), Ready: "listening on "}
}

// WorkerSpec is a worker with the shortest lease there is, unless args say
// otherwise.
func WorkerSpec(args ...string) Spec {
	return Spec{Name: "worker", Args: append([]string{"--lease", "3s"}, args...), Ready: "working"}
}

// API starts an api on a free port.
func (w *World) API(tb testing.TB, args ...string) *Process {
	tb.Helper()
	return w.start(tb, APISpec(args...))
}

// Worker starts a worker with the shortest lease, 3 s, unless args give another.
func (w *World) Worker(tb testing.TB, args ...string) *Process {
	tb.Helper()
	return w.start(tb, WorkerSpec(args...))
}

// Client makes a client of the api at its present address, with the World's key.
func (w *World) Client(tb testing.TB, api *Process) *client.Client {
	tb.Helper()
	c, err := client.New(api.URL(), w.Key, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}
