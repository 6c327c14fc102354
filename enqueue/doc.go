// Package enqueue decides how a task is submitted inside the caller's own
// transaction, on the database that onefold runs on: the business row and the
// task commit together, or neither does.
//
//	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
//		if _, err := tx.Exec(ctx, `INSERT INTO orders (id, total) VALUES ($1, $2)`, id, total); err != nil {
//			return err
//		}
//		_, err := enqueue.Tx(ctx, tx, "shop", client.Key("order", id, "extract"), api.Submit{Kind: "invoice.extract", Input: input})
//		return err
//	})
//
// It needs no onefold.yaml: the kinds are those that the running processes
// stored in the database when they last started. Workers fetch the task within
// a poll interval (150 ms) after the commit; whoever wants its result polls the
// API by the task's id or key.
//
// There is no check of an API key here: whoever can write to the database says
// which tenant they are. The role needs
//
//	GRANT USAGE ON SCHEMA onefold TO app;
//	GRANT SELECT ON ALL TABLES IN SCHEMA onefold TO app;
//	GRANT INSERT, UPDATE, DELETE ON onefold.tasks, onefold.river_job TO app;
//	GRANT INSERT ON onefold.tombstones, onefold.flow_charges TO app;
//	GRANT INSERT, UPDATE ON onefold.usage_days TO app;
//	GRANT DELETE ON onefold.effects TO app;
//	GRANT USAGE ON SEQUENCE onefold.river_job_id_seq TO app;
//
//	situation                                        error
//	key used before with another payload             api.ErrKeyReused, Mismatch names the fields
//	key empty or malformed, bad input, unknown kind  api.ErrInvalid
//	serialization failure, deadlock                  the database's own; Retryable holds: run the transaction again
//	the database away                                the database's own
package enqueue
