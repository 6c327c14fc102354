package submit_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/auth"
	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/job"
	"github.com/onefold-dev/onefold/internal/kinds"
	"github.com/onefold-dev/onefold/internal/outbox"
	"github.com/onefold-dev/onefold/internal/pg/pgtest"
	"github.com/onefold-dev/onefold/internal/quota"
	"github.com/onefold-dev/onefold/internal/submit"
)

// bounded is a service of a process that knows quotas.
type bounded struct {
	bundle
	quotas *quota.Book
}

func within(t *testing.T, db *pgtest.DB) bounded {
	t.Helper()
	cfg, pool := parse(t), db.Pool(t)
	book := kinds.New(cfg, config.Opts{SkipSecrets: true})
	if err := book.Store(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	quotas, err := quota.New(t.Context(), quota.Opts{DB: pool, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	notifier := job.NewNotifier(pool, log)
	s := submit.New(submit.Config{
		Pool: pool, Kinds: book, Outbox: outbox.New(outbox.Opts{Config: cfg}), Notifier: notifier, Log: log, Quotas: quotas,
	})
	t.Cleanup(func() { s.Close(); notifier.Close() })
	return bounded{bundle{s, pool}, quotas}
}

func (b bounded) set(t *testing.T, tenant string, q api.Quota, value float64) {
	t.Helper()
	if err := auth.SetQuota(t.Context(), b.pool, tenant, q, value, "test", ""); err != nil {
		t.Fatal(err)
	}
}

func (b bounded) refresh(t *testing.T) {
	t.Helper()
	if err := b.quotas.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// counted waits until tenant a's tasks are counted as n.
func (b bounded) counted(t *testing.T, n int) {
	t.Helper()
	eventually(t, "the count of what is queued", func() bool {
		if err := b.quotas.Count(t.Context()); err != nil {
			t.Fatal(err)
		}
		return b.count(t, `SELECT coalesce(sum(queued), 0) FROM onefold.tenant_counts WHERE tenant = 'a'`) == n
	})
}

// over says whether an error is the refusal for a quota.
func over(err error, q api.Quota) bool {
	var e *api.Error
	return errors.As(err, &e) && e.Code == api.CodeOverQuota && e.Status == 429 && e.Quota == q && e.RetryAfter > 0 && e.Fix != ""
}

// A tenant has as many tasks queued as it may: alone, in bulk, and inside a
// transaction. What is over that is refused with nothing stored, a duplicate
// answered, another tenant not concerned; and what leaves the queue makes room,
// also when it left through another process.
func TestQueuedQuota(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	here, there := within(t, db), within(t, db)
	here.set(t, "a", api.QuotaQueued, 10)
	here.refresh(t)
	there.refresh(t)
	var bulk []submit.Request
	for i := range 14 {
		bulk = append(bulk, request("k", fmt.Sprint("key-", i), `{"n":1}`))
	}
	let := 0
	for i, o := range here.Many(t.Context(), bulk) {
		switch {
		case o.Err == nil:
			let++
		case !over(o.Err, api.QuotaQueued):
			t.Errorf("item %d: %v", i, o.Err)
		}
	}
	if n := here.count(t, `SELECT count(*) FROM onefold.tasks`); let != 10 || n != 10 {
		t.Fatalf("%d of 14 were let in, %d are stored, want 10", let, n)
	}
	if _, err := here.Submit(t.Context(), request("k", "one-more", `{"n":1}`)); !over(err, api.QuotaQueued) {
		t.Errorf("one more, before anything was counted: %v", err)
	}
	there.counted(t, 10) // as Run does every second: until then this process does not know what the other let in
	for _, b := range []bounded{here, there} {
		if _, err := b.Submit(t.Context(), request("k", "one-more", `{"n":1}`)); !over(err, api.QuotaQueued) {
			t.Errorf("one more: %v", err)
		}
		if a, err := b.Submit(t.Context(), request("k", "key-0", `{"n":1}`)); err != nil || a.Created {
			t.Errorf("a duplicate: %+v, %v", a, err)
		}
		if _, err := b.Submit(t.Context(), request("k", "key-0", `{"n":2}`)); code(err) != api.CodeKeyReused {
			t.Errorf("another payload: %v", err)
		}
	}
	other := request("k", "key-0", `{"n":1}`)
	other.Tenant = "b"
	if a, err := here.Submit(t.Context(), other); err != nil || !a.Created {
		t.Errorf("another tenant: %+v, %v", a, err)
	}
	err := pgx.BeginFunc(t.Context(), here.pool, func(tx pgx.Tx) error {
		out, _, err := submit.InTx(t.Context(), tx, submit.Rules{Newest: here.Kinds.Newest}, []submit.Request{request("k", "in-tx", `{"n":1}`), request("k", "key-1", `{"n":1}`)})
		if err == nil && (!over(out[0].Err, api.QuotaQueued) || out[1].Err != nil || out[1].Created) {
			t.Errorf("inside a transaction: %+v", out)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	here.exec(t, `UPDATE onefold.tasks SET state = 'cancelled', finished_at = now(), expires_at = now() + interval '1 h' WHERE key IN ('key-0', 'key-1')`)
	eventually(t, "two left the queue, and the other process lets two in", func() bool {
		_, err := there.Submit(t.Context(), request("k", "later-1", `{"n":1}`))
		return err == nil
	})
	if _, err := there.Submit(t.Context(), request("k", "later-2", `{"n":1}`)); err != nil {
		t.Errorf("the second: %v", err)
	}
	if _, err := there.Submit(t.Context(), request("k", "later-3", `{"n":1}`)); !over(err, api.QuotaQueued) {
		t.Errorf("the third: %v", err)
	}
}

// Inside one transaction the quota counts what that has queued itself.
func TestQueuedQuotaInTx(t *testing.T) {
	t.Parallel()
	b := within(t, pgtest.New(t))
	b.set(t, "a", api.QuotaQueued, 3)
	err := pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
		for i := range 5 {
			out, _, err := submit.InTx(t.Context(), tx, submit.Rules{Newest: b.Kinds.Newest}, []submit.Request{request("k", fmt.Sprint("t-", i), `{"n":1}`)})
			if err != nil {
				return err
			}
			if got := out[0].Err; i < 3 && got != nil || i >= 3 && !over(got, api.QuotaQueued) {
				t.Errorf("task %d: %v", i, got)
			}
		}
		return nil
	})
	if n := b.count(t, `SELECT count(*) FROM onefold.tasks`); err != nil || n != 3 {
		t.Errorf("%d are stored, %v", n, err)
	}
}

// A rate is one for all processes: together they let in a second's worth at once
// and then one by one; duplicates cost nothing of it.
func TestRequestsQuota(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	here, there := within(t, db), within(t, db)
	here.set(t, "*", api.QuotaRequests, 5)
	here.set(t, "free", api.QuotaRequests, 1e9)
	here.refresh(t)
	there.refresh(t)
	began := time.Now()
	let := 0
	for i := range 40 {
		b := []bounded{here, there}[i%2]
		_, err := b.Submit(t.Context(), request("k", fmt.Sprint("key-", i), `{"n":1}`))
		switch {
		case err == nil:
			let++
		case !over(err, api.QuotaRequests):
			t.Fatal(err)
		}
	}
	if most := 5 + 1 + int(5*time.Since(began).Seconds()); let < 5 || let > most {
		t.Errorf("%d were let in within %s, want 5 to %d", let, time.Since(began), most)
	}
	for range 20 {
		if a, err := there.Submit(t.Context(), request("k", "key-0", `{"n":1}`)); err != nil || a.Created {
			t.Fatalf("a duplicate: %+v, %v", a, err)
		}
		free := request("k", strings.Repeat("f", 1+here.count(t, `SELECT count(*) FROM onefold.tasks WHERE tenant = 'free'`)), `{"n":1}`)
		free.Tenant = "free"
		if _, err := here.Submit(t.Context(), free); err != nil {
			t.Fatalf("a tenant with a rate of its own: %v", err)
		}
	}
	eventually(t, "the next one is let in", func() bool {
		_, err := here.Submit(t.Context(), request("k", "at-last", `{"n":1}`))
		return err == nil
	})
}

// What an operator sets is checked, audited, and taken away again.
func TestSetQuota(t *testing.T) {
	t.Parallel()
	b := within(t, pgtest.New(t))
	for _, bad := range []float64{-1, 0.5, 1e-9} {
		if err := auth.SetQuota(t.Context(), b.pool, "a", api.QuotaQueued, bad, "test", ""); code(err) != api.CodeInvalidField {
			t.Errorf("%v: %v", bad, err)
		}
	}
	b.set(t, "a", api.QuotaQueued, 1)
	b.refresh(t)
	if _, err := b.Submit(t.Context(), request("k", "1", `{"n":1}`)); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Submit(t.Context(), request("k", "2", `{"n":1}`)); !over(err, api.QuotaQueued) {
		t.Errorf("got %v", err)
	}
	b.set(t, "a", api.QuotaQueued, 0)
	b.refresh(t)
	if _, err := b.Submit(t.Context(), request("k", "2", `{"n":1}`)); err != nil {
		t.Errorf("without a quota: %v", err)
	}
	if n := b.count(t, `SELECT count(*) FROM onefold.audit WHERE action = 'tenant.quota'`); n != 2 {
		t.Errorf("%d lines in the audit", n)
	}
}

// eventually looks again and again: what is counted once a second gives no signal.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	late := time.NewTimer(30 * time.Second)
	defer late.Stop()
	for !ok() {
		select {
		case <-look.C:
		case <-late.C:
			t.Fatalf("waited 30 s for: %s", what)
		}
	}
}
