package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/onefold-dev/onefold/internal/auth"
	"github.com/onefold-dev/onefold/internal/fair"
	"github.com/onefold-dev/onefold/internal/store"
)

type tenantsCmd struct {
	List tenantsListCmd `cmd:"" help:"List tenants and the weights of their shares."`
	Set  tenantsSetCmd  `cmd:"" help:"Set the weight of a tenant's share."`
}

type tenantsListCmd struct{ dbFlags }

func (c *tenantsListCmd) Run(ctx context.Context, e *env) error {
	pool, err := c.open(ctx, e)
	if err != nil {
		return err
	}
	defer pool.Close()
	all, err := store.Tenants(ctx, pool)
	if err != nil {
		return dbProblem(err)
	}
	rest := fair.DefaultWeight
	for _, t := range all {
		if t.ID == store.AnyTenant && t.Weight != nil {
			rest = *t.Weight
		}
	}
	rows := [][]string{{"TENANT", "WEIGHT", "SET"}}
	for _, t := range all {
		weight, set := rest, "default"
		if t.Weight != nil && t.UpdatedAt != nil {
			weight, set = *t.Weight, e.when(*t.UpdatedAt)
		}
		if e.json {
			err := e.object(struct {
				Tenant  string `json:"tenant"`
				Weight  int    `json:"weight"`
				Default bool   `json:"default"`
			}{t.ID, weight, t.Weight == nil})
			if err != nil {
				return err
			}
			continue
		}
		rows = append(rows, []string{clean(t.ID), strconv.Itoa(weight), set})
	}
	if e.json {
		return nil
	}
	return e.rows(rows, nil)
}

type tenantsSetCmd struct {
	dbFlags
	Tenant string `arg:"" help:"The tenant; '*' for all that have no setting of their own."`
	Weight int    `required:"" help:"1 to 10000, 100 where none is set; 0 goes back to that. With twice the weight a tenant is served twice as often."`
	Reason string `help:"Why, for the audit."`
}

func (c *tenantsSetCmd) Run(ctx context.Context, e *env) error {
	pool, err := c.open(ctx, e)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := auth.SetWeight(ctx, pool, c.Tenant, c.Weight, actor(), c.Reason); err != nil {
		return dbProblem(err)
	}
	return e.print(fmt.Sprintf("set; tasks submitted from now on are placed by it within a second (tenant %s)\n", clean(c.Tenant)))
}
