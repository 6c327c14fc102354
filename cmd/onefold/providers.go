package main

import (
	"context"
	"strconv"

	"github.com/onefold-dev/onefold/internal/gate"
	"github.com/onefold-dev/onefold/internal/store"
)

type providersCmd struct {
	List    providersListCmd    `cmd:"" help:"List the providers, what waits for them, and how many workers serve them."`
	Hold    providersHoldCmd    `cmd:"" help:"Stop calls to a provider; its tasks wait."`
	Release providersReleaseCmd `cmd:"" help:"Let calls to a provider go on."`
}

type providersListCmd struct{ dbFlags }

func (c *providersListCmd) Help() string {
	return `A provider is listed once a worker whose onefold.yaml names it has started, or tasks wait for it.`
}

func (c *providersListCmd) Run(ctx context.Context, e *env) error {
	pool, err := c.open(ctx, e)
	if err != nil {
		return err
	}
	defer pool.Close()
	all, err := gate.Providers(ctx, pool)
	if err != nil {
		return dbProblem(err)
	}
	rows := [][]string{{"NAME", "STATE", "SINCE", "WAITING", "RUNNING", "WORKERS", "WHY"}}
	for _, p := range all {
		if e.json {
			if err := e.object(p); err != nil {
				return err
			}
			continue
		}
		rows = append(rows, []string{
			clean(p.Name), string(p.State), e.when(p.Since), strconv.FormatInt(p.Waiting, 10), strconv.FormatInt(p.Running, 10),
			strconv.Itoa(p.Workers), clean(p.Reason),
		})
	}
	if e.json {
		return nil
	}
	return e.rows(rows, nil)
}

type providersHoldCmd struct {
	dbFlags
	Name   string `arg:"" help:"The provider."`
	Reason string `required:"" help:"Why, for the audit and for whoever looks at it later."`
}

func (c *providersHoldCmd) Run(ctx context.Context, e *env) error {
	return c.gate(ctx, e, gate.Provider(c.Name), func(b *gate.Board, n gate.Name) (store.Gate, error) {
		return b.Hold(ctx, gate.Act{Gate: n, Actor: actor(), Reason: c.Reason})
	})
}

type providersReleaseCmd struct {
	dbFlags
	Name   string `arg:"" help:"The provider."`
	Reason string `help:"What was mended, for the audit."`
}

func (c *providersReleaseCmd) Run(ctx context.Context, e *env) error {
	return c.gate(ctx, e, gate.Provider(c.Name), func(b *gate.Board, n gate.Name) (store.Gate, error) {
		return b.Release(ctx, gate.Act{Gate: n, Actor: actor(), Reason: c.Reason})
	})
}
