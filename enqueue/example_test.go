package enqueue_test

import (
	"context"
	"errors"
	"log"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/client"
	"github.com/onefold-dev/onefold/enqueue"
)

// An order and the task that reads its invoice: both are stored, or neither.
// Placing the same order again, after a crash or a lost answer, meets the same
// task and makes no second call.
func ExampleTx() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://app@localhost/shop")
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	place := func(id string, invoice []byte) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `INSERT INTO orders (id) VALUES ($1) ON CONFLICT DO NOTHING`, id); err != nil {
				return err
			}
			task, err := enqueue.Tx(ctx, tx, "shop", client.Key("order", id, "extract"), api.Submit{
				Kind:  "invoice.extract",
				Input: invoice,
			})
			if err != nil {
				return err
			}
			_, err = tx.Exec(ctx, `UPDATE orders SET task_id = $2 WHERE id = $1`, id, task.ID)
			return err
		})
	}

	switch err := place("7", []byte(`{"text":"Invoice 2026-117"}`)); {
	case errors.Is(err, api.ErrKeyReused):
		log.Print("order 7 was placed before with another invoice; nothing was stored")
	case enqueue.Retryable(err):
		log.Print("another transaction was in the way; run this one again")
	case err != nil:
		log.Fatal(err)
	}
}
