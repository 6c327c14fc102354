// Command worker runs tasks: it claims them, calls the providers, delivers
// effects, and takes over from workers that are gone.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/alecthomas/kong"

	"github.com/onefold-dev/onefold/internal/boot"
	"github.com/onefold-dev/onefold/internal/workerd"
)

type flags struct {
	Config      string           `help:"Configuration file; without one the kind llm.chat exists." env:"ONEFOLD_CONFIG" type:"path"`
	DatabaseURL string           `name:"database-url" help:"Postgres, possibly through a pooler." env:"ONEFOLD_DATABASE_URL"`
	DirectURL   string           `name:"database-direct-url" help:"Postgres past any pooler." env:"ONEFOLD_DATABASE_DIRECT_URL"`
	AdminAddr   string           `help:"Where pprof and health are served; nowhere by default." env:"ONEFOLD_ADMIN_ADDR"`
	LogLevel    string           `help:"debug, info, warn or error." env:"ONEFOLD_LOG_LEVEL" default:"info"`
	Lease       time.Duration    `help:"How long a claim holds without a heartbeat." env:"ONEFOLD_LEASE" default:"15s"`
	Grace       time.Duration    `help:"How long calls may finish at a stop." env:"ONEFOLD_GRACE" default:"25s"`
	Healthcheck bool             `help:"Ask the worker at --admin-addr whether it lives, and exit with 0 or 1."`
	Version     kong.VersionFlag `help:"Print the version."`
}

func main() {
	ctx, stop := boot.Signals(context.Background())
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker:", boot.Explain(err))
		os.Exit(1)
	}
}

// run is the program; tests start it, too.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var f flags
	parser := kong.Must(&f, kong.Name("worker"), kong.Description("Runs onefold's tasks and delivers their effects."),
		kong.Vars{"version": boot.Version}, kong.Writers(stdout, stderr))
	if _, err := parser.Parse(args); err != nil {
		return err
	}
	if f.Healthcheck {
		return boot.Healthcheck(ctx, f.AdminAddr)
	}
	app, err := boot.Open(ctx, boot.Config{
		Service: "worker", DatabaseURL: f.DatabaseURL, DirectURL: f.DirectURL, ConfigPath: f.Config, AdminAddr: f.AdminAddr,
		LogLevel: f.LogLevel, LogTo: stderr, Lease: f.Lease, Configuration: workerd.Configuration(os.Getenv),
	})
	if err != nil {
		return err
	}
	defer app.Close()
	return workerd.Run(ctx, app, workerd.Opts{Grace: f.Grace, Upkeep: true, Ready: func() { fmt.Fprintln(stdout, "working") }})
}
