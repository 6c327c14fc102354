package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onefold-dev/onefold/internal/boot"
	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/doctor"
	"github.com/onefold-dev/onefold/internal/telemetry"
)

type doctorCmd struct {
	dbFlags
	Config string        `placeholder:"FILE" help:"The configuration (ONEFOLD_CONFIG, else onefold.yaml where there is one)."`
	Limit  time.Duration `default:"1m" placeholder:"TIME" help:"How long all checks may take together; one takes 10 s at most."`
	JSON   bool          `name:"json" help:"The same as -o json."`
}

func (c *doctorCmd) Help() string {
	return `It looks and changes nothing, directly on the database; what cannot be looked at is said and the rest looked at all the same. The exit code is 1 when something fails: a promise does not hold, or work does not get done.`
}

func (c *doctorCmd) Run(ctx context.Context, e *env) error {
	opts := config.Built(e.getenv)
	opts.SkipSecrets, opts.SkipSources = true, true
	look := doctor.Env{Version: boot.Version}
	look.Config, look.ConfigErr = config.Load((&configCheckCmd{File: c.Config}).file(e), opts)
	pool, err := c.lookAt(ctx, e)
	if err != nil {
		return err
	}
	// Its connections may belong to a server that does not answer any more: nobody waits for their end.
	defer func() { go pool.Close() }()
	look.DB = pool
	limited, cancel := context.WithTimeout(ctx, c.Limit)
	defer cancel()
	found := doctor.Run(limited, look, doctor.Checks)
	for _, f := range found {
		if e.json || c.JSON {
			err = e.jsonLine(f)
		} else {
			err = e.print(e.finding(f))
		}
		if err != nil {
			return err
		}
	}
	if doctor.Worst(found) == doctor.Fail {
		return ending(exitError)
	}
	return nil
}

// lookAt makes a pool without connecting: a database that is away is a finding.
// The server itself ends what waits for a lock or runs for long.
func (c *doctorCmd) lookAt(ctx context.Context, e *env) (*pgxpool.Pool, error) {
	url, err := c.url(e)
	if err != nil {
		return nil, err
	}
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("read the database's URL: %s", telemetry.ScrubError(err))
	}
	cfg.MaxConns = 2
	cfg.ConnConfig.ConnectTimeout = 5 * time.Second
	for name, ms := range map[string]string{"statement_timeout": "9000", "lock_timeout": "3000"} {
		if cfg.ConnConfig.RuntimeParams[name] == "" {
			cfg.ConnConfig.RuntimeParams[name] = ms
		}
	}
	return pgxpool.NewWithConfig(ctx, cfg)
}

// finding shows one finding to a person.
func (e *env) finding(f doctor.Finding) string {
	word := fmt.Sprintf("%-5s", f.Level)
	if e.color {
		word = map[doctor.Level]string{doctor.OK: green, doctor.Note: grey, doctor.Warn: yellow, doctor.Fail: red}[f.Level] + word + off
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s: %s: %s\n", word, f.Check, clean(f.Subject), clean(f.Text))
	if f.Fix != "" {
		fmt.Fprintf(&b, "      %s\n", clean(f.Fix))
	}
	return b.String()
}
