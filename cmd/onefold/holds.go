package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/gate"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
)

type holdCmd struct {
	dbFlags
	Tenant      string   `placeholder:"TENANT" help:"Only this tenant's."`
	Kind        string   `placeholder:"KIND" help:"Only this kind."`
	Provider    string   `placeholder:"NAME" help:"Only what calls this provider."`
	Destination string   `placeholder:"NAME" help:"Only deliveries to this destination."`
	Stops       []string `default:"claims" enum:"submits,claims,retries" help:"What to stop: submits (new tasks, 503), claims (what waits is not begun), retries (what was tried is not tried again by itself)."`
	Reason      string   `required:"" help:"Why, for the audit and for whoever looks at it later."`
}

func (c *holdCmd) Run(ctx context.Context, e *env) error {
	if c.Tenant == "" && c.Kind == "" && c.Provider == "" && c.Destination == "" {
		return usage("the hold names nothing", "Give --tenant, --kind, --provider or --destination.")
	}
	return c.board(ctx, e, func(_ *pgxpool.Pool, b *gate.Board) error {
		h := store.Hold{Tenant: c.Tenant, Kind: c.Kind, Provider: c.Provider, Destination: c.Destination, Reason: c.Reason, Actor: actor()}
		for _, s := range c.Stops {
			h.Stops = append(h.Stops, api.Stop(s))
		}
		made, err := b.SetHold(ctx, h)
		if err != nil {
			return dbProblem(err)
		}
		if e.json {
			return e.object(gate.WireHold(*made))
		}
		return e.print(fmt.Sprintf("held; to let it go on: onefold release %s\n", made.ID))
	})
}

type releaseCmd struct {
	dbFlags
	ID     string `arg:"" help:"The hold's id (onefold holds)."`
	Reason string `help:"Why, for the audit."`
}

func (c *releaseCmd) Run(ctx context.Context, e *env) error {
	id, err := task.ParseID(c.ID)
	if err != nil {
		return usage("that is no id of a hold", "See onefold holds.")
	}
	return c.board(ctx, e, func(_ *pgxpool.Pool, b *gate.Board) error {
		h, err := b.TakeHold(ctx, "", id, actor(), c.Reason)
		if err != nil {
			return dbProblem(err)
		}
		if e.json {
			return e.object(gate.WireHold(*h))
		}
		return e.print("released; what waits is begun within seconds\n")
	})
}

type holdsCmd struct{ dbFlags }

func (c *holdsCmd) Run(ctx context.Context, e *env) error {
	return c.board(ctx, e, func(pool *pgxpool.Pool, _ *gate.Board) error {
		all, err := store.Holds(ctx, pool, "")
		if err != nil {
			return dbProblem(err)
		}
		rows := [][]string{{"ID", "TENANT", "KIND", "PROVIDER", "DESTINATION", "STOPS", "SINCE", "BY", "WHY"}}
		for _, h := range all {
			w := gate.WireHold(h)
			if e.json {
				if err := e.object(w); err != nil {
					return err
				}
				continue
			}
			words := make([]string, len(h.Stops))
			for i, s := range h.Stops {
				words[i] = string(s)
			}
			rows = append(rows, []string{
				w.ID, clean(w.Tenant), clean(w.Kind), clean(w.Provider), clean(w.Destination), strings.Join(words, ","), e.when(w.CreatedAt),
				clean(w.Actor), clean(w.Reason),
			})
		}
		if e.json {
			return nil
		}
		return e.rows(rows, nil)
	})
}

// board opens the database and reads its gates and holds.
func (f *dbFlags) board(ctx context.Context, e *env, do func(*pgxpool.Pool, *gate.Board) error) error {
	pool, err := f.open(ctx, e)
	if err != nil {
		return err
	}
	defer pool.Close()
	b, err := gate.New(ctx, gate.Opts{Pool: pool, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return dbProblem(err)
	}
	return do(pool, b)
}
