package destination_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/destination"
	"github.com/onefold-dev/onefold/internal/egress"
	"github.com/onefold-dev/onefold/internal/outbox/outboxtest"
	"github.com/onefold-dev/onefold/internal/pg/pgtest"
	"github.com/onefold-dev/onefold/internal/seal"
	"github.com/onefold-dev/onefold/internal/telemetry"
)

type bench struct {
	*destination.Book
	t    *testing.T
	pool *pgxpool.Pool
}

func setup(t *testing.T) *bench {
	t.Helper()
	pool := pgtest.New(t).Pool(t)
	return &bench{Book: book(t, pool, telemetry.SecretFromValue(telemetry.NewSecret(seal.NewKey("k1")))), t: t, pool: pool}
}

const file = `providers:
  p: {type: openai, base_url: "http://127.0.0.1:1/v1"}
destinations:
  crm: {url: "https://crm.example/hook", tenants: [acme]}
kinds:
  k: {provider: p}
`

// book is a process's: a name leads where hook.test does.
func book(t *testing.T, pool *pgxpool.Pool, keys *telemetry.SecretSource) *destination.Book {
	t.Helper()
	cfg, err := config.Parse("onefold.yaml", []byte(file), config.Opts{SkipSecrets: true})
	if err != nil {
		t.Fatal(err)
	}
	resolver := outboxtest.Resolver(t, [][4]byte{{10, 0, 0, 5}})
	b := destination.New(destination.Opts{Config: cfg, Pool: pool, Keys: keys, Guard: func(private bool) *egress.Guard { return egress.New(private, resolver) }})
	if err := b.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	return b
}

func act(name string) destination.Act { return destination.Act{Name: name, Actor: "test"} }

func (b *bench) put(name, body string) destination.Put {
	b.t.Helper()
	p, err := b.Put(b.t.Context(), act(name), []byte(body))
	if err != nil {
		b.t.Fatal(err)
	}
	return p
}

const outside = `{"url":"https://93.184.216.34/in?token=s3cret","tenants":["acme"],"repeat":"safe","auth":"pa55word"}`

// signers are the secrets that sign, as text, the newest first.
func signers(t *testing.T, b *destination.Book, name string) (all []string) {
	t.Helper()
	to := b.Usable(name)
	if to == nil {
		t.Fatalf("%s cannot be used", name)
	}
	for _, s := range b.Signers(to) {
		secret, err := s.Source.Get()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, secret.Reveal())
	}
	return all
}

// What is stored is known to another process with the ring, whole; the database holds nothing in clear.
func TestPut(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.put("hook", outside)
	if !p.Created || !strings.HasPrefix(p.Secret.Reveal(), "whsec_") {
		t.Fatalf("got created %v with a secret %v, want both", p.Created, !p.Secret.Empty())
	}
	other := book(t, b.pool, b.Keys)
	to := other.Usable("hook")
	if to == nil || to.URL.Reveal() != "https://93.184.216.34/in?token=s3cret" || to.Repeat != config.RepeatSafe || !to.Allows("acme") || to.Allows("x") {
		t.Fatalf("another process has %+v", to)
	}
	if auth, err := to.Auth.Get(); err != nil || auth.Reveal() != "pa55word" {
		t.Errorf("its credential is %v", err)
	}
	if got := signers(t, other, "hook"); len(got) != 1 || got[0] != p.Secret.Reveal() {
		t.Error("another secret signs than the one that was told")
	}
	var dump string
	err := b.pool.QueryRow(t.Context(), `
SELECT (SELECT string_agg(d::text || encode(body, 'escape') || encode(url, 'escape'), ' ') FROM onefold.destinations AS d)
    || (SELECT string_agg(s::text || encode(sealed, 'escape'), ' ') FROM onefold.destination_secrets AS s)
    || (SELECT string_agg(a::text, ' ') FROM onefold.audit AS a)`).Scan(&dump)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"s3cret", "pa55word", p.Secret.Reveal()} {
		if strings.Contains(dump, secret) {
			t.Errorf("the database holds %s in clear", secret)
		}
	}
	if again := b.put("hook", `{"url":"https://93.184.216.34/other"}`); again.Created || !again.Secret.Empty() {
		t.Error("a change made it anew")
	}
	if to := b.Usable("hook"); to.Allows("acme") || to.Auth == nil || len(signers(t, b.Book, "hook")) != 1 {
		t.Error("a change has to replace the fields, and keep the secrets")
	}
	b.put("hook", `{"url":"https://93.184.216.34/other","auth":""}`)
	if to := b.Usable("hook"); to.Auth != nil {
		t.Error("an empty credential has to take it away")
	}
}

// What cannot be a destination is refused with words, and nothing of it is stored: the guard runs before any delivery.
func TestPutRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for body, says := range map[string]string{
		`{"url":"http://127.0.0.1/"}`:                                                 "loopback",
		`{"url":"http://hook.test/"}`:                                                 "private range", // looked up
		`{"url":"http://169.254.169.254/","allow_private":true}`:                      "link-local",
		`{"url":"http://[64:ff9b::a9fe:a9fe]/","allow_private":true}`:                 "NAT64",
		`{"url":"http://100.64.0.1/"}`:                                                "100.64.0.0/10",
		`{"url":"http://[::ffff:127.0.0.1]/"}`:                                        "IPv4",
		`{"url":"http://2130706433/"}`:                                                "number",
		`{"url":"file:///etc/passwd"}`:                                                "not a URL",
		`{"url":"https://user:pa55@93.184.216.34/"}`:                                  "user name",
		`{"url":"https://93.184.216.34/","secret_env":"HOME"}`:                        "secret_env",
		`{"url":"https://93.184.216.34/","nosuch":1}`:                                 "nosuch",
		`{"url":"https://93.184.216.34/","secret":"short"}`:                           "5 characters",
		`{"url":"https://93.184.216.34/","secret":"whsec_not base64 at all, really"}`: "not base64",
		`{"url":"https://93.184.216.34/","auth":"a\nb"}`:                              "line break",
		`{"url":"smtp://93.184.216.34:587","from":"a@b.example","unsigned":true}`:     "mail server",
		`{"url":"https://93.184.216.34/","url":"https://1.1.1.1/"}`:                   "JSON",
		`[]`: "JSON",
	} {
		_, err := b.Put(t.Context(), act("hook"), []byte(body))
		var ae *api.Error
		if !errors.As(err, &ae) || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "pa55") {
			t.Errorf("%s: got %v, want words with %q", body, err, says)
		}
	}
	if _, err := b.Put(t.Context(), act("crm"), []byte(outside)); !errors.Is(err, api.ErrConflict) {
		t.Errorf("a name of the file: got %v, want a conflict", err)
	}
	if _, err := b.Put(t.Context(), act("No Name"), []byte(outside)); !errors.Is(err, api.ErrInvalid) {
		t.Errorf("a name that is none: got %v", err)
	}
	n := -1
	if err := b.pool.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM onefold.destinations) + (SELECT count(*) FROM onefold.destination_secrets) + (SELECT count(*) FROM onefold.gates)`).Scan(&n); err != nil || n != 0 {
		t.Errorf("%d rows are stored (%v), want none", n, err)
	}
	keyless := book(t, b.pool, nil)
	if _, err := keyless.Put(t.Context(), act("hook"), []byte(outside)); err == nil || !strings.Contains(err.Error(), "no key") {
		t.Errorf("without a ring: got %v", err)
	}
}

// Through a rotation both sign; afterwards, and at once where there is no overlap, the new one alone.
func TestRotate(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := b.put("hook", outside).Secret.Reveal()
	r, err := b.Rotate(t.Context(), act("hook"), "", destination.DefaultOverlap)
	if err != nil {
		t.Fatal(err)
	}
	second := r.Secret.Reveal()
	if got := signers(t, b.Book, "hook"); fmt.Sprint(got) != fmt.Sprint([]string{second, first}) {
		t.Errorf("during the overlap %d sign, want the new one and the old one", len(got))
	}
	all, err := b.List(t.Context(), b.pool)
	if err != nil || len(all) != 2 || len(all[1].Secrets) != 2 || all[1].Secrets[1].RetiresAt == nil || all[1].Secrets[0].ID != r.ID {
		t.Fatalf("the list shows %+v (%v)", all, err)
	}
	if left := time.Until(*all[1].Secrets[1].RetiresAt); left < 6*24*time.Hour || left > 8*24*time.Hour {
		t.Errorf("the old one retires in %s, want 7 days", left)
	}
	if _, err := b.pool.Exec(t.Context(), `UPDATE onefold.destination_secrets SET retires_at = now() WHERE retires_at IS NOT NULL`); err != nil {
		t.Fatal(err)
	}
	if got := signers(t, book(t, b.pool, b.Keys), "hook"); fmt.Sprint(got) != fmt.Sprint([]string{second}) {
		t.Errorf("after the overlap %d sign, want the new one", len(got))
	}
	given := "whsec_" + strings.Repeat("QUJD", 11)
	if r, err = b.Rotate(t.Context(), act("hook"), given, 0); err != nil || !r.Secret.Empty() {
		t.Fatalf("got %v, told %v; a given secret is not told back", err, !r.Secret.Empty())
	}
	if got := signers(t, b.Book, "hook"); fmt.Sprint(got) != fmt.Sprint([]string{given}) {
		t.Errorf("without an overlap %d sign, want the given one", len(got))
	}
	for range 3 {
		if _, err := b.Rotate(t.Context(), act("hook"), "", time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Rotate(t.Context(), act("hook"), "", time.Hour); !errors.Is(err, api.ErrConflict) {
		t.Errorf("a fifth signature: got %v, want a conflict", err)
	}
	for name, want := range map[string]error{"crm": api.ErrConflict, "nosuch": api.ErrNotFound} {
		if _, err := b.Rotate(t.Context(), act(name), "", time.Hour); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", name, err, want)
		}
	}
}

// A key is retired: a new one first, rewrap, the old one away. A ring in a file is read again when it changes.
func TestKeyRing(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t).Pool(t)
	path := filepath.Join(t.TempDir(), "ring")
	ring := func(keys ...string) {
		if err := os.WriteFile(path, []byte(strings.Join(keys, ",")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	k1, k2 := seal.NewKey("k1"), seal.NewKey("k2")
	ring(k1)
	b := &bench{Book: book(t, pool, telemetry.SecretFromFile(path)), t: t, pool: pool}
	secret := b.put("hook", outside).Secret.Reveal()
	ring(k2)
	refresh := func() {
		if err := b.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	refresh()
	if b.Usable("hook") != nil {
		t.Error("it opens without its key")
	}
	if to, err := b.Known(t.Context(), nil, "hook"); err != nil || to == nil || !to.Allows("acme") {
		t.Errorf("its rules are %+v (%v), want them known without the key", to, err)
	}
	if all, err := b.List(t.Context(), pool); err != nil || !strings.Contains(all[1].Problem, "key ring") {
		t.Errorf("the list does not tell: %+v (%v)", all, err)
	}
	if done, left, err := b.Rewrap(t.Context(), act("")); done != 0 || left != 3 || err != nil {
		t.Errorf("rewrapped %d, left %d, %v; want 0 and 3", done, left, err)
	}
	ring(k2, k1)
	refresh()
	if done, left, err := b.Rewrap(t.Context(), act("")); done != 3 || left != 0 || err != nil {
		t.Errorf("rewrapped %d, left %d, %v; want 3 and 0", done, left, err)
	}
	ring(k2)
	refresh()
	if got := signers(t, b.Book, "hook"); len(got) != 1 || got[0] != secret {
		t.Error("after the rewrap another secret signs")
	}
}

// One is deleted, and then gone everywhere; package outbox tests what keeps it.
func TestDelete(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put("hook", outside)
	if err := b.Delete(t.Context(), act("hook")); err != nil {
		t.Fatal(err)
	}
	if b.Usable("hook") != nil || len(b.All()) != 1 {
		t.Error("it is known still")
	}
	if err := b.Delete(t.Context(), act("hook")); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("once more: got %v, want not found", err)
	}
}

// A test that no worker takes sends nothing, says so, and leaves nothing that could be sent later.
func TestNoWorkerForATest(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put("hook", outside)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if _, err := b.Test(ctx, act("nosuch"), ""); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("an unknown one: got %v", err)
	}
	if _, err := b.Test(ctx, act("hook"), "a@b.example"); !errors.Is(err, api.ErrInvalid) {
		t.Errorf("a recipient at a webhook: got %v", err)
	}
	if _, err := b.Test(ctx, act("hook"), ""); !errors.Is(err, api.ErrUnavailable) {
		t.Errorf("got %v, want unavailable", err)
	}
	n := -1
	if err := b.pool.QueryRow(ctx, `SELECT count(*) FROM onefold.destination_tests`).Scan(&n); err != nil || n != 0 {
		t.Errorf("%d tests are left (%v), want none", n, err)
	}
}
