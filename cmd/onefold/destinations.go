package main

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/destination"
	"github.com/onefold-dev/onefold/internal/gate"
	"github.com/onefold-dev/onefold/internal/store"
)

type destinationsCmd struct {
	List    destinationsListCmd    `cmd:"" help:"List where effects go, and what waits there."`
	Show    destinationsShowCmd    `cmd:"" help:"Show a destination with the secrets that sign for it."`
	Hold    destinationsHoldCmd    `cmd:"" help:"Stop deliveries to a destination; what is to go there waits."`
	Release destinationsReleaseCmd `cmd:"" help:"Let deliveries to a destination go on."`
	Test    destinationsTestCmd    `cmd:"" help:"Send one signed test event and show what comes of it."`
	Put     destinationsPutCmd     `cmd:"" help:"Make or change a destination that is stored in the database."`
	Rotate  destinationsRotateCmd  `cmd:"" help:"Give a stored destination a new signing secret; the former one signs, too, for a while."`
	Delete  destinationsDeleteCmd  `cmd:"" help:"Delete a stored destination."`
	Rewrap  destinationsRewrapCmd  `cmd:"" help:"Seal all stored secrets anew under the first key of the ring."`
	Key     destinationsKeyCmd     `cmd:"" help:"Make a key for the ring that seals stored secrets."`
}

type destinationsListCmd struct{ dbFlags }

func (c *destinationsListCmd) Help() string {
	return `A destination of onefold.yaml is listed once a worker that has it has started.`
}

func (c *destinationsListCmd) Run(ctx context.Context, e *env) error {
	return c.book(ctx, e, func(b *destination.Book) error {
		all, err := b.List(ctx, b.Pool)
		if err != nil {
			return dbProblem(err)
		}
		rows := [][]string{{"NAME", "STATE", "SINCE", "FAILURES", "WAITING", "HELD", "UNKNOWN", "SECRET", "WHY"}}
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
			why := d.Reason
			if d.Problem != "" {
				why = d.Problem
			}
			rows = append(rows, []string{
				clean(d.Name), state, e.when(d.Since), strconv.Itoa(d.Failures), strconv.FormatInt(d.Waiting, 10), strconv.FormatInt(d.Held, 10),
				strconv.FormatInt(d.Unknown, 10), secretAge(d), clean(why),
			})
		}
		if e.json {
			return nil
		}
		return e.rows(rows, nil)
	})
}

// secretAge is how long the newest secret has been in use, with a mark where it should be rotated.
func secretAge(d api.Destination) string {
	if len(d.Secrets) == 0 {
		return "-"
	}
	s := d.Secrets[0]
	age := strconv.Itoa(int(time.Since(s.Since)/(24*time.Hour))) + " d"
	if s.Old {
		age += "!"
	}
	return age
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
