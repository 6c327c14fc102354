package boot

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/telemetry"
)

// Version is the version of this build, set by -ldflags.
var Version = "dev"

// DefaultLease is how long a worker's claim holds without a heartbeat, where
// nothing else is configured.
const DefaultLease = 15 * time.Second

// MinLease is the shortest lease that heartbeats over a busy database can keep.
const MinLease = 3 * time.Second

// Config is what every process is started with. Only Service and DatabaseURL
// are required.
type Config struct {
	Service     string // "api" or "worker": the name connections and logs carry
	DatabaseURL string // may lead through a transaction pooler when DirectURL is given
	DirectURL   string // for LISTEN and migrations; DatabaseURL when empty
	ConfigPath  string // onefold.yaml; the built-in configuration when empty
	Addr        string // where requests are served
	TLSCert     string // file of the certificate that requests are served with; plain HTTP when empty
	TLSKey      string // file of its key
	Region      string // where this process stands, told to receivers of effects; nothing when empty
	AdminAddr   string // where pprof and health are served; nowhere when empty
	LogLevel    string // debug, info, warn or error; info when empty

	// Configuration says what this program has built in.
	Configuration config.Opts
	// SealKeys is the key ring of secrets at rest. Nil: none can be stored or used.
	SealKeys *telemetry.SecretSource
	// Lease bounds how long a transaction may sit idle. DefaultLease when 0.
	Lease time.Duration
	// MaxConns bounds the pool. When 0, pool_max_conns in DatabaseURL does, else 16.
	MaxConns int32
	// StartPatience is how long a start waits for a database that is not there
	// yet. A minute when 0.
	StartPatience time.Duration
	// Getenv reads the variables that switch traces on. Nil: there are none.
	Getenv func(string) string
	// LogTo receives the log; os.Stderr is for the mains to pass.
	LogTo io.Writer
}

// Validate fills the defaults in and reports all that is wrong at once.
func (c *Config) Validate() error {
	var problems []error
	note := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if c.Service == "" {
		note("boot: no service name")
	}
	if c.DatabaseURL == "" {
		note("no database: give --database-url or ONEFOLD_DATABASE_URL, for example postgres://onefold@localhost/onefold")
	}
	if c.DirectURL == "" {
		c.DirectURL = c.DatabaseURL
	}
	if c.Lease == 0 {
		c.Lease = DefaultLease
	}
	if c.Lease < MinLease {
		note("a lease of %s is too short: %s is the least", c.Lease, MinLease)
	}
	if c.StartPatience == 0 {
		c.StartPatience = time.Minute
	}
	if c.LogTo == nil {
		c.LogTo = io.Discard
	}
	if _, err := level(c.LogLevel); err != nil {
		note("%w", err)
	}
	return errors.Join(problems...)
}

// Pooled says whether DatabaseURL leads through a pooler: then no session
// setting and no prepared statement outlives a transaction.
func (c *Config) Pooled() bool { return c.DirectURL != c.DatabaseURL }

func level(name string) (slog.Level, error) {
	if name == "" {
		return slog.LevelInfo, nil
	}
	var l slog.Level
	if err := l.UnmarshalText([]byte(strings.ToUpper(name))); err != nil {
		return 0, fmt.Errorf("%q is no log level: use debug, info, warn or error", name)
	}
	return l, nil
}
