package pgtest_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/internal/pg/pgtest"
)

// TestNew checks what the other packages rely on: each database is migrated, and
// what one test writes no other one sees.
func TestNew(t *testing.T) {
	t.Parallel()
	names := make([]string, 8)
	t.Run("at once", func(t *testing.T) {
		for i := range names {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				pool := pgtest.New(t).Pool(t)
				var tables int
				err := pool.QueryRow(t.Context(), "SELECT current_database(), count(*) FROM pg_tables WHERE tablename = 'river_job'").
					Scan(&names[i], &tables)
				if err != nil || tables != 1 {
					t.Errorf("got %d tables river_job, err %v; want 1", tables, err)
				}
				if _, err := pool.Exec(t.Context(), "CREATE TABLE public.mine (n int)"); err != nil {
					t.Errorf("the table of another test is here: %v", err)
				}
			})
		}
	})
	seen := map[string]bool{}
	for _, name := range names {
		if seen[name] {
			t.Errorf("database %s was handed out twice", name)
		}
		seen[name] = true
	}
}

// TestDurable keeps the tests honest: on a server without fsync or synchronous
// commit nothing they say about durability would mean anything.
func TestDurable(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t).Pool(t)
	for _, setting := range []string{"fsync", "synchronous_commit", "full_page_writes"} {
		var got string
		if err := pool.QueryRow(t.Context(), "SELECT current_setting($1)", setting).Scan(&got); err != nil {
			t.Fatal(err)
		}
		if got != "on" {
			t.Errorf("%s: got %s, want on", setting, got)
		}
	}
}

func TestDropped(t *testing.T) {
	t.Parallel()
	var url, name string
	t.Run("inner", func(t *testing.T) {
		db := pgtest.New(t)
		url = db.URL()
		// A connection that the test forgets must not keep the database alive.
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.QueryRow(t.Context(), "SELECT current_database()").Scan(&name); err != nil {
			t.Fatal(err)
		}
	})
	pool := pgtest.New(t).Pool(t)
	var left int
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_database WHERE datname = $1", name).Scan(&left); err != nil {
		t.Fatal(err)
	}
	if left != 0 {
		t.Errorf("database %s of an ended test is still there", name)
	}
}

func TestEmpty(t *testing.T) {
	t.Parallel()
	var n int
	pool := pgtest.Empty(t).Pool(t)
	err := pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')").Scan(&n)
	if err != nil || n != 0 {
		t.Errorf("got %d tables, err %v; want none", n, err)
	}
}

// TestCluster walks the way of a crash test: data that were committed before
// Postgres crashed are there after it, under the same URL.
func TestCluster(t *testing.T) {
	t.Parallel()
	s := pgtest.Cluster(t)
	db := pgtest.NewIn(t, s)
	pool := db.Pool(t)
	if _, err := pool.Exec(t.Context(), "CREATE TABLE public.kept AS SELECT 42 AS n"); err != nil {
		t.Fatal(err)
	}
	if err := s.Stop("immediate"); err != nil {
		t.Fatal(err)
	}
	if _, err := pgx.Connect(t.Context(), db.URL()); err == nil {
		t.Fatal("the stopped server still answers")
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), db.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var got int
	if err := conn.QueryRow(t.Context(), "SELECT n FROM public.kept").Scan(&got); err != nil || got != 42 {
		t.Errorf("after the crash: got %d, err %v; want 42", got, err)
	}
}
