// Command bench measures what onefold costs on this machine: submits, duplicates,
// the drain of a full queue, and the time from a submit to its result. Beside
// each figure runs pgbench with a single-row insert, and River's own insert, so
// that a figure can be read as a ratio, which depends far less on the machine.
//
//	go run .                            all of it, about five minutes
//	go run . -only 'drain' -rounds 1    one scenario, once
//	go run . -profile /tmp/p            also a CPU profile for each scenario
//	go run . -observe -rounds 15        what observing submits costs, by turns
//
// It starts a Postgres of its own, with fsync and synchronous_commit on, and
// removes it afterwards.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"
)

// options are what the command line asks for.
type options struct {
	only    *regexp.Regexp
	time    time.Duration
	tasks   int
	rounds  int
	json    string
	profile string
	data    string
	observe bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.SetOutput(stderr)
	only := fs.String("only", "", "run only the scenarios whose name matches this `regexp`")
	fs.DurationVar(&o.time, "time", 2*time.Second, "how long each scenario is measured in each round")
	fs.IntVar(&o.tasks, "tasks", 20000, "how many queued tasks the drain begins with")
	fs.IntVar(&o.rounds, "rounds", 3, "how often everything is measured; the medians count")
	fs.StringVar(&o.json, "json", "", "also write all figures to this `file`")
	fs.StringVar(&o.profile, "profile", "", "write a CPU profile of each scenario's last round into this `folder`")
	fs.StringVar(&o.data, "data", "", "make the database in this `folder` (default the temporary one): it should be on a disk like a server's")
	fs.BoolVar(&o.observe, "observe", false, "instead measure what it costs to keep and count submits for people to see: with and without in turns")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q: see -help", fs.Arg(0))
	}
	var err error
	if o.only, err = regexp.Compile(*only); err != nil {
		return o, fmt.Errorf("-only: %w", err)
	}
	if o.time <= 0 || o.tasks <= 0 || o.rounds <= 0 {
		return o, errors.New("-time, -tasks and -rounds must be above 0")
	}
	return o, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	chosen := choose(o)
	if len(chosen) == 0 {
		return errors.New("-only matches no scenario")
	}
	if o.profile != "" {
		if err := os.MkdirAll(o.profile, 0o755); err != nil {
			return fmt.Errorf("make the folder of the profiles: %w", err)
		}
	}
	c, err := startCluster(ctx, o.data)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if o.observe {
		return observe(ctx, c, o, stdout)
	}
	rep := &report{Machine: c.machine, Time: o.time.String(), Rounds: o.rounds, Tasks: o.tasks}
	for round := range o.rounds {
		if err := runRound(ctx, c, o, round, chosen, rep, stderr); err != nil {
			return err
		}
	}
	rep.finish()
	if o.json != "" {
		b, err := json.MarshalIndent(rep, "", "  ")
		if err == nil {
			err = os.WriteFile(o.json, append(b, '\n'), 0o644)
		}
		if err != nil {
			return fmt.Errorf("write the figures: %w", err)
		}
	}
	return rep.print(stdout)
}

// runRound measures each scenario between two runs of the reference: what slows
// the machine down for a while slows both.
func runRound(ctx context.Context, c *cluster, o options, round int, chosen []scenario, rep *report, progress io.Writer) error {
	before, err := c.reference(ctx, o)
	if err != nil {
		return err
	}
	for _, s := range chosen {
		m := &meter{cluster: c}
		if o.profile != "" && round == o.rounds-1 {
			m.profile = profileFile(o.profile, s.name)
		}
		if err := s.run(ctx, c, o, m); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		after, err := c.reference(ctx, o)
		if err != nil {
			return err
		}
		around := (before + after) / 2
		rep.add(s, m.result, around)
		fmt.Fprintf(progress, "round %d/%d  %-26s %9.0f/s   pgbench around it %7.0f/s\n", round+1, o.rounds, s.name, m.result.rate(), around)
		before = after
	}
	return nil
}
