package migrations_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/internal/pg/pgtest"
	"github.com/onefold-dev/onefold/migrations"
)

// The way down leads back to nothing, and the way up again to the same schema.
func TestUpDownUp(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	up := func() []string {
		t.Helper()
		if err := migrations.Up(t.Context(), db.URL()); err != nil {
			t.Fatal(err)
		}
		return strings.Split(dump(t, db), "\n")
	}
	first := up()
	if err := migrations.Down(t.Context(), db.URL()); err != nil {
		t.Fatal(err)
	}
	if left := tables(t, db); !slices.Equal(left, []string{"goose_version"}) {
		t.Errorf("the way down left the tables %v", left)
	}
	if diff := cmp.Diff(up(), first); diff != "" {
		t.Errorf("the second way up gives another schema: %s", diff)
	}
	if diff := cmp.Diff(up(), first); diff != "" {
		t.Errorf("a repeated way up changes the schema: %s", diff)
	}
}

func tables(t *testing.T, db *pgtest.DB) []string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), db.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	rows, err := conn.Query(t.Context(), "SELECT tablename::text FROM pg_tables WHERE schemaname = 'onefold' ORDER BY 1")
	if err != nil {
		t.Fatal(err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// A claim changes these columns of a task. An index on one of them, or whose
// condition names one, would make each claim write to all of the table's indexes.
func TestClaimsTouchNoIndex(t *testing.T) {
	t.Parallel()
	var names []string
	err := pgtest.New(t).Pool(t).QueryRow(t.Context(), `
SELECT coalesce(array_agg(DISTINCT i.relname || ' names ' || a.attname), '{}')
FROM pg_depend AS d
JOIN pg_class AS i ON i.oid = d.objid AND i.relkind = 'i'
JOIN pg_attribute AS a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
WHERE d.classid = 'pg_class'::regclass AND d.refobjid = 'onefold.tasks'::regclass
    AND a.attname IN ('state', 'epoch', 'owner', 'token', 'attempts', 'total_attempts', 'started_at')`).Scan(&names)
	if err != nil || len(names) > 0 {
		t.Errorf("got %q, %v, want none", names, err)
	}
}
