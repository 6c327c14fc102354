package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/onefold-dev/onefold/internal/boot"
	"github.com/onefold-dev/onefold/migrations"
)

// runtimePassword names the environment variable with the runtime role's password.
const runtimePassword = "ONEFOLD_RUNTIME_PASSWORD"

type migrateCmd struct {
	dbFlags
	Check       bool          `xor:"change" help:"Change nothing; exit 1 when migrations are missing."`
	RuntimeRole string        `xor:"change" placeholder:"NAME" help:"Also let this role, made where it is new, do what api and worker do and no more."`
	Lease       time.Duration `default:"15s" help:"The workers' --lease, where it is another: it bounds the runtime role's idle transactions."`
}

func (c *migrateCmd) Help() string {
	return `It needs a role that may create schemas, and a direct connection (ONEFOLD_DATABASE_DIRECT_URL where the other is pooled). Several at once wait for each other.

With --runtime-role, api and worker need not log in as the role that owns the tables: theirs reads and writes them, cannot change them, and carries the time limits its connections must have. Its password is set to that in ` + runtimePassword + `, where there is one. Repeat it with each migration.`
}

func (c *migrateCmd) Run(ctx context.Context, e *env) error {
	url, err := c.url(e)
	if err != nil {
		return err
	}
	if c.Lease < boot.MinLease {
		return usage(fmt.Sprintf("a lease of %s is too short", c.Lease), "Give what the workers get as --lease, %s or more.", boot.MinLease)
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
	if c.RuntimeRole != "" {
		if err := c.grant(ctx, e, url); err != nil {
			return err
		}
	}
	if e.json {
		return e.print(`{"current":true}` + "\n")
	}
	return e.print("the schema is current\n")
}

func (c *migrateCmd) grant(ctx context.Context, e *env, url string) error {
	err := migrations.Grant(ctx, url, migrations.Role{
		Name: c.RuntimeRole, Password: e.getenv(runtimePassword), Settings: boot.Settings(c.Lease),
	})
	var denied *migrations.RoleError
	switch {
	case err == nil:
		e.say("the role %s may do what api and worker do; connections it has now keep their old limits until they are made anew", c.RuntimeRole)
		return nil
	case errors.As(err, &denied):
		return &problem{
			code: exitError, message: denied.Error(), cause: err,
			fix: "Have a superuser run this in the database, and then the same command again: " + strings.Join(denied.SQL, "; "),
		}
	case errors.Is(err, migrations.ErrRole):
		return &problem{code: exitError, message: err.Error(), cause: err}
	}
	return dbProblem(err)
}
