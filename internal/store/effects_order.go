package store

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/onefold-dev/onefold/internal/task"
)

// OrderKey names a row of effect_orders: the effects of one tenant for one
// destination that leave one after the other.
type OrderKey struct{ Tenant, Destination, Key string }

// Compare is the order in which rows of effect_orders are locked.
func (k OrderKey) Compare(o OrderKey) int {
	if c := strings.Compare(k.Tenant, o.Tenant); c != 0 {
		return c
	}
	if c := strings.Compare(k.Destination, o.Destination); c != 0 {
		return c
	}
	return strings.Compare(k.Key, o.Key)
}

func orderColumns(keys []OrderKey) (tenants, destinations, names []string) {
	slices.SortFunc(keys, OrderKey.Compare)
	for _, k := range keys {
		tenants, destinations, names = append(tenants, k.Tenant), append(destinations, k.Destination), append(names, k.Key)
	}
	return tenants, destinations, names
}

// TakeOrder takes the next n numbers of each key and returns the last one
// taken. It locks the keys' rows until the transaction ends: the order of the
// numbers is that of the commits.
func TakeOrder(ctx context.Context, tx DBTX, wanted map[OrderKey]int) (map[OrderKey]int64, error) {
	if len(wanted) == 0 {
		return nil, nil
	}
	keys := make([]OrderKey, 0, len(wanted))
	for k := range wanted {
		keys = append(keys, k)
	}
	tenants, destinations, names := orderColumns(keys)
	counts := make([]int64, len(keys))
	for i, k := range keys { // sorted by now
		counts[i] = int64(wanted[k])
	}
	rows, err := tx.Query(ctx, `
INSERT INTO onefold.effect_orders AS o (tenant, destination, key, last)
SELECT u.tenant, u.destination, u.key, u.n
FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[]) AS u (tenant, destination, key, n)
ORDER BY u.tenant COLLATE "C", u.destination COLLATE "C", u.key COLLATE "C"
ON CONFLICT (tenant, destination, key) DO UPDATE
SET last = o.last + excluded.last
RETURNING o.tenant, o.destination, o.key, o.last`, tenants, destinations, names, counts)
	if err != nil {
		return nil, fmt.Errorf("take places in an order: %w", err)
	}
	defer rows.Close()
	out := make(map[OrderKey]int64, len(keys))
	for rows.Next() {
		var k OrderKey
		var last int64
		if err := rows.Scan(&k.Tenant, &k.Destination, &k.Key, &last); err != nil {
			return nil, fmt.Errorf("take places in an order: %w", err)
		}
		out[k] = last
	}
	return out, rows.Err()
}

// OpenOrders says of which keys an effect is there that is neither delivered
// nor discarded. It is a statement of its own after TakeOrder, so that it sees
// what committed before the keys were locked.
func OpenOrders(ctx context.Context, tx DBTX, keys []OrderKey) (map[OrderKey]bool, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	tenants, destinations, names := orderColumns(slices.Clone(keys))
	rows, err := tx.Query(ctx, `
SELECT u.tenant, u.destination, u.key
FROM unnest($1::text[], $2::text[], $3::text[]) AS u (tenant, destination, key)
WHERE EXISTS (
    SELECT
    FROM onefold.effects AS e
    WHERE e.tenant = u.tenant AND e.destination = u.destination AND e.order_key = u.key
        AND e.order_key IS NOT NULL AND e.state NOT IN ('delivered', 'discarded'))`, tenants, destinations, names)
	if err != nil {
		return nil, fmt.Errorf("look for earlier effects: %w", err)
	}
	defer rows.Close()
	out := map[OrderKey]bool{}
	for rows.Next() {
		var k OrderKey
		if err := rows.Scan(&k.Tenant, &k.Destination, &k.Key); err != nil {
			return nil, fmt.Errorf("look for earlier effects: %w", err)
		}
		out[k] = true
	}
	return out, rows.Err()
}

// AdvanceOrders makes the first open effect of each key due, where it was
// waiting behind one that is done now, and returns how many it freed by
// destination. Whoever delivers or discards an effect that has an order key
// calls it in the same transaction; the caller wakes what is due. It locks the
// keys' rows, so that no number is given out in between.
func AdvanceOrders(ctx context.Context, tx DBTX, keys []OrderKey) (map[string]int, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	tenants, destinations, names := orderColumns(slices.Clone(keys))
	_, err := tx.Exec(ctx, `
SELECT o.last
FROM onefold.effect_orders AS o
JOIN unnest($1::text[], $2::text[], $3::text[]) AS u (tenant, destination, key) USING (tenant, destination, key)
ORDER BY o.tenant COLLATE "C", o.destination COLLATE "C", o.key COLLATE "C"
FOR UPDATE OF o`, tenants, destinations, names)
	if err != nil {
		return nil, fmt.Errorf("lock orders: %w", err)
	}
	rows, err := tx.Query(ctx, `
UPDATE onefold.effects AS e
SET next_at = now()
WHERE e.id = ANY (ARRAY(
        SELECT f.id
        FROM unnest($1::text[], $2::text[], $3::text[]) AS u (tenant, destination, key)
        CROSS JOIN LATERAL (`+firstOfOrder+`) AS f))
    AND e.state = 'waiting' AND e.next_at = 'infinity'
RETURNING e.destination`, tenants, destinations, names)
	if err != nil {
		return nil, fmt.Errorf("let the next effects go: %w", err)
	}
	return countDestinations(rows)
}

// firstOfOrder is the first open effect of the key u.
const firstOfOrder = `
SELECT e.id
FROM onefold.effects AS e
WHERE e.tenant = u.tenant AND e.destination = u.destination AND e.order_key = u.key
    AND e.order_key IS NOT NULL AND e.state NOT IN ('delivered', 'discarded')
ORDER BY e.order_seq
LIMIT 1`

// StuckOrders finds keys whose first open effect waits behind nothing. It walks
// the index from one key to the next, so that many effects of one key cost as
// much as one.
func StuckOrders(ctx context.Context, tx DBTX, most int) ([]OrderKey, error) {
	rows, err := tx.Query(ctx, `
WITH RECURSIVE k AS (
    (SELECT e.tenant, e.destination, e.order_key AS key, e.id, 1 AS n
     FROM onefold.effects AS e
     WHERE e.order_key IS NOT NULL AND e.state NOT IN ('delivered', 'discarded')
     ORDER BY e.tenant, e.destination, e.order_key, e.order_seq
     LIMIT 1)
    UNION ALL
    SELECT f.tenant, f.destination, f.order_key, f.id, k.n + 1
    FROM k
    CROSS JOIN LATERAL (
        SELECT e.tenant, e.destination, e.order_key, e.id
        FROM onefold.effects AS e
        WHERE e.order_key IS NOT NULL AND e.state NOT IN ('delivered', 'discarded')
            AND (e.tenant, e.destination, e.order_key) > (k.tenant, k.destination, k.key)
        ORDER BY e.tenant, e.destination, e.order_key, e.order_seq
        LIMIT 1) AS f
    WHERE k.n < $1
)
SELECT k.tenant, k.destination, k.key
FROM k
JOIN onefold.effects AS e USING (id)
WHERE e.state = 'waiting' AND e.next_at = 'infinity'`, most)
	if err != nil {
		return nil, fmt.Errorf("look for orders that stand still: %w", err)
	}
	defer rows.Close()
	var out []OrderKey
	for rows.Next() {
		var k OrderKey
		if err := rows.Scan(&k.Tenant, &k.Destination, &k.Key); err != nil {
			return nil, fmt.Errorf("look for orders that stand still: %w", err)
		}
		out = append(out, k)
	}
	return out, rows.Err()
}

// ChainLength is how many tasks stand in a row from one up through its parents,
// itself included, at most most.
func ChainLength(ctx context.Context, tx DBTX, id task.ID, most int) (n int, err error) {
	err = tx.QueryRow(ctx, `
WITH RECURSIVE up AS (
    SELECT t.id, t.parent_id, 1 AS n
    FROM onefold.tasks AS t
    WHERE t.id = $1
    UNION ALL
    SELECT t.id, t.parent_id, up.n + 1
    FROM up
    JOIN onefold.tasks AS t ON t.id = up.parent_id
    WHERE up.n < $2
)
SELECT coalesce(max(n), 0)
FROM up`, id, most).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count the parents of a task: %w", err)
	}
	return n, nil
}
