package main

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/gate"
	"github.com/onefold-dev/onefold/internal/store"
)

type destinationsCmd struct {
	List    destinationsListCmd    `cmd:"" help:"List where effects go, and what waits there."`
	Hold    destinationsHoldCmd    `cmd:"" help:"Stop deliveries to a destination; what is to go there waits."`
	Release destinationsReleaseCmd `cmd:"" help:"Let deliveries to a destination go on."`
}

// destinationRow is a destination's gate with what waits behind it.
type destinationRow struct {
	api.Gate
	Waiting    int64 `json:"waiting"`
	Delivering int64 `json:"delivering"`
	Held       int64 `json:"held"`
}

type destinationsListCmd struct{ dbFlags }

func (c *destinationsListCmd) Help() string {
	return `A destination is listed once a worker whose onefold.yaml names it has started.`
}

func (c *destinationsListCmd) Run(ctx context.Context, e *env) error {
	pool, err := c.open(ctx, e)
	if err != nil {
		return err
	}
	defer pool.Close()
	all, err := destinationRows(ctx, pool)
	if err != nil {
		return dbProblem(err)
	}
	rows := [][]string{{"NAME", "STATE", "SINCE", "FAILURES", "WAITING", "HELD", "WHY"}}
	for _, d := range all {
		if e.json {
			if err := e.object(d); err != nil {
				return err
			}
			continue
		}
		state := string(d.State)
		if d.NeedsAttention {
			state += "!"
		}
		rows = append(rows, []string{
			d.Name, state, e.when(d.Since), strconv.Itoa(d.Failures), strconv.FormatInt(d.Waiting, 10), strconv.FormatInt(d.Held, 10), clean(d.Reason),
		})
	}
	if e.json {
		return nil
	}
	return e.rows(rows, nil)
}

func destinationRows(ctx context.Context, db store.DBTX) ([]destinationRow, error) {
	gates, now, err := store.Gates(ctx, db)
	if err != nil {
		return nil, err
	}
	open, err := store.OpenEffects(ctx, db)
	if err != nil {
		return nil, err
	}
	var out []destinationRow
	for _, g := range gates {
		if g.GateKey != gate.Destination(g.Name) {
			continue
		}
		out = append(out, destinationRow{
			Gate: gate.Wire(g, now), Waiting: open[g.Name][api.EffectWaiting], Delivering: open[g.Name][api.EffectDelivering], Held: open[g.Name][api.EffectHeld],
		})
	}
	return out, nil
}

type destinationsHoldCmd struct {
	dbFlags
	Name   string `arg:"" help:"The destination."`
	Reason string `required:"" help:"Why, for the audit and for whoever looks at it later."`
}

func (c *destinationsHoldCmd) Run(ctx context.Context, e *env) error {
	return c.gate(ctx, e, gate.Destination(c.Name), func(b *gate.Board, n gate.Name) (store.Gate, error) {
		return b.Hold(ctx, gate.Act{Gate: n, Actor: actor(), Reason: c.Reason})
	})
}

type destinationsReleaseCmd struct {
	dbFlags
	Name   string `arg:"" help:"The destination."`
	Reason string `help:"What was mended, for the audit."`
}

func (c *destinationsReleaseCmd) Run(ctx context.Context, e *env) error {
	return c.gate(ctx, e, gate.Destination(c.Name), func(b *gate.Board, n gate.Name) (store.Gate, error) {
		return b.Release(ctx, gate.Act{Gate: n, Actor: actor(), Reason: c.Reason})
	})
}

// gate does something to a gate that the database knows.
func (f *dbFlags) gate(ctx context.Context, e *env, n gate.Name, act func(*gate.Board, gate.Name) (store.Gate, error)) error {
	pool, err := f.open(ctx, e)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := knownGate(ctx, pool, n); err != nil {
		return err
	}
	board, err := gate.New(ctx, gate.Opts{Pool: pool, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return dbProblem(err)
	}
	g, err := act(board, n)
	if err != nil {
		return dbProblem(err)
	}
	if e.json {
		return e.object(gate.Wire(g, time.Now()))
	}
	return e.print(fmt.Sprintf("%s is %s; every worker knows within a second\n", g.Name, g.State))
}

func knownGate(ctx context.Context, pool *pgxpool.Pool, n gate.Name) error {
	gates, _, err := store.Gates(ctx, pool)
	if err != nil {
		return dbProblem(err)
	}
	for _, g := range gates {
		if g.GateKey == n {
			return nil
		}
	}
	return usage("there is no "+n.Scope+" "+strconv.Quote(n.Name), "See onefold %ss list.", n.Scope)
}
