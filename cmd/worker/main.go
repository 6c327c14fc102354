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
	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/workerd"
)

type flags struct {
	boot.Flags
	Lease       time.Duration `help:"How long a claim holds without a heartbeat." env:"ONEFOLD_LEASE" default:"15s"`
	Grace       time.Duration `help:"How long calls may finish at a stop." env:"ONEFOLD_GRACE" default:"25s"`
	RescueAfter time.Duration `help:"When River gives up on a row it thinks stuck, a backstop behind the lease; an hour beyond what a task may take by default." env:"ONEFOLD_RESCUE_AFTER"`
	Healthcheck bool          `help:"Ask the worker at --admin-addr whether it lives, and exit with 0 or 1."`
}

func main() { boot.Main("worker", run) }

// run is the program; tests start it, too.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var f flags
	parser := kong.Must(&f, kong.Name("worker"), kong.Description("Runs onefold's tasks and delivers their effects."),
		kong.Vars{"version": boot.Version}, kong.Writers(stdout, stderr))
	if _, err := parser.Parse(args); err != nil {
		return err
	}
	if f.Healthcheck {
		return boot.Healthcheck(ctx, f.AdminAddr, false)
	}
	opts := config.Built(os.Getenv)
	opts.SkipSources = true // the worker takes no webhooks
	c := f.Config("worker", opts, stderr)
	c.Lease = f.Lease
	app, err := boot.Open(ctx, c)
	if err != nil {
		return err
	}
	defer app.Close()
	return workerd.Run(ctx, app, workerd.Opts{Grace: f.Grace, RescueAfter: f.RescueAfter, Upkeep: true, Ready: func() { fmt.Fprintln(stdout, "working") }})
}
