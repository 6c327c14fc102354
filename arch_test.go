package onefold_test

import (
	"go/ast"
	"go/token"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/onefold-dev/onefold"

// leaves decide things everybody needs and import next to nothing of ours; any
// package may import them.
var leaves = []string{"api", "internal/task", "internal/canon", "internal/telemetry", "internal/tracing", "internal/failpoint", "internal/submission"}

// everything stands for all our packages but those for tests.
var everything = []string{"*"}

// rule says which packages of ours a package may import besides the leaves.
type rule struct {
	pkg string // a folder below the root; a * stands for one name in it
	may []string
	why string
}

// rules is the import table of docs/design.md: imports point one way, downwards.
// The first entry that fits a package counts. A package that none fits fails the
// test: add it here, with thought about which side of which line it is on.
var rules = []rule{
	{"", nil, "the root holds this test only"},

	// Public. Whoever imports these gets nothing else of ours into the build.
	{"api", nil, "the wire types are for every caller: standard library only, see TestAPIStandardLibraryOnly"},
	{"client", nil, "callers outside link the client: wire types only"},
	{"client/clienttest", []string{"client", "internal/canon", "internal/submission", "internal/batchfile"}, "a fake that judges keys and payloads by other code than the server's would teach users another contract"},
	{"client/*", []string{"client"}, "helpers of the client, for callers outside"},
	{"enqueue", []string{"internal/submit", "internal/store", "internal/config", "internal/kinds"}, "a submit inside the caller's transaction goes through the one submit there is"},

	// Leaves: a leaf that imported anything but the wire types would pull it in everywhere.
	{"internal/task", []string{"api"}, "the domain has no I/O; it shares state names with the wire"},
	{"internal/canon", []string{"api"}, "pure functions on bytes; errors carry wire codes"},
	{"internal/submission", []string{"api", "internal/canon"}, "what a submit may say, for all that take one"},
	{"internal/batchfile", []string{"api", "internal/canon", "internal/submission"}, "what a batch's file says, for all that take one"},
	{"internal/telemetry", []string{"api"}, "logging must be usable by all"},
	{"internal/tracing", []string{"internal/telemetry"}, "what a span says is decided once, for all; it needs the API of OpenTelemetry and not the SDK, see TestPublicWithoutSDK"},
	{"internal/tracing/*", []string{"internal/tracing"}, "where spans go is known to whoever starts a process only"},
	{"internal/failpoint", nil, "crash points stand in all packages that promise something"},

	// What the transactions are made of.
	{"migrations", nil, "the schema depends on no code, so that old and new code run on it"},
	{"internal/store", nil, "SQL on our tables, and no decisions: it knows rows only"},
	{"internal/job", []string{"internal/store"}, "wake-ups are rows too"},
	{"internal/group", []string{"internal/store"}, "groups calls of any kind; knows no statement"},
	{"internal/egress", nil, "which addresses may be dialled, for all that dial out"},
	{"internal/fair", []string{"internal/store"}, "places in the queue: arithmetic, and how far each process got"},
	{"internal/quota", []string{"internal/store"}, "what a tenant may have: counts and settings, before there is any task"},
	{"internal/config", []string{"internal/egress"}, "read before anything else runs"},
	{"internal/kinds", []string{"internal/store", "internal/config"}, "which configuration a task runs under: stored by hash"},
	{"internal/seal", nil, "secrets at rest: bytes in, bytes out"},
	{"internal/auth", []string{"internal/store", "internal/config"}, "keys and tenants, before any task"},
	{"internal/gate", []string{"internal/store", "internal/job"}, "shared through the database, not through memory"},

	{"internal/destination", []string{"internal/store", "internal/config", "internal/egress", "internal/seal", "internal/gate"}, "where effects may go, before there is any effect"},

	// What keeps the promises: one transaction each. outbox is below the others,
	// because every move to an outcome inserts that outcome's effects.
	{"internal/outbox", []string{"internal/store", "internal/fair", "internal/job", "internal/group", "internal/gate", "internal/config", "internal/kinds", "internal/destination"}, "effects know nothing of submits or workers"},
	{"internal/outbox/*", []string{"internal/outbox", "internal/outbox/wire", "internal/egress"}, "an effect kind gets a request and returns a response or a classed error; never a row or a transaction"},
	{"internal/provider", nil, "the contract and the failure table: no storage"},
	{"internal/provider/*", []string{"internal/provider", "internal/provider/wire", "internal/provider/delta", "internal/provider/dialect", "internal/egress"}, "a provider gets a request and returns a response or a classed error; never a row or a transaction"},
	{"internal/submit", []string{"internal/store", "internal/fair", "internal/quota", "internal/gate", "internal/job", "internal/group", "internal/config", "internal/kinds", "internal/outbox"}, "what a caller may ask needs no provider and no worker"},
	{"internal/review", []string{"internal/store", "internal/job", "internal/submit", "internal/outbox"}, "what a person decides is one act on one row, through what moves that row anyway"},
	{"internal/worker", []string{"internal/store", "internal/job", "internal/group", "internal/config", "internal/kinds", "internal/outbox", "internal/provider", "internal/gate"}, "an attempt never submits"},
	{"internal/upkeep", []string{"internal/store", "internal/fair", "internal/job", "internal/group", "internal/config", "internal/kinds", "internal/outbox", "internal/gate"}, "sweeps judge by rows alone, not by what a worker remembers"},
	{"internal/doctor", []string{"internal/store", "internal/config", "internal/kinds", "internal/destination", "migrations"}, "checks look and change nothing"},
	{"internal/audit", []string{"internal/store", "internal/config"}, "looks at rows and changes nothing"},
	{"internal/diagnose", nil, "judges what is on the wire; reads nothing itself"},
	{"internal/wait", []string{"internal/store"}, "waiting only reads"},
	{"internal/batch", []string{"internal/submit", "internal/batchfile", "internal/store", "internal/quota", "internal/job", "internal/group", "internal/config", "internal/kinds"}, "a batch is many submits"},
	{"internal/ingest", []string{"internal/submit", "internal/store", "internal/group", "internal/config", "internal/kinds", "internal/seal"}, "a webhook becomes a submit"},

	// What people and programs talk to.
	{"internal/server", serving, "handlers decode, call once, return; no worker, no provider"},
	{"internal/console", serving, "as server"},
	{"internal/fakellm", nil, "a model server of its own, as foreign as the real one"},
	{"internal/boot", []string{"internal/config", "internal/kinds", "internal/store", "internal/job", "internal/auth", "internal/seal", "internal/tracing/otlp", "migrations"}, "what all programs do before they differ"},
	{"internal/apid", everything, "puts the API's process together, for its program and for `onefold dev`"},
	{"internal/workerd", everything, "puts the worker's process together, for its program and for `onefold dev`"},
	{"cmd/*", everything, "a program puts the packages together"},

	// Development and tests.
	{"internal/pg", nil, "used before there is a database to know anything of"},
	{"internal/pg/cmd/*", []string{"internal/pg"}, "must build while the rest does not"},
	{"internal/pg/proxytest", nil, "stands before any server, and knows its protocol only"},
	{"internal/pg/pgtest", []string{"internal/pg", "migrations"}, "a migrated database for any test, so nothing above the schema"},
	{"internal/casetest", nil, "data for any test"},
	{"examples/demo", []string{"client", "internal/auth", "internal/fakellm", "internal/pg", "migrations"}, "it sets up on one machine what an operator would: database, key, model"},
	{"examples/coupon", []string{"internal/fakellm", "internal/pg", "migrations"}, "as the demo"},
	{"examples/*", []string{"client", "internal/pg"}, "an example shows what a user can do; the demo also needs a database"},
	{"deploy/grafana/dashboard", nil, "draws a dashboard, and knows metrics by their names only"},
	{"e2e", everything, "tests of whole programs"},
	{"e2e/*", everything, "tests of whole programs"},
}

var serving = []string{
	"internal/submit", "internal/review", "internal/ingest", "internal/batch", "internal/outbox", "internal/wait", "internal/store",
	"internal/auth", "internal/config", "internal/kinds", "internal/gate", "internal/destination", "internal/diagnose",
}

// forTests may be imported by test files and by each other only.
var forTests = []string{"internal/casetest", "internal/*/*test", "client/clienttest", "e2e", "e2e/*"}

// mayBegin are the packages that may open a transaction, with the promise each
// keeps by it. All others get one handed in, or need none: reading these
// packages is reading every atomic promise we make.
var mayBegin = map[string]string{
	"enqueue":              "takes the caller's transaction, and nests in it",
	"internal/submit":      "one row a key; cancel, retry, reopen, resolve",
	"internal/worker":      "claim, finish, re-enqueue",
	"internal/outbox":      "mark and outcome of a delivery",
	"internal/review":      "a person's act on an effect and its audit entry",
	"internal/upkeep":      "reaper, sweep, reconciler, purge",
	"internal/audit":       "a read-only look, the operator's own SQL included",
	"internal/batch":       "a piece of a batch",
	"internal/auth":        "a key and its audit entry",
	"internal/gate":        "an operator's hold or release and its audit entry; a process's share of what is bounded",
	"internal/destination": "a stored destination, its sealed secrets and the audit entry",
	"internal/quota":       "the counts of all tenants, made by one process at a time",
	"internal/group":       "the flush that many callers share",
	"internal/pg":          "development clusters",
	"migrations":           "schema changes under one lock",
}

func ruleFor(pkg string) (rule, bool) {
	for _, r := range rules {
		if fits(r.pkg, pkg) {
			return r, true
		}
	}
	return rule{}, false
}

func fits(pattern, pkg string) bool {
	ok, err := path.Match(pattern, pkg)
	return err == nil && ok
}

func fitsAny(patterns []string, pkg string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return fits(p, pkg) })
}

// allows says whether package pkg may import the package to.
func (r rule) allows(pkg, to string) bool {
	switch {
	case fitsAny(forTests, to):
		return fitsAny(forTests, pkg)
	case slices.Contains(r.may, "*") || fitsAny(r.may, to):
		return true
	case slices.Contains(leaves, pkg): // leaves do not import each other but as listed
		return false
	default:
		return slices.Contains(leaves, to) && pkg != "api" && (!public(pkg) || to == "api")
	}
}

// public packages of which callers outside link what they import.
func public(pkg string) bool { return pkg == "client" || strings.HasPrefix(pkg, "client/") }

func TestImports(t *testing.T) {
	t.Parallel()
	unknown := map[string]bool{}
	for _, s := range sources(t) {
		r, ok := ruleFor(s.pkg)
		if !ok {
			if !unknown[s.pkg] {
				t.Errorf("package %s is not in the table of arch_test.go: add it here, with thought", s.pkg)
			}
			unknown[s.pkg] = true
			continue
		}
		if s.test {
			continue // a test may set up its world with anything
		}
		for _, to := range s.ours() {
			if !r.allows(s.pkg, to) {
				t.Errorf("%s: package %s may not import %s: %s", s.name, s.pkg, to, r.why)
			}
		}
	}
}

// TestRules tries the table itself on imports that would hurt.
func TestRules(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		from, to string
		want     bool
	}{
		{"internal/submit", "internal/store", true},
		{"internal/submit", "api", true},
		{"internal/submit", "internal/worker", false},
		{"internal/store", "internal/submit", false},
		{"internal/store", "internal/task", true},
		{"internal/task", "internal/telemetry", false},
		{"api", "internal/task", false},
		{"client", "api", true},
		{"client", "internal/task", false},
		{"client/webhook", "client", true},
		{"client/webhook", "internal/canon", false},
		{"client/clienttest", "internal/canon", true},
		{"client/clienttest", "internal/submit", false},
		{"internal/provider/openai", "internal/store", false},
		{"internal/outbox/webhook", "internal/store", false},
		{"internal/outbox/webhook", "internal/outbox", true},
		{"internal/server", "internal/worker", false},
		{"internal/worker", "internal/submit", false},
		{"cmd/onefold", "internal/server", true},
		{"cmd/onefold", "internal/pg/pgtest", false},
		{"internal/worker", "internal/casetest", false},
	} {
		r, ok := ruleFor(tt.from)
		if !ok {
			t.Errorf("%s: not in the table", tt.from)
			continue
		}
		if got := r.allows(tt.from, tt.to); got != tt.want {
			t.Errorf("%s imports %s: got %v, want %v", tt.from, tt.to, got, tt.want)
		}
	}
	if _, ok := ruleFor("internal/utils"); ok {
		t.Error("a package nobody listed is in the table")
	}
}

// The wire types are imported by programs that are not ours: whatever api
// imports, they must build too.
func TestAPIStandardLibraryOnly(t *testing.T) {
	t.Parallel()
	for _, s := range sources(t) {
		if s.pkg != "api" || s.test {
			continue
		}
		for _, p := range s.imports() {
			if first, _, _ := strings.Cut(p, "/"); strings.Contains(first, ".") {
				t.Errorf("%s imports %s: api uses the standard library only", s.name, p)
			}
		}
	}
}

// The first sentence says the one thing a package decides; who cannot write it
// has two packages.
func TestPackageDocs(t *testing.T) {
	t.Parallel()
	documented := map[string]bool{}
	for _, s := range sources(t) {
		documented[s.pkg] = documented[s.pkg] || s.file.Doc != nil && strings.TrimSpace(s.file.Doc.Text()) != ""
	}
	for pkg, ok := range documented {
		if !ok {
			t.Errorf("package %s has no doc comment: its first sentence says what it decides", pkg)
		}
	}
}

var beginSQL = regexp.MustCompile(`(?i)^\s*(BEGIN|START\s+TRANSACTION)\s*($|;|WORK|TRANSACTION|ISOLATION|READ)`)

// Whoever opens a transaction closes it and says what is true when it commits;
// spread over all packages nobody could read that.
func TestTransactions(t *testing.T) {
	t.Parallel()
	begins := []string{"Begin", "BeginTx", "BeginFunc", "BeginTxFunc"}
	for _, s := range sources(t) {
		if s.test || fitsAny(forTests, s.pkg) || mayBegin[s.pkg] != "" {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if slices.Contains(begins, n.Sel.Name) {
					t.Errorf("%s: package %s may not begin a transaction (see mayBegin in arch_test.go)", s.at(n), s.pkg)
				}
			case *ast.BasicLit:
				if text, err := strconv.Unquote(n.Value); n.Kind == token.STRING && err == nil && beginSQL.MatchString(text) {
					t.Errorf("%s: package %s may not begin a transaction, in SQL neither", s.at(n), s.pkg)
				}
			}
			return true
		})
	}
}

// store runs one statement a function on whatever it is handed: its callers
// decide what is atomic. Nobody may add it to mayBegin.
func TestStoreBeginsNothing(t *testing.T) {
	t.Parallel()
	if why, ok := mayBegin["internal/store"]; ok {
		t.Errorf("internal/store may not begin transactions, also not for %q", why)
	}
}

// net/http's ready-made client has no time limit, follows redirects, obeys proxy
// variables and sends a POST again by itself: each of them breaks a promise here.
func TestNoDefaultHTTPClient(t *testing.T) {
	t.Parallel()
	banned := []string{"DefaultClient", "Get", "Head", "Post", "PostForm"}
	for _, s := range sources(t) {
		if s.test || fitsAny(forTests, s.pkg) {
			continue
		}
		forEachUse(s, "net/http", banned, func(n *ast.SelectorExpr) {
			t.Errorf("%s: http.%s is net/http's default client: make one with limits", s.at(n), n.Sel.Name)
		})
	}
}

// A test that sleeps is slow when it passes and random when it fails: wait on a
// signal, or use testing/synctest.
func TestNoSleepInTests(t *testing.T) {
	t.Parallel()
	for _, s := range sources(t) {
		if !s.test && !fitsAny(forTests, s.pkg) {
			continue
		}
		forEachUse(s, "time", []string{"Sleep"}, func(n *ast.SelectorExpr) {
			t.Errorf("%s: time.Sleep in a test: wait on a signal instead", s.at(n))
		})
	}
}

// The API must start without any provider, and a hole in a provider's SDK must
// not be one in the process that faces the callers.
func TestNoProviderInAPI(t *testing.T) {
	t.Parallel()
	if files, err := filepath.Glob("cmd/api/*.go"); err != nil || len(files) == 0 {
		t.Skip("there is no cmd/api")
	}
	out, err := exec.Command("go", "list", "-deps", "./cmd/api").Output()
	if err != nil {
		t.Fatalf("list what cmd/api links: %v", err)
	}
	for dep := range strings.FieldsSeq(string(out)) {
		for _, sdk := range []string{"openai-go", "anthropic-sdk-go", module + "/internal/provider/", module + "/internal/worker", module + "/internal/fakellm"} {
			if strings.Contains(dep, sdk) {
				t.Errorf("cmd/api links %s", dep)
			}
		}
	}
}

// Whoever links the public packages gets no SDK of OpenTelemetry into the build, and
// of its API only what package enqueue needs to go on with the caller's own trace.
func TestPublicWithoutSDK(t *testing.T) {
	t.Parallel()
	for pkg, banned := range map[string][]string{
		"./api":        {"go.opentelemetry.io"},
		"./client/...": {"go.opentelemetry.io"},
		"./enqueue":    {"go.opentelemetry.io/otel/sdk", "go.opentelemetry.io/otel/exporters", "google.golang.org/grpc"},
	} {
		out, err := exec.Command("go", "list", "-deps", pkg).Output()
		if err != nil {
			t.Fatalf("list what %s links: %v", pkg, err)
		}
		for dep := range strings.FieldsSeq(string(out)) {
			for _, no := range banned {
				if strings.HasPrefix(dep, no) {
					t.Errorf("%s links %s", pkg, dep)
				}
			}
		}
	}
}
