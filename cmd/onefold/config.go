package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/onefold-dev/onefold/internal/config"
)

type configCmd struct {
	Check configCheckCmd `cmd:"" help:"Check a configuration and show every problem in it."`
}

type configCheckCmd struct {
	File        string `arg:"" optional:"" help:"The file (ONEFOLD_CONFIG, else onefold.yaml where there is one)."`
	SkipSecrets bool   `help:"Do not ask for secrets: for checking away from where it runs."`
}

func (c *configCheckCmd) Run(_ context.Context, e *env) error {
	file := c.file(e)
	opts := config.Built(e.getenv)
	opts.SkipSecrets, opts.SkipSources = c.SkipSecrets, c.SkipSecrets
	cfg, err := config.Load(file, opts)
	if err != nil {
		var list config.Errors
		if e.json && errors.As(err, &list) {
			return e.problems(list)
		}
		return err
	}
	kinds := slices.Sorted(maps.Keys(cfg.Kinds))
	if e.json {
		b, err := json.Marshal(map[string]any{
			"file": cfg.File, "kinds": kinds,
			"providers": slices.Sorted(maps.Keys(cfg.Providers)), "destinations": slices.Sorted(maps.Keys(cfg.Destinations)),
		})
		if err != nil {
			return fmt.Errorf("encode: %w", err)
		}
		return e.print(string(b) + "\n")
	}
	return e.print(fmt.Sprintf("%s is in order\nkinds         %s\nproviders     %s\ndestinations  %s\n", cfg.File, strings.Join(kinds, ", "),
		names(cfg.Providers), names(cfg.Destinations)))
}

func names[T any](m map[string]T) string {
	if len(m) == 0 {
		return "-"
	}
	return strings.Join(slices.Sorted(maps.Keys(m)), ", ")
}

// file is the one given, the environment's, or the one that lies here; empty
// for what is built in.
func (c *configCheckCmd) file(e *env) string {
	const usual = "onefold.yaml"
	if c.File != "" {
		return c.File
	}
	if f := e.getenv("ONEFOLD_CONFIG"); f != "" {
		return f
	}
	if _, err := os.Stat(usual); err == nil {
		return usual
	}
	return ""
}

// problems prints one line of JSON for each.
func (e *env) problems(list config.Errors) error {
	for _, p := range list {
		b, err := json.Marshal(map[string]any{"file": p.File, "line": p.Line, "column": p.Column, "path": p.Path, "message": p.Message, "fix": p.Fix})
		if err != nil {
			return fmt.Errorf("encode: %w", err)
		}
		if err := e.print(string(b) + "\n"); err != nil {
			return err
		}
	}
	return ending(exitError)
}
