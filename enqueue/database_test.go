package enqueue_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/enqueue"
	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/kinds"
)

// A key held by a transaction that stays open makes those wait who submit the
// same key, and no others.
func TestOpenTransactionHoldsOneKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background()) //nolint:errcheck // it has ended by then
	task, err := order(t.Context(), tx, "held", submit(`1`))
	if err != nil {
		t.Fatal(err)
	}
	held := make(chan error, 1)
	go func() {
		_, err := b.api.Submit(context.Background(), "order:held", submit(`1`), nil)
		held <- err
	}()
	b.blocked(t)
	// In one flush with the held key: they are served apart once it gives up.
	items := []api.Keyed{{Key: "order:held", Submit: submit(`1`)}}
	for i := range 20 {
		items = append(items, api.Keyed{Key: fmt.Sprint("free:", i), Submit: submit(`1`)})
	}
	for i, got := range b.api.SubmitMany(t.Context(), items) {
		if i > 0 && got.Err != nil {
			t.Errorf("another key: %v", got.Err)
		}
	}
	if err := <-held; !errors.Is(err, api.ErrUnavailable) {
		t.Errorf("the held key: got %v, want to be told to come again", err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	again, err := b.api.Submit(t.Context(), "order:held", submit(`1`), nil)
	if err != nil || again.ID != task.ID || *again.Created {
		t.Errorf("afterwards: %+v, %v", again, err)
	}
}

// blocked waits until an insert of tasks waits for a lock.
func (b *bundle) blocked(t *testing.T) {
	t.Helper()
	for look := time.NewTicker(5 * time.Millisecond); ; <-look.C {
		if b.count(t, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%onefold.tasks%'`) > 0 {
			return
		}
	}
}

// The grants that the package's documentation asks for are enough, and a
// connection that asks the server for no types will do.
func TestRoleAndPooler(t *testing.T) {
	t.Parallel()
	b := setup(t)
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	role := fmt.Sprintf("app_%d", time.Now().UnixNano())
	b.exec(t, `CREATE ROLE `+role+` LOGIN PASSWORD 'app'`)
	t.Cleanup(func() { b.exec(t, `DROP OWNED BY `+role+`; DROP ROLE `+role) })
	grants := regexp.MustCompile(`(?m)^//\t(GRANT .*;)$`).FindAllSubmatch(doc, -1)
	if len(grants) < 5 {
		t.Fatalf("found %d grants in doc.go", len(grants))
	}
	for _, g := range grants {
		b.exec(t, strings.Replace(string(g[1]), "TO app", "TO "+role, 1))
	}
	b.exec(t, `GRANT ALL ON public.orders TO `+role)
	u, err := url.Parse(b.db.URL())
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(role, "app")
	cfg, err := pgx.ParseConfig(u.String())
	if err != nil {
		t.Fatal(err)
	}
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec, pgx.QueryExecModeDescribeExec} {
		c := cfg.Copy()
		c.DefaultQueryExecMode = mode
		conn, err := pgx.ConnectConfig(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		run := func(input string) (task *api.Task, err error) {
			err = pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
				task, err = order(t.Context(), tx, fmt.Sprint("mode-", int(mode)), submit(input))
				return err
			})
			return task, err
		}
		first, err := run(`1`)
		if err != nil {
			t.Fatalf("%s: %v", mode, err)
		}
		if again, err := run(`1`); err != nil || again.ID != first.ID {
			t.Errorf("%s: the same again: %+v, %v", mode, again, err)
		}
		if _, err := run(`2`); !errors.Is(err, api.ErrKeyReused) {
			t.Errorf("%s: another payload: %v", mode, err)
		}
		// Past its retention the key is a new intent, and the old row goes to the tombstones.
		b.exec(t, `UPDATE onefold.tasks SET state = 'cancelled', finished_at = now() - interval '2 h', expires_at = now() - interval '1 h' WHERE id = $1::text::uuid`, first.ID)
		if anew, err := run(`2`); err != nil || !*anew.Created {
			t.Errorf("%s: after its retention: %+v, %v", mode, anew, err)
		}
		if err := conn.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// The newest version of a kind is that of the process that started last.
func TestNewestKind(t *testing.T) {
	t.Parallel()
	b := setup(t)
	kindOf := func(key string) (hash string) {
		t.Helper()
		err := pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
			_, err := enqueue.Tx(t.Context(), tx, "shop", key, submit(`1`))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := b.pool.QueryRow(t.Context(), `SELECT config_hash FROM onefold.tasks WHERE key = $1`, key).Scan(&hash); err != nil {
			t.Fatal(err)
		}
		return hash
	}
	first := kindOf("a")
	// Another process starts, with max_runs changed.
	cfg, err := config.Parse("onefold.yaml", []byte(strings.Replace(testConfig, "max_runs: 2", "max_runs: 5", 1)), config.Opts{SkipSecrets: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := kinds.New(cfg, config.Opts{SkipSecrets: true}).Store(t.Context(), b.pool); err != nil {
		t.Fatal(err)
	}
	if got := kindOf("b"); got == first {
		t.Error("an older version of the kind was taken")
	}
	// And one with the former configuration: it is back.
	if cfg, err = config.Parse("onefold.yaml", []byte(testConfig), config.Opts{SkipSecrets: true}); err != nil {
		t.Fatal(err)
	}
	if err := kinds.New(cfg, config.Opts{SkipSecrets: true}).Store(t.Context(), b.pool); err != nil {
		t.Fatal(err)
	}
	if got := kindOf("c"); got != first {
		t.Error("the version of the process that started last was not taken")
	}
}
