package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// VirtualOrigin is where virtual time begins: a wake-up's scheduled_at is it and
// the task's place. No place reaches virtualEnd, and nothing real lies before it.
var VirtualOrigin = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

const virtualEnd = `'2021-01-01 00:00:00+00'::timestamptz`

// Flow names one row of onefold.flows.
type Flow struct {
	Provider, Tenant string
	Batch            bool
	Priority         int16
}

// Reached is how far the places of a flow are given out, in nanoseconds of
// virtual time.
type Reached struct {
	Flow
	Finish int64
}

// Advance is what one process gave out of a flow: places of that width together,
// beginning at From or later and up to Finish.
type Advance struct {
	Flow
	From, Width, Finish int64
}

// FlowsAhead reads the flows of some providers that have given out places beyond
// those that are served.
func FlowsAhead(ctx context.Context, db DBTX, served map[string]int64) ([]Reached, error) {
	if len(served) == 0 {
		return nil, nil
	}
	var providers []string
	var heads []int64
	for p, head := range served {
		providers, heads = append(providers, p), append(heads, head)
	}
	rows, err := db.Query(ctx, `
SELECT f.provider, f.tenant, f.batch, f.priority, f.finish
FROM unnest($1::text[], $2::bigint[]) AS q (provider, head)
JOIN onefold.flows AS f USING (provider)
WHERE f.finish > q.head`, providers, heads)
	if err != nil {
		return nil, fmt.Errorf("read flows: %w", err)
	}
	return collectReached(rows)
}

// Flows reads all of them.
func Flows(ctx context.Context, db DBTX) ([]Reached, error) {
	rows, err := db.Query(ctx, `SELECT provider, tenant, batch, priority, finish FROM onefold.flows`)
	if err != nil {
		return nil, fmt.Errorf("read flows: %w", err)
	}
	return collectReached(rows)
}

func collectReached(rows pgx.Rows) ([]Reached, error) {
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r Reached, err error) {
		err = row.Scan(&r.Provider, &r.Tenant, &r.Batch, &r.Priority, &r.Finish)
		return r, err
	})
	if err != nil {
		return nil, fmt.Errorf("read flows: %w", err)
	}
	return out, nil
}

// flowColumns are flows as arrays, in the order of their rows' locks.
func flowColumns(flows []Flow) (providers, tenants []string, batches []bool, priorities []int16) {
	for _, f := range flows {
		providers, tenants = append(providers, f.Provider), append(tenants, f.Tenant)
		batches, priorities = append(batches, f.Batch), append(priorities, f.Priority)
	}
	return providers, tenants, batches, priorities
}

func compareFlows(a, b Flow) int {
	ab, bb := 0, 0
	if a.Batch {
		ab = 1
	}
	if b.Batch {
		bb = 1
	}
	return cmp.Or(strings.Compare(a.Provider, b.Provider), strings.Compare(a.Tenant, b.Tenant), cmp.Compare(ab, bb), cmp.Compare(a.Priority, b.Priority))
}

const ensureFlows = `
INSERT INTO onefold.flows (provider, tenant, batch, priority)
SELECT *
FROM unnest($1::text[], $2::text[], $3::boolean[], $4::smallint[]) AS q (provider, tenant, batch, priority)
ORDER BY 1, 2, 3, 4
ON CONFLICT DO NOTHING`

const advanceFlows = `
WITH q AS (
    SELECT *
    FROM unnest($1::text[], $2::text[], $3::boolean[], $4::smallint[], $5::bigint[], $6::bigint[], $7::bigint[])
        AS q (provider, tenant, batch, priority, "from", width, finish)
), cur AS (
    SELECT f.provider, f.tenant, f.batch, f.priority
    FROM onefold.flows AS f
    JOIN q USING (provider, tenant, batch, priority)
    ORDER BY 1, 2, 3, 4
    FOR UPDATE OF f
)
UPDATE onefold.flows AS f
SET finish = greatest(greatest(f.finish, q."from") + q.width, q.finish)
FROM cur
JOIN q USING (provider, tenant, batch, priority)
WHERE (f.provider, f.tenant, f.batch, f.priority) = (cur.provider, cur.tenant, cur.batch, cur.priority)
RETURNING f.provider, f.tenant, f.batch, f.priority, f.finish`

// AdvanceFlows adds what a process gave out to what all have, and returns how
// far they are.
func AdvanceFlows(ctx context.Context, db DBTX, all []Advance) ([]Reached, error) {
	flows := make([]Flow, len(all))
	froms, widths, finishes := make([]int64, len(all)), make([]int64, len(all)), make([]int64, len(all))
	for i, a := range all {
		flows[i], froms[i], widths[i], finishes[i] = a.Flow, a.From, a.Width, a.Finish
	}
	providers, tenants, batches, priorities := flowColumns(flows)
	if _, err := db.Exec(ctx, ensureFlows, providers, tenants, batches, priorities); err != nil {
		return nil, fmt.Errorf("make flows: %w", err)
	}
	rows, err := db.Query(ctx, advanceFlows, providers, tenants, batches, priorities, froms, widths, finishes)
	if err != nil {
		return nil, fmt.Errorf("advance flows: %w", err)
	}
	return collectReached(rows)
}

// ChargeFlows notes what a transaction gave out, without a lock that others
// would wait for; FoldCharges adds it up.
func ChargeFlows(ctx context.Context, tx DBTX, all []Advance) error {
	slices.SortFunc(all, func(a, b Advance) int { return compareFlows(a.Flow, b.Flow) })
	flows, finishes := make([]Flow, len(all)), make([]int64, len(all))
	for i, a := range all {
		flows[i], finishes[i] = a.Flow, a.Finish
	}
	providers, tenants, batches, priorities := flowColumns(flows)
	_, err := tx.Exec(ctx, `
INSERT INTO onefold.flow_charges (provider, tenant, batch, priority, finish)
SELECT *
FROM unnest($1::text[], $2::text[], $3::boolean[], $4::smallint[], $5::bigint[])`, providers, tenants, batches, priorities, finishes)
	if err != nil {
		return fmt.Errorf("charge flows: %w", err)
	}
	return nil
}

// FoldCharges adds up to most charges to their flows.
func FoldCharges(ctx context.Context, db DBTX, most int) error {
	_, err := db.Exec(ctx, `
WITH gone AS (
    DELETE FROM onefold.flow_charges AS c
    WHERE c.ctid = ANY (ARRAY(SELECT ctid FROM onefold.flow_charges LIMIT $1 FOR UPDATE SKIP LOCKED))
    RETURNING c.provider, c.tenant, c.batch, c.priority, c.finish
)
INSERT INTO onefold.flows AS f (provider, tenant, batch, priority, finish)
SELECT provider, tenant, batch, priority, max(finish)
FROM gone
GROUP BY 1, 2, 3, 4
ORDER BY 1, 2, 3, 4
ON CONFLICT (provider, tenant, batch, priority) DO UPDATE
SET finish = greatest(f.finish, excluded.finish)`, most)
	if err != nil {
		return fmt.Errorf("fold charges of flows: %w", err)
	}
	return nil
}

// FlowsOf reads how far the traffic of some tenants is, charges included, and
// the weights that operators set, 0 where they did not.
func FlowsOf(ctx context.Context, db DBTX, flows []Flow) ([]Reached, map[string]int, error) {
	providers, tenants, _, _ := flowColumns(flows)
	rows, err := db.Query(ctx, `
SELECT provider, tenant, batch, priority, max(finish)
FROM (
    SELECT provider, tenant, batch, priority, finish FROM onefold.flows
    UNION ALL
    SELECT provider, tenant, batch, priority, finish FROM onefold.flow_charges
) AS f
WHERE provider = ANY ($1) AND tenant = ANY ($2)
GROUP BY 1, 2, 3, 4`, providers, tenants)
	if err != nil {
		return nil, nil, fmt.Errorf("read flows: %w", err)
	}
	got, err := collectReached(rows)
	if err != nil {
		return nil, nil, err
	}
	weights := map[string]int{}
	rows, err = db.Query(ctx, `
SELECT q.tenant, coalesce(s.weight, d.weight, 0)
FROM unnest($1::text[]) AS q (tenant)
LEFT JOIN onefold.tenant_settings AS s ON s.tenant = q.tenant
LEFT JOIN onefold.tenant_settings AS d ON d.tenant = '*'`, tenants)
	if err != nil {
		return nil, nil, fmt.Errorf("read weights: %w", err)
	}
	var tenant string
	var weight int
	_, err = pgx.ForEachRow(rows, []any{&tenant, &weight}, func() error {
		weights[tenant] = weight
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("read weights: %w", err)
	}
	return got, weights, nil
}

// Served reads the place at which each provider is: those named, and all that
// have flows.
func Served(ctx context.Context, db DBTX, providers []string) (map[string]int64, error) {
	out := map[string]int64{}
	rows, err := db.Query(ctx, `
SELECT p.provider,
       (SELECT j.scheduled_at
        FROM onefold.river_job AS j
        WHERE j.state = 'available' AND j.queue = 'p-' || p.provider AND j.priority = 1 AND j.scheduled_at < `+virtualEnd+`
        ORDER BY j.scheduled_at
        LIMIT 1),
       coalesce((SELECT max(f.finish) FROM onefold.flows AS f WHERE f.provider = p.provider), 0)
FROM (SELECT unnest($1::text[]) AS provider UNION SELECT provider FROM onefold.flows) AS p`, providers)
	if err != nil {
		return nil, fmt.Errorf("read what is served: %w", err)
	}
	var provider string
	var head *time.Time
	var last int64
	_, err = pgx.ForEachRow(rows, []any{&provider, &head, &last}, func() error {
		out[provider] = last
		if head != nil {
			out[provider] = int64(head.Sub(VirtualOrigin))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read what is served: %w", err)
	}
	return out, nil
}
