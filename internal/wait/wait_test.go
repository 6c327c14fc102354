package wait_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/pg/pgtest"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
	"github.com/onefold-dev/onefold/internal/telemetry"
	"github.com/onefold-dev/onefold/internal/wait"
)

// counting counts queries and says when each began.
type counting struct {
	store.DBTX
	n     atomic.Int64
	began chan struct{} // when not nil, one token a query, without waiting
	gate  chan struct{} // when not nil, a query waits for one token
	fail  atomic.Bool
}

func (c *counting) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	c.n.Add(1)
	if c.began != nil {
		c.began <- struct{}{}
	}
	if c.gate != nil {
		select {
		case <-c.gate:
		case <-ctx.Done():
		}
	}
	if c.fail.Load() {
		return nil, errors.New("the database is away")
	}
	return c.DBTX.Query(ctx, sql, args...)
}

type bundle struct {
	pool      *pgxpool.Pool
	db        *counting
	waiter    *wait.Waiter
	listening chan *pgx.Conn // each connection that listens
}

// never is a round so rare that no test sees one.
const never = time.Hour

func setup(t *testing.T, every time.Duration, change func(*counting)) *bundle {
	t.Helper()
	db := pgtest.New(t)
	b := &bundle{pool: db.Pool(t), listening: make(chan *pgx.Conn, 10)}
	b.db = &counting{DBTX: b.pool}
	if change != nil {
		change(b.db)
	}
	b.waiter = wait.New(wait.Config{
		Pool: b.db, Every: every, Log: telemetry.New(new(bytes.Buffer), nil),
		Connect: func(ctx context.Context) (*pgx.Conn, error) {
			conn, err := pgx.Connect(ctx, db.URL())
			if err == nil {
				b.listening <- conn
			}
			return conn, err
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = b.waiter.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return b
}

// insert makes n pending tasks.
func (b *bundle) insert(t *testing.T, n int) []task.ID {
	t.Helper()
	ctx := context.Background()
	if err := store.PutKindConfigs(ctx, b.pool, []store.KindConfig{{Hash: "h", Kind: "k", Body: []byte("{}")}}); err != nil {
		t.Fatal(err)
	}
	ids, news := make([]task.ID, n), make([]*store.New, n)
	for i := range n {
		ids[i] = task.NewID()
		news[i] = &store.New{
			ID: ids[i], Slot: store.Slot{Tenant: "a", Kind: "k", Key: fmt.Sprint(i)}, Dedupe: api.DedupeKey, Provider: "p", Queue: "p-p",
			ConfigHash: "h", DeadlineAfter: time.Hour, Input: []byte("1"), FingerprintV: 1,
		}
	}
	if _, err := store.InsertTasks(ctx, b.pool, news); err != nil {
		t.Fatal(err)
	}
	return ids
}

// settle makes tasks succeed, with or without a hint.
func (b *bundle) settle(t *testing.T, result []byte, hint bool, ids ...task.ID) {
	t.Helper()
	ctx := context.Background()
	_, err := b.pool.Exec(ctx, `
UPDATE onefold.tasks
SET state = 'succeeded', result = $2, result_hash = sha256($2), finished_at = now(), epoch = epoch + 1
WHERE id = ANY ($1)`, ids, result)
	if err != nil {
		t.Fatal(err)
	}
	if hint {
		if err := store.NotifySettled(ctx, b.pool, ids); err != nil {
			t.Fatal(err)
		}
	}
}

func settled(r *task.Row) bool { return r.State.Settled() }

type outcome struct {
	row *task.Row
	err error
}

// wait begins to wait and returns where the outcome will be.
func (b *bundle) wait(id task.ID, until func(*task.Row) bool) <-chan outcome {
	ch := make(chan outcome, 1)
	go func() {
		row, err := b.waiter.Wait(context.Background(), id, until, time.Minute)
		ch <- outcome{row, err}
	}()
	return ch
}

func get(t *testing.T, ch <-chan outcome) *task.Row {
	t.Helper()
	o := <-ch
	if o.err != nil {
		t.Fatal(o.err)
	}
	return o.row
}

func TestHintWakes(t *testing.T) {
	t.Parallel()
	b := setup(t, never, nil)
	ids := b.insert(t, 2)
	<-b.listening
	seen := make(chan struct{}, 10)
	ch := b.wait(ids[0], func(r *task.Row) bool { seen <- struct{}{}; return settled(r) })
	<-seen // it was read once and is pending
	b.settle(t, []byte(`{"a": 1}`), true, ids...)
	if row := get(t, ch); row == nil || string(row.Result) != `{"a": 1}` {
		t.Errorf("got %+v, want the result", row)
	}
	if n := b.waiter.Waiting(); n != 0 {
		t.Errorf("%d tasks are still waited for", n)
	}
}

func TestHintLost(t *testing.T) {
	t.Parallel()
	b := setup(t, 20*time.Millisecond, nil)
	id := b.insert(t, 1)[0]
	seen := make(chan struct{}, 1000)
	ch := b.wait(id, func(r *task.Row) bool { seen <- struct{}{}; return settled(r) })
	<-seen
	b.settle(t, []byte("1"), false, id)
	if row := get(t, ch); row.State != api.Succeeded {
		t.Errorf("got %s, want succeeded", row.State)
	}
}

func TestEmptyHintMeansEveryone(t *testing.T) {
	t.Parallel()
	b := setup(t, never, nil)
	ids := b.insert(t, store.MaxNotified+1)
	<-b.listening
	seen := make(chan struct{}, 1000)
	ch := b.wait(ids[7], func(r *task.Row) bool { seen <- struct{}{}; return settled(r) })
	<-seen
	b.settle(t, []byte("1"), true, ids...)
	get(t, ch)
}

func TestSettledBeforeWaiting(t *testing.T) {
	t.Parallel()
	b := setup(t, never, nil)
	id := b.insert(t, 1)[0]
	b.settle(t, []byte("1"), false, id)
	get(t, b.wait(id, settled))
}

// A task that settles while the first read is under way is found by the hint's
// own read, not lost between the two.
func TestSettlesDuringTheRead(t *testing.T) {
	t.Parallel()
	b := setup(t, never, func(c *counting) { c.began, c.gate = make(chan struct{}, 100), make(chan struct{}, 100) })
	id := b.insert(t, 1)[0]
	<-b.listening
	stale := make(chan struct{}, 10)
	ch := b.wait(id, func(r *task.Row) bool {
		if !settled(r) {
			stale <- struct{}{}
		}
		return settled(r)
	})
	<-b.db.began // the read has begun and is held
	b.db.gate <- struct{}{}
	<-stale
	b.settle(t, []byte("1"), true, id)
	<-b.db.began
	b.db.gate <- struct{}{}
	get(t, ch)
}

// After the listening connection breaks, everything is read again: hints that
// were sent in between are lost.
func TestReconnectReadsAgain(t *testing.T) {
	t.Parallel()
	b := setup(t, never, nil)
	id := b.insert(t, 1)[0]
	conn := <-b.listening
	seen := make(chan struct{}, 100)
	ch := b.wait(id, func(r *task.Row) bool { seen <- struct{}{}; return settled(r) })
	<-seen
	b.settle(t, []byte("1"), false, id)
	if _, err := b.pool.Exec(context.Background(), `SELECT pg_terminate_backend($1)`, conn.PgConn().PID()); err != nil {
		t.Fatal(err)
	}
	<-b.listening
	get(t, ch)
}

func TestUnknownAndPurged(t *testing.T) {
	t.Parallel()
	b := setup(t, never, nil)
	if row := get(t, b.wait(task.NewID(), settled)); row != nil {
		t.Errorf("got %+v for an id nobody has, want nil", row)
	}
	id := b.insert(t, 1)[0]
	seen := make(chan struct{}, 10)
	ch := b.wait(id, func(*task.Row) bool { seen <- struct{}{}; return false })
	<-seen
	if _, err := b.pool.Exec(context.Background(), `DELETE FROM onefold.tasks`); err != nil {
		t.Fatal(err)
	}
	if err := store.NotifySettled(context.Background(), b.pool, []task.ID{id}); err != nil {
		t.Fatal(err)
	}
	if row := get(t, ch); row != nil {
		t.Errorf("got %+v for a purged task, want nil", row)
	}
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	b := setup(t, never, nil)
	id := b.insert(t, 1)[0]
	row, err := b.waiter.Wait(context.Background(), id, settled, 200*time.Millisecond)
	if err != nil || row == nil || row.State != api.Pending {
		t.Errorf("got %+v, %v, want the pending task", row, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := b.waiter.Wait(ctx, id, settled, time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}

// Who has read nothing yet learns at once that reading fails; who has waits on.
func TestReadFails(t *testing.T) {
	t.Parallel()
	b := setup(t, 20*time.Millisecond, nil)
	ids := b.insert(t, 2)
	seen := make(chan struct{}, 1000)
	old := b.wait(ids[0], func(r *task.Row) bool { seen <- struct{}{}; return settled(r) })
	<-seen
	b.db.fail.Store(true)
	if o := <-b.wait(ids[1], settled); o.err == nil {
		t.Errorf("got %+v, want an error", o.row)
	}
	b.settle(t, []byte("1"), false, ids[0])
	b.db.fail.Store(false)
	get(t, old)
}

func TestLargeResultIsLeftOut(t *testing.T) {
	t.Parallel()
	b := setup(t, never, nil)
	id := b.insert(t, 1)[0]
	b.settle(t, []byte(`"`+strings.Repeat("x", store.MaxWaitedResult)+`"`), false, id)
	row := get(t, b.wait(id, settled))
	if row.Result != nil || row.ResultHash == nil {
		t.Errorf("got %d bytes and hash %x, want only the hash", len(row.Result), row.ResultHash)
	}
}

// A thousand who wait cost what one costs: one query for all a round, and one
// when all their tasks settle.
func TestThousandWaitersOneQuery(t *testing.T) {
	t.Parallel()
	const n = 1000
	b := setup(t, never, func(c *counting) { c.began, c.gate = make(chan struct{}, 10_000), make(chan struct{}, 10_000) })
	ids := b.insert(t, n)
	<-b.listening
	var done sync.WaitGroup
	var got atomic.Int64
	begin := func(id task.ID) {
		done.Go(func() {
			row, err := b.waiter.Wait(context.Background(), id, settled, time.Minute)
			if err == nil && row != nil && row.State == api.Succeeded {
				got.Add(1)
			}
		})
	}
	begin(ids[0])
	<-b.db.began // the first is being read; all others begin to wait meanwhile
	for _, id := range ids[1:] {
		begin(id)
	}
	for look := time.NewTicker(time.Millisecond); b.waiter.Waiting() < n; {
		<-look.C // they register in their own time
	}
	b.db.gate <- struct{}{}
	<-b.db.began
	b.db.gate <- struct{}{}
	b.settle(t, []byte("1"), true, ids...)
	close(b.db.gate)
	done.Wait()
	if got.Load() != n {
		t.Errorf("%d of %d got their result", got.Load(), n)
	}
	// Two to begin with, one for the hint; one more when the hint came during
	// the second or the connection had only begun to listen.
	if q := b.db.n.Load(); q > 4 {
		t.Errorf("%d queries for %d waiters, want at most 4", q, n)
	}
}
