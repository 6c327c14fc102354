package migrations_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/onefold-dev/onefold/internal/pg/pgtest"
	"github.com/onefold-dev/onefold/migrations"
)

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func run(t *testing.T, conn *pgx.Conn, statements ...string) {
	t.Helper()
	for _, sql := range statements {
		if _, err := conn.Exec(context.Background(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

// TestRuntimeRoleChangesNoSchema: what a stolen runtime password cannot do. That
// the role can do its work is shown by the end-to-end tests, which all use one.
func TestRuntimeRoleChangesNoSchema(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := connect(t, db.Runtime(t, nil))
	for _, sql := range []string{
		"CREATE TABLE onefold.mine (n int)",
		"CREATE FUNCTION onefold.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
		"CREATE INDEX ON onefold.tasks (kind)",
		"CREATE TRIGGER mine BEFORE INSERT ON onefold.tasks FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
		"CREATE SCHEMA mine",
		"CREATE ROLE mine",
		"ALTER TABLE onefold.tasks ADD COLUMN mine int",
		"ALTER TABLE onefold.tasks DROP CONSTRAINT tasks_key",
		"ALTER TABLE onefold.tasks DISABLE TRIGGER ALL",
		"ALTER SCHEMA onefold RENAME TO mine",
		"DROP TABLE onefold.tasks",
		"DROP INDEX onefold.tasks_tenant",
		"DROP SCHEMA onefold CASCADE",
		"TRUNCATE onefold.tasks CASCADE",
		"UPDATE onefold.audit SET actor = 'nobody'",
		"DELETE FROM onefold.audit",
		"UPDATE onefold.goose_version SET version_id = 0",
		"DELETE FROM onefold.river_migration",
		"SELECT pg_read_file('/etc/passwd')",
		"COPY onefold.tasks TO PROGRAM 'true'",
	} {
		var pg *pgconn.PgError
		if _, err := conn.Exec(context.Background(), sql); !errors.As(err, &pg) || pg.Code != "42501" {
			t.Errorf("%s: got %v, want it refused for want of privilege", sql, err)
		}
	}
	run(t, conn, "INSERT INTO onefold.audit (actor, action, target_type, target_id) VALUES ('a', 'b', 'c', 'd')",
		"SELECT * FROM onefold.goose_version", "SELECT nextval('onefold.river_job_id_seq')")
}

// Tables of migrations to come are the role's too, also when somebody migrates
// without naming it.
func TestLaterTables(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := connect(t, db.Runtime(t, nil))
	run(t, connect(t, db.URL()), "CREATE TABLE onefold.later (id bigserial, n int)")
	run(t, conn, "INSERT INTO onefold.later (n) VALUES (1)", "UPDATE onefold.later SET n = 2", "DELETE FROM onefold.later")
}

func TestGrantMakesTheRole(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	r := migrations.Role{Name: db.Role(t), Password: "pässword 'quoted' \\ $", Settings: []migrations.Setting{
		{Name: "lock_timeout", Value: "1234"}, {Name: "default_transaction_isolation", Value: "read committed"},
	}}
	// Several at once, as replicas of a migrating container are.
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			if err := migrations.Grant(context.Background(), db.URL(), r); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	var lock string
	conn := connect(t, db.As(t, r.Name, r.Password))
	if err := conn.QueryRow(context.Background(), "SHOW lock_timeout").Scan(&lock); err != nil || lock != "1234ms" {
		t.Errorf("got the lock_timeout %q, %v, want 1234ms", lock, err)
	}
	// Again, with another password and limit, and after someone gave it too much.
	run(t, connect(t, db.URL()), "GRANT ALL ON SCHEMA onefold TO "+r.Name, "GRANT ALL ON ALL TABLES IN SCHEMA onefold TO "+r.Name)
	r.Password, r.Settings[0].Value = "another", "2345"
	if err := migrations.Grant(context.Background(), db.URL(), r); err != nil {
		t.Fatal(err)
	}
	conn = connect(t, db.As(t, r.Name, "another"))
	if err := conn.QueryRow(context.Background(), "SHOW lock_timeout").Scan(&lock); err != nil || lock != "2345ms" {
		t.Errorf("got the lock_timeout %q, %v, want 2345ms", lock, err)
	}
	for _, sql := range []string{"CREATE TABLE onefold.mine (n int)", "TRUNCATE onefold.tasks CASCADE"} {
		if _, err := conn.Exec(context.Background(), sql); err == nil {
			t.Errorf("%s: it may still do that", sql)
		}
	}
	if _, err := pgx.Connect(context.Background(), db.As(t, r.Name, "pässword 'quoted' \\ $")); err == nil {
		t.Error("the old password still opens")
	}
}

func TestGrantRefuses(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	admin := connect(t, db.URL())
	mighty, group, member, owner := db.Role(t), db.Role(t), db.Role(t), db.Role(t)
	run(t, admin, "CREATE ROLE "+mighty+" LOGIN CREATEROLE", "CREATE ROLE "+group, "CREATE ROLE "+owner,
		"CREATE ROLE "+member+" LOGIN IN ROLE "+owner, "GRANT CREATE ON SCHEMA onefold TO "+owner,
		"SET ROLE "+owner, "CREATE TABLE onefold.owned (n int)", "RESET ROLE")
	for name, want := range map[string]string{
		"postgres": "superuser", mighty: "may make roles", group: "may not log in", member: "member of the role",
	} {
		err := migrations.Grant(context.Background(), db.URL(), migrations.Role{Name: name})
		if !errors.Is(err, migrations.ErrRole) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q in it", name, err, want)
		}
	}
}

// Where the migrating role may not make roles, an administrator is told what to
// run, once; and nothing is half done.
func TestGrantWithoutRightsOnRoles(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	admin := connect(t, db.URL())
	migrator, name := db.Role(t), db.Role(t)
	run(t, admin, "CREATE ROLE "+migrator+" LOGIN PASSWORD 'm'", "GRANT CREATE ON DATABASE "+admin.Config().Database+" TO "+migrator)
	url := db.As(t, migrator, "m")
	if err := migrations.Up(context.Background(), url); err != nil {
		t.Fatal(err)
	}
	r := migrations.Role{Name: name, Password: "hush-hush", Settings: []migrations.Setting{{Name: "lock_timeout", Value: "5000"}}}
	var denied *migrations.RoleError
	if err := migrations.Grant(context.Background(), url, r); !errors.As(err, &denied) {
		t.Fatalf("got %v, want a RoleError", err)
	}
	told := strings.Join(denied.SQL, "; ")
	for _, want := range []string{"CREATE ROLE", "lock_timeout", "PASSWORD '...'"} {
		if !strings.Contains(told, want) {
			t.Errorf("got %q, want %q in it", told, want)
		}
	}
	if strings.Contains(told, "hush") || strings.Contains(told, "SCRAM") {
		t.Errorf("the password is shown: %s", told)
	}
	run(t, admin, denied.SQL...)
	r.Password = "" // set by the administrator
	if err := migrations.Grant(context.Background(), url, r); err != nil {
		t.Fatal(err)
	}
	run(t, admin, "ALTER ROLE "+name+" PASSWORD 'x'")
	run(t, connect(t, db.As(t, name, "x")), "SELECT * FROM onefold.tasks")
	if got := tables(t, db); !slices.Contains(got, "tasks") {
		t.Errorf("got the tables %v", got)
	}
}
