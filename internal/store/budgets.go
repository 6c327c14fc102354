package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// BudgetKey names a number of sends shared by tasks of one tenant.
type BudgetKey struct{ Tenant, ID string }

func compareBudgets(a, b BudgetKey) int {
	return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.ID, b.ID))
}

// Budget is how much of it is left.
type Budget struct{ Sends, Used int32 }

// Left is what may still be sent.
func (b Budget) Left() int32 { return max(b.Sends-b.Used, 0) }

// PutBudget makes a budget unless it is there, and returns how many sends it was
// made with.
func PutBudget(ctx context.Context, db DBTX, k BudgetKey, sends int32) (have int32, err error) {
	b := &pgx.Batch{}
	b.Queue(`
INSERT INTO onefold.budgets (tenant, id, sends)
SELECT $1, $2, $3
WHERE NOT EXISTS (SELECT FROM onefold.budgets WHERE tenant = $1 AND id = $2)
ON CONFLICT (tenant, id) DO NOTHING`, k.Tenant, k.ID, sends)
	b.Queue(`SELECT sends FROM onefold.budgets WHERE tenant = $1 AND id = $2`, k.Tenant, k.ID).QueryRow(func(row pgx.Row) error {
		return row.Scan(&have)
	})
	if err := RunBatch(ctx, db, b); err != nil {
		return 0, fmt.Errorf("put budget: %w", err)
	}
	return have, nil
}

// BudgetSends reads how many sends a budget was made with, 0 where it was not.
func BudgetSends(ctx context.Context, db DBTX, k BudgetKey) (sends int32, err error) {
	err = db.QueryRow(ctx, `
SELECT coalesce((SELECT sends FROM onefold.budgets WHERE tenant = $1 AND id = $2), 0)`, k.Tenant, k.ID).Scan(&sends)
	if err != nil {
		return 0, fmt.Errorf("read budget: %w", err)
	}
	return sends, nil
}

// LockBudgets locks budgets in the order of their names, which comes after the
// tasks' and before that of all else, and reads them. wanted are the budgets
// with the sends that the tasks at hand name: one that is not there is made.
func LockBudgets(ctx context.Context, tx DBTX, wanted map[BudgetKey]int32) (map[BudgetKey]Budget, error) {
	n := len(wanted)
	tenants, ids, sends := make([]string, 0, n), make([]string, 0, n), make([]int32, 0, n)
	for k, s := range wanted {
		tenants, ids, sends = append(tenants, k.Tenant), append(ids, k.ID), append(sends, s)
	}
	_, err := tx.Exec(ctx, `
INSERT INTO onefold.budgets (tenant, id, sends)
SELECT *
FROM unnest($1::text[], $2::text[], $3::integer[]) AS b (tenant, id, sends)
ORDER BY 1, 2
ON CONFLICT (tenant, id) DO NOTHING`, tenants, ids, sends)
	if err != nil {
		return nil, fmt.Errorf("make budgets: %w", err)
	}
	rows, err := tx.Query(ctx, `
SELECT b.tenant, b.id, b.sends, b.used
FROM onefold.budgets AS b
JOIN unnest($1::text[], $2::text[]) AS w (tenant, id) USING (tenant, id)
ORDER BY 1, 2
FOR UPDATE OF b`, tenants, ids)
	if err != nil {
		return nil, fmt.Errorf("lock budgets: %w", err)
	}
	defer rows.Close()
	out := make(map[BudgetKey]Budget, n)
	for rows.Next() {
		var k BudgetKey
		var b Budget
		if err := rows.Scan(&k.Tenant, &k.ID, &b.Sends, &b.Used); err != nil {
			return nil, fmt.Errorf("lock budgets: %w", err)
		}
		out[k] = b
	}
	return out, rows.Err()
}

// AddToBudgets counts sends into budgets, or, where negative, takes back what
// turned out to be none. It locks them in the order of their names.
func AddToBudgets(ctx context.Context, tx DBTX, sends map[BudgetKey]int32) error {
	keys := make([]BudgetKey, 0, len(sends))
	for k, n := range sends {
		if n != 0 {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, compareBudgets)
	b := &pgx.Batch{}
	for _, k := range keys {
		b.Queue(`
UPDATE onefold.budgets
SET used = greatest(used + $3, 0), used_at = now()
WHERE tenant = $1 AND id = $2`, k.Tenant, k.ID, sends[k])
	}
	if err := RunBatch(ctx, tx, b); err != nil {
		return fmt.Errorf("count into budgets: %w", err)
	}
	return nil
}

// ForgetBudgets deletes budgets that no task names and nobody used for so long.
func ForgetBudgets(ctx context.Context, db DBTX, after time.Duration, most int) error {
	_, err := db.Exec(ctx, `
DELETE FROM onefold.budgets AS b
USING (
    SELECT tenant, id
    FROM onefold.budgets
    WHERE used_at < now() - $1::interval
    ORDER BY tenant, id
    LIMIT $2
    FOR UPDATE SKIP LOCKED
) AS old
WHERE b.tenant = old.tenant AND b.id = old.id
    AND NOT EXISTS (SELECT FROM onefold.tasks AS t WHERE t.tenant = b.tenant AND t.budget_id = b.id)`, after, most)
	if err != nil {
		return fmt.Errorf("forget budgets: %w", err)
	}
	return nil
}
