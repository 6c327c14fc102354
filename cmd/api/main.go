// Command api serves onefold's HTTP API: it takes tasks and tells what became
// of them. It calls no model; workers do.
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/alecthomas/kong"

	"github.com/onefold-dev/onefold/internal/apid"
	"github.com/onefold-dev/onefold/internal/boot"
	"github.com/onefold-dev/onefold/internal/config"
)

type flags struct {
	Config      string           `help:"Configuration file; without one the kind llm.chat exists." env:"ONEFOLD_CONFIG" type:"path"`
	DatabaseURL string           `name:"database-url" help:"Postgres, possibly through a pooler." env:"ONEFOLD_DATABASE_URL"`
	DirectURL   string           `name:"database-direct-url" help:"Postgres past any pooler." env:"ONEFOLD_DATABASE_DIRECT_URL"`
	Addr        string           `help:"Where requests are served." env:"ONEFOLD_ADDR" default:"127.0.0.1:8080"`
	AdminAddr   string           `help:"Where pprof and health are served; nowhere by default." env:"ONEFOLD_ADMIN_ADDR"`
	LogLevel    string           `help:"debug, info, warn or error." env:"ONEFOLD_LOG_LEVEL" default:"info"`
	Healthcheck bool             `help:"Ask the api at --addr whether it lives, and exit with 0 or 1."`
	Version     kong.VersionFlag `help:"Print the version."`
}

func main() {
	ctx, stop := boot.Signals(context.Background())
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "api:", boot.Explain(err))
		os.Exit(1)
	}
}

// run is the program; tests start it, too.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var f flags
	parser := kong.Must(&f, kong.Name("api"), kong.Description("Serves onefold's HTTP API."),
		kong.Vars{"version": boot.Version}, kong.Writers(stdout, stderr))
	if _, err := parser.Parse(args); err != nil {
		return err
	}
	if f.Healthcheck {
		return boot.Healthcheck(ctx, f.Addr)
	}
	app, err := boot.Open(ctx, boot.Config{
		Service: "api", DatabaseURL: f.DatabaseURL, DirectURL: f.DirectURL, ConfigPath: f.Config, Addr: f.Addr, AdminAddr: f.AdminAddr,
		LogLevel: f.LogLevel, LogTo: stderr, Configuration: config.Opts{Getenv: os.Getenv, SkipSecrets: true},
	})
	if err != nil {
		return err
	}
	defer app.Close()
	return apid.Run(ctx, app, func(addr string) { fmt.Fprintf(stdout, "listening on http://%s\n", addr) })
}
