package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/doctor"
)

type doctorCmd struct {
	dbFlags
	Config string `placeholder:"FILE" help:"The configuration (ONEFOLD_CONFIG, else onefold.yaml where there is one)."`
}

func (c *doctorCmd) Help() string {
	return `It looks and changes nothing, directly on the database. The exit code is 1 when something is bad: a promise does not hold, or work does not get done.`
}

func (c *doctorCmd) Run(ctx context.Context, e *env) error {
	opts := config.Built(e.getenv)
	opts.SkipSecrets = true
	cfg, err := config.Load((&configCheckCmd{File: c.Config}).file(e), opts)
	if err != nil {
		return err
	}
	pool, err := c.open(ctx, e)
	if err != nil {
		return err
	}
	defer pool.Close()
	found := doctor.Run(ctx, doctor.Env{DB: pool, Config: cfg}, doctor.Checks)
	for _, f := range found {
		if e.json {
			err = e.jsonLine(f)
		} else {
			err = e.print(e.finding(f))
		}
		if err != nil {
			return err
		}
	}
	if doctor.Worst(found) == doctor.Bad {
		return ending(exitError)
	}
	return nil
}

// finding shows one finding to a person.
func (e *env) finding(f doctor.Finding) string {
	word := fmt.Sprintf("%-5s", f.Level)
	if e.color {
		word = map[doctor.Level]string{doctor.Fine: green, doctor.Note: grey, doctor.Warn: yellow, doctor.Bad: red}[f.Level] + word + off
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s: %s: %s\n", word, f.Check, clean(f.Subject), clean(f.Text))
	if f.Fix != "" {
		fmt.Fprintf(&b, "      %s\n", clean(f.Fix))
	}
	return b.String()
}
