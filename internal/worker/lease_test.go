package worker_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/internal/pg/pgtest"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
	"github.com/onefold-dev/onefold/internal/worker"
)

// A stop in the middle of a heartbeat signs the incarnation off all the same:
// its row is the proof that nothing will be sent any more.
func TestStopDuringAHeartbeat(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	pool := db.Pool(t)
	inBeat, stopping := make(chan struct{}), make(chan struct{})
	lease, err := worker.StartLease(t.Context(), worker.LeaseConfig{
		Connect: func(ctx context.Context) (*pgx.Conn, error) { return pgx.Connect(ctx, db.URL()) },
		Lease:   20 * time.Second, Log: slog.New(slog.DiscardHandler),
		Worker: store.Worker{Process: task.NewToken(), Instance: "test", Host: "h", PID: 1, Version: "v"},
		OnBeat: func(ctx context.Context, conn *pgx.Conn, _ task.ID) {
			close(inBeat)
			<-stopping
			if _, err := conn.Exec(ctx, "SELECT pg_sleep(0.3)"); err != nil {
				t.Errorf("the beat was cut off: %v", err)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	id := lease.Current().ID
	<-inBeat
	close(stopping)
	lease.Stop(context.Background())
	var off bool
	if err := pool.QueryRow(t.Context(), `SELECT stopped_at IS NOT NULL FROM onefold.workers WHERE incarnation = $1`, id).Scan(&off); err != nil || !off {
		t.Errorf("signed off: %v (%v), want true", off, err)
	}
}
