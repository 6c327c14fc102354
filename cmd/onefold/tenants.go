package main

import (
	"context"
	"fmt"
	"math"
	"strconv"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/auth"
	"github.com/onefold-dev/onefold/internal/fair"
	"github.com/onefold-dev/onefold/internal/store"
)

type tenantsCmd struct {
	List tenantsListCmd `cmd:"" help:"List tenants, the weights of their shares and their quotas."`
	Set  tenantsSetCmd  `cmd:"" help:"Set the weight of a tenant's share, and its quotas."`
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
	rows := [][]string{{"TENANT", "WEIGHT", "PER SECOND", "QUEUED", "MOST QUEUED", "SET"}}
	for _, t := range all {
		weight, set := rest, "default"
		if t.Weight != nil {
			weight = *t.Weight
		}
		if t.UpdatedAt != nil && (t.Weight != nil || t.Bounds.Requests != nil || t.Bounds.Queued != nil) {
			set = e.when(*t.UpdatedAt)
		}
		if e.json {
			err := e.object(struct {
				Tenant  string `json:"tenant"`
				Weight  int    `json:"weight"`
				Default bool   `json:"default"`
				// As it was set for this tenant; absent: that of "*".
				RequestsPerSecond string `json:"requests_per_second,omitempty"`
				MostQueued        string `json:"most_queued,omitempty"`
				Queued            *int64 `json:"queued,omitempty"`
			}{t.ID, weight, t.Weight == nil, bound(t.Bounds.Requests, ""), bound(t.Bounds.Queued, ""), t.Queued})
			if err != nil {
				return err
			}
			continue
		}
		rows = append(rows, []string{clean(t.ID), strconv.Itoa(weight), bound(t.Bounds.Requests, "-"), queuedNow(t.Queued), bound(t.Bounds.Queued, "-"), set})
	}
	if e.json {
		return nil
	}
	return e.rows(rows, nil)
}

// bound is a quota as text.
func bound(q *float64, none string) string {
	switch {
	case q == nil:
		return none
	case math.IsInf(*q, 1):
		return "inf"
	}
	return strconv.FormatFloat(*q, 'f', -1, 64)
}

func queuedNow(n *int64) string {
	if n == nil {
		return "-"
	}
	return strconv.FormatInt(*n, 10)
}

type tenantsSetCmd struct {
	dbFlags
	Tenant            string   `arg:"" help:"The tenant; '*' for all that have no setting of their own."`
	Weight            *int     `help:"1 to 10000, 100 where none is set; 0 goes back to that. With twice the weight a tenant is served twice as often."`
	RequestsPerSecond *float64 `help:"New tasks a second over all processes, a second's worth at once; duplicates do not count. 0: that of '*'; inf: no bound."`
	Queued            *float64 `help:"Tasks that wait at a time; lines of a batch wait to be queued, and leave a tenth to others. 0: that of '*'; inf: no bound."`
	Reason            string   `help:"Why, for the audit."`
}

func (c *tenantsSetCmd) Run(ctx context.Context, e *env) error {
	if c.Weight == nil && c.RequestsPerSecond == nil && c.Queued == nil {
		return usage("nothing is to be set", "Give --weight, --requests-per-second or --queued.")
	}
	pool, err := c.open(ctx, e)
	if err != nil {
		return err
	}
	defer pool.Close()
	if c.Weight != nil {
		if err := auth.SetWeight(ctx, pool, c.Tenant, *c.Weight, actor(), c.Reason); err != nil {
			return dbProblem(err)
		}
	}
	for q, value := range map[api.Quota]*float64{api.QuotaRequests: c.RequestsPerSecond, api.QuotaQueued: c.Queued} {
		if value == nil {
			continue
		}
		if err := auth.SetQuota(ctx, pool, c.Tenant, q, *value, actor(), c.Reason); err != nil {
			return dbProblem(err)
		}
	}
	return e.print(fmt.Sprintf("set; submits from now on go by it within a second or two (tenant %s)\n", clean(c.Tenant)))
}
