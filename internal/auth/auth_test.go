package auth

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/pg/pgtest"
	"github.com/onefold-dev/onefold/internal/store"
)

// counting counts the single-row queries that go to the database.
type counting struct {
	store.DBTX
	n atomic.Int64
}

func (c *counting) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	c.n.Add(1)
	return c.DBTX.QueryRow(ctx, sql, args...)
}

// clock is a clock that stands until it is moved.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func (c *clock) now() time.Time { c.mu.Lock(); defer c.mu.Unlock(); return c.t }

func (c *clock) advance(d time.Duration) { c.mu.Lock(); defer c.mu.Unlock(); c.t = c.t.Add(d) }

type bundle struct {
	pool  *pgxpool.Pool
	db    *counting
	auth  *Auth
	clock *clock
}

func setup(t *testing.T) *bundle {
	t.Helper()
	b := &bundle{pool: pgtest.New(t).Pool(t), clock: &clock{t: time.Now()}}
	b.db = &counting{DBTX: b.pool}
	b.auth = New(b.db)
	b.auth.now = b.clock.now
	return b
}

func (b *bundle) create(t *testing.T, n NewKey) (string, Key) {
	t.Helper()
	secret, key, err := Create(context.Background(), b.pool, n)
	if err != nil {
		t.Fatal(err)
	}
	return secret, key
}

func (b *bundle) try(secret string) (Identity, error) {
	return b.auth.Authenticate(context.Background(), "Bearer "+secret)
}

func code(err error) api.Code {
	var e *api.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

func TestKeyWorks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	secret, key := b.create(t, NewKey{Tenant: "acme", Actor: "test"})
	if !regexp.MustCompile(`^of_[a-z0-9]{8,32}_[a-z2-7]{40}$`).MatchString(secret) {
		t.Errorf("got a key of the form %q", secret)
	}
	got, err := b.try(secret)
	if err != nil {
		t.Fatal(err)
	}
	want := Identity{Tenant: "acme", KeyID: key.ID, Scopes: []api.Scope{api.ScopeSubmit, api.ScopeRead}}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("-got +want:\n%s", diff)
	}
	var stored string
	if err := b.pool.QueryRow(context.Background(), `SELECT k::text FROM onefold.api_keys AS k`).Scan(&stored); err != nil {
		t.Fatal(err)
	}
	if _, random, _ := parse(secret); strings.Contains(stored, random) {
		t.Error("the secret stands in the database")
	}
}

func TestInstanceKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	secret, key := b.create(t, NewKey{Tenant: AnyTenant, Actor: "test"})
	if key.Tenant != AnyTenant {
		t.Errorf("got tenant %q, want %q", key.Tenant, AnyTenant)
	}
	who, err := b.try(secret)
	if err != nil {
		t.Fatal(err)
	}
	if !who.Instance || who.Tenant != "" {
		t.Errorf("got %+v, want an identity of the instance", who)
	}
	for scope, want := range map[api.Scope]api.Code{api.ScopeAdmin: "", api.ScopeRead: "", api.ScopeOperate: "", api.ScopeSubmit: api.CodeForbidden} {
		if got := code(who.Require(scope)); got != want {
			t.Errorf("Require(%s): got %q, want %q", scope, got, want)
		}
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	secret, _ := b.create(t, NewKey{Tenant: "acme"})
	other, _ := b.create(t, NewKey{Tenant: "other"})
	id, random, _ := parse(secret)
	_, otherRandom, _ := parse(other)
	for name, header := range map[string]string{
		"none":                   "",
		"another scheme":         "Basic " + secret,
		"no scheme":              secret,
		"no secret":              "Bearer of_" + id,
		"an empty secret":        "Bearer of_" + id + "_",
		"another key's secret":   "Bearer " + format(id, otherRandom),
		"one character changed":  "Bearer " + secret[:len(secret)-1] + "1",
		"one character less":     "Bearer " + secret[:len(secret)-1],
		"an unknown id":          "Bearer " + format("nosuchkey", random),
		"an id of SQL":           "Bearer " + format("';drop--", random),
		"upper case":             "Bearer " + strings.ToUpper(secret),
		"two keys":               "Bearer " + secret + ", Bearer " + other,
		"very long":              "Bearer of_" + id + "_" + strings.Repeat("a", 10_000),
		"not ASCII":              "Bearer of_" + id + "_" + strings.Repeat("é", 40),
		"a control character":    "Bearer " + secret + "\x00",
		"the hash of the secret": "Bearer " + format(id, fmt.Sprintf("%x", hash(random))),
	} {
		_, err := b.auth.Authenticate(context.Background(), header)
		if got := code(err); got != api.CodeUnauthorized {
			t.Errorf("%s: got %v, want %s", name, err, api.CodeUnauthorized)
		}
		if err != nil && strings.Contains(err.Error(), random) {
			t.Errorf("%s: the error shows the secret: %v", name, err)
		}
	}
	for _, header := range []string{"bearer " + secret, "BEARER   " + secret + " "} {
		if _, err := b.auth.Authenticate(context.Background(), header); err != nil {
			t.Errorf("%.8q...: got %v, want it accepted", header, err)
		}
	}
}

func TestCache(t *testing.T) {
	t.Parallel()
	b := setup(t)
	secret, key := b.create(t, NewKey{Tenant: "acme"})
	for range 10 {
		if _, err := b.try(secret); err != nil {
			t.Fatal(err)
		}
	}
	if got := b.db.n.Load(); got != 1 {
		t.Errorf("got %d lookups for ten requests, want 1", got)
	}
	if _, err := Revoke(context.Background(), b.pool, key.ID, "test"); err != nil {
		t.Fatal(err)
	}
	b.clock.advance(CacheFor)
	if _, err := b.try(secret); code(err) != api.CodeUnauthorized {
		t.Errorf("got %v %s after the revocation, want it refused", err, CacheFor)
	}
	if CacheFor > 5*time.Second {
		t.Errorf("a revocation takes effect after %s, want 5s at most", CacheFor)
	}
}

func TestExpiryIsNotCached(t *testing.T) {
	t.Parallel()
	b := setup(t)
	secret, _ := b.create(t, NewKey{Tenant: "acme", ExpiresIn: 2 * time.Second})
	if _, err := b.try(secret); err != nil {
		t.Fatal(err)
	}
	b.clock.advance(2 * time.Second) // within CacheFor
	_, err := b.try(secret)
	if code(err) != api.CodeUnauthorized || !strings.Contains(fmt.Sprint(err), "expired") {
		t.Errorf("got %v, want it to have expired", err)
	}
	if got := b.db.n.Load(); got != 1 {
		t.Errorf("got %d lookups, want the cached key to have expired by itself", got)
	}
}

func TestUnknownKeysAreBounded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	secret := func(i int) string { return format(fmt.Sprintf("madeup%05d", i), strings.Repeat("a", 40)) }
	for range 3 {
		if _, err := b.try(secret(0)); code(err) != api.CodeUnauthorized {
			t.Fatal(err)
		}
	}
	if got := b.db.n.Load(); got != 1 {
		t.Errorf("got %d lookups of one made-up key, want 1", got)
	}
	for i := range maxUnknown + 10 {
		_, _ = b.try(secret(i))
	}
	if got := len(b.auth.unknown); got > maxUnknown {
		t.Errorf("%d made-up keys are remembered, want %d at most", got, maxUnknown)
	}
	b.clock.advance(unknownFor)
	before := b.db.n.Load()
	_, _ = b.try(secret(5))
	if b.db.n.Load() == before {
		t.Error("a key made meanwhile would stay refused")
	}
}

func TestOneLookupServesAll(t *testing.T) {
	t.Parallel()
	b := setup(t)
	secret, _ := b.create(t, NewKey{Tenant: "acme"})
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if _, err := b.try(secret); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got := b.db.n.Load(); got != 1 {
		t.Errorf("got %d lookups for 50 requests at once, want 1", got)
	}
}

func TestTwoLiveAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := context.Background()
	_, first := b.create(t, NewKey{Tenant: "acme", Name: "ci"})
	b.create(t, NewKey{Tenant: "acme", Name: "ci"})
	_, _, err := Create(ctx, b.pool, NewKey{Tenant: "acme", Name: "ci"})
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.CodeConflict || !strings.Contains(e.Fix, first.ID) {
		t.Fatalf("got %v, want a conflict whose fix names %s", err, first.ID)
	}
	for _, n := range []NewKey{{Tenant: "acme", Name: "other"}, {Tenant: "beta", Name: "ci"}, {Tenant: AnyTenant, Name: "ci"}} {
		b.create(t, n)
	}
	if _, err := Revoke(ctx, b.pool, first.ID, "test"); err != nil {
		t.Fatal(err)
	}
	b.create(t, NewKey{Tenant: "acme", Name: "ci"})
	if _, err := b.pool.Exec(ctx, `UPDATE onefold.api_keys SET expires_at = now() WHERE tenant = 'acme' AND name = 'ci'`); err != nil {
		t.Fatal(err)
	}
	b.create(t, NewKey{Tenant: "acme", Name: "ci"}) // expired ones do not count
}

func TestTwoLiveAtOnceInARace(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, tenant := range []string{"acme", AnyTenant} {
		var made, refused atomic.Int64
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				switch _, _, err := Create(context.Background(), b.pool, NewKey{Tenant: tenant}); code(err) {
				case "":
					made.Add(1)
				case api.CodeConflict:
					refused.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		all.Wait()
		if made.Load() != MaxLive || refused.Load() != 8-MaxLive {
			t.Errorf("tenant %s: %d made, %d refused, want %d and %d", tenant, made.Load(), refused.Load(), MaxLive, 8-MaxLive)
		}
	}
}

func TestCreateInvalid(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, n := range map[string]NewKey{
		"no tenant":                {},
		"tenant in upper case":     {Tenant: "Acme"},
		"name with a space":        {Tenant: "acme", Name: "a b"},
		"no such scope":            {Tenant: "acme", Scopes: []api.Scope{"root"}},
		"admin of a tenant":        {Tenant: "acme", Scopes: []api.Scope{api.ScopeAdmin}},
		"submit of the instance":   {Tenant: AnyTenant, Scopes: []api.Scope{api.ScopeSubmit}},
		"an expiry in the past":    {Tenant: "acme", ExpiresIn: -time.Second},
		"an expiry after all time": {Tenant: "acme", ExpiresIn: 200 * 365 * 24 * time.Hour},
	} {
		_, _, err := Create(context.Background(), b.pool, n)
		var e *api.Error
		if !errors.As(err, &e) || e.Code != api.CodeInvalidField || e.Fix == "" || e.Field == "" {
			t.Errorf("%s: got %v, want invalid_field with field and fix", name, err)
		}
	}
	keys, err := List(context.Background(), b.pool, "")
	if err != nil || len(keys) != 0 {
		t.Errorf("got keys %v, %v, want none", keys, err)
	}
}

func TestListAndAudit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := context.Background()
	_, first := b.create(t, NewKey{Tenant: "acme", Actor: "cli:ada"})
	b.create(t, NewKey{Tenant: AnyTenant, Actor: "cli:ada"})
	if _, err := Revoke(ctx, b.pool, first.ID, "cli:bob"); err != nil {
		t.Fatal(err)
	}
	if _, err := Revoke(ctx, b.pool, first.ID, "cli:bob"); err != nil {
		t.Errorf("revoking again: got %v, want nothing to happen", err)
	}
	if _, err := Revoke(ctx, b.pool, "nosuchkey", "cli:bob"); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("got %v, want ErrNotFound", err)
	}
	for tenant, want := range map[string]int{"acme": 1, AnyTenant: 1, "": 2, "beta": 0} {
		if keys, err := List(ctx, b.pool, tenant); err != nil || len(keys) != want {
			t.Errorf("List(%q): got %d keys, %v, want %d", tenant, len(keys), err, want)
		}
	}
	keys, _ := List(ctx, b.pool, "acme")
	if keys[0].Live || keys[0].RevokedAt == nil {
		t.Errorf("got %+v, want it revoked", keys[0])
	}
	rows, err := b.pool.Query(ctx, `SELECT coalesce(tenant, '') || ' ' || actor || ' ' || action FROM onefold.audit ORDER BY id`)
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"acme cli:ada tenant.create", "acme cli:ada key.create", " cli:ada key.create", "acme cli:bob key.revoke"}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("-got +want:\n%s", diff)
	}
}

func TestDatabaseAwayIsNotRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	secret, _ := b.create(t, NewKey{Tenant: "acme"})
	b.pool.Close()
	if _, err := b.try(secret); err == nil || code(err) != "" {
		t.Errorf("got %v, want an error without a code: the caller's key may be good", err)
	}
}
