package main

import (
	"context"
	"errors"

	"github.com/onefold-dev/onefold/migrations"
)

type migrateCmd struct {
	dbFlags
	Check bool `help:"Change nothing; exit 1 when migrations are missing."`
}

func (c *migrateCmd) Help() string {
	return `It needs a role that may create schemas, and a direct connection (ONEFOLD_DATABASE_DIRECT_URL where the other is pooled). Several at once wait for each other.`
}

func (c *migrateCmd) Run(ctx context.Context, e *env) error {
	url, err := c.url(e)
	if err != nil {
		return err
	}
	if !c.Check {
		if err := migrations.Up(ctx, url); err != nil {
			return dbProblem(err)
		}
	}
	pool, err := c.open(ctx, e)
	if err != nil {
		if errors.Is(err, migrations.ErrOutdated) && !c.Check {
			return errors.New("the migrations ran, but the schema is not the newest")
		}
		return err
	}
	pool.Close()
	if e.json {
		return e.print(`{"current":true}` + "\n")
	}
	return e.print("the schema is current\n")
}
