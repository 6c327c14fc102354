package migrations

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Setting is a parameter of Postgres and the value connections are to have.
type Setting struct{ Name, Value string }

// Role is who api and worker connect as: a role that reads and writes the
// tables and cannot change the schema.
type Role struct {
	Name     string
	Password string    // is set on the role; "" leaves the role's as it is
	Settings []Setting // of the role's connections to this database
}

// tables that a runtime role does not read and write like all others.
var tables = []struct{ name, privileges string }{
	{"audit", "SELECT, INSERT"}, // what a person did is never rewritten
	{"goose_version", "SELECT"},
	{"river_migration", "SELECT"},
}

const allTables = "SELECT, INSERT, UPDATE, DELETE"

// RoleError says that the migrating role may not make or alter roles, and what
// one that may must run.
type RoleError struct {
	Role string
	SQL  []string
	err  error
}

func (e *RoleError) Error() string {
	return fmt.Sprintf("the role that migrates may not make or alter the role %s", e.Role)
}

func (e *RoleError) Unwrap() error { return e.err }

// ErrRole is wrapped by what is said of a role that cannot be the runtime's.
var ErrRole = errors.New("not a runtime role")

// Grant lets r use the schema: it makes the role where there is none, and gives
// it what it lacks and takes what it need not have, in one transaction. Tables
// of later migrations by the same migrating role are granted as they are made.
// It may be repeated; a process that dies leaves all or nothing of it.
func Grant(ctx context.Context, directURL string, r Role) error {
	conn, err := lockConn(ctx, directURL)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for try := 0; ; try++ {
		err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return grant(ctx, tx, r) })
		var pg *pgconn.PgError
		// Roles belong to the cluster, the lock to one database: another may have
		// made the role meanwhile.
		if errors.As(err, &pg) && (pg.Code == "42710" || pg.Code == "23505" || pg.Code == "XX000") && try < 3 {
			continue
		}
		return err
	}
}

func grant(ctx context.Context, tx pgx.Tx, r Role) error {
	alter, err := alterations(ctx, tx, r)
	if err != nil {
		return err
	}
	for _, s := range alter {
		if _, err := tx.Exec(ctx, s.run); err != nil {
			var pg *pgconn.PgError
			if errors.As(err, &pg) && pg.Code == "42501" {
				denied := &RoleError{Role: r.Name, err: err}
				for _, s := range alter {
					denied.SQL = append(denied.SQL, s.show)
				}
				return denied
			}
			return fmt.Errorf("set the role %s up: %w", r.Name, err)
		}
	}
	if err := fit(ctx, tx, r.Name); err != nil {
		return err
	}
	for _, sql := range grants(r.Name) {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return fmt.Errorf("grant to the role %s: %w", r.Name, err)
		}
	}
	return nil
}

// alteration is a statement that needs a right on roles, as it is run and as it
// may be shown.
type alteration struct{ run, show string }

// alterations are those that the role still lacks: a role that an administrator
// has set up needs none, and then migrating needs no right on roles.
func alterations(ctx context.Context, tx pgx.Tx, r Role) ([]alteration, error) {
	var exists, connects bool
	var database string
	var have []string
	err := tx.QueryRow(ctx, `
SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1),
       current_database(),
       coalesce((SELECT has_database_privilege(oid, current_database(), 'CONNECT') FROM pg_roles WHERE rolname = $1), true),
       ARRAY(SELECT unnest(s.setconfig)
             FROM pg_db_role_setting AS s
             JOIN pg_roles AS r ON r.oid = s.setrole
             JOIN pg_database AS d ON d.oid = s.setdatabase
             WHERE r.rolname = $1 AND d.datname = current_database())`, r.Name).Scan(&exists, &database, &connects, &have)
	if err != nil {
		return nil, fmt.Errorf("look at the role %s: %w", r.Name, err)
	}
	name, db := pgx.Identifier{r.Name}.Sanitize(), pgx.Identifier{database}.Sanitize()
	var out []alteration
	add := func(sql string) { out = append(out, alteration{sql, sql}) }
	if !exists {
		add("CREATE ROLE " + name + " LOGIN")
	}
	if r.Password != "" {
		verifier, err := scramVerifier(r.Password)
		if err != nil {
			return nil, err
		}
		out = append(out, alteration{"ALTER ROLE " + name + " PASSWORD " + literal(verifier), "ALTER ROLE " + name + " PASSWORD '...'"})
	}
	if !connects {
		add("GRANT CONNECT ON DATABASE " + db + " TO " + name)
	}
	set := map[string]bool{}
	for _, s := range have {
		set[s] = true
	}
	for _, s := range r.Settings {
		if !set[s.Name+"="+s.Value] {
			add("ALTER ROLE " + name + " IN DATABASE " + db + " SET " + s.Name + " = " + literal(s.Value))
		}
	}
	return out, nil
}

// fit refuses a role that could change the schema all the same, or that no
// process can log in as.
func fit(ctx context.Context, tx pgx.Tx, name string) error {
	var login, mighty, owns bool
	err := tx.QueryRow(ctx, `
SELECT r.rolcanlogin, r.rolsuper OR r.rolcreaterole OR r.rolcreatedb OR r.rolreplication OR r.rolbypassrls,
       EXISTS (SELECT FROM pg_namespace AS n WHERE n.nspname = 'onefold' AND pg_has_role(r.oid, n.nspowner, 'MEMBER'))
       OR EXISTS (SELECT FROM pg_class AS c WHERE c.relnamespace = 'onefold'::regnamespace AND pg_has_role(r.oid, c.relowner, 'MEMBER'))
FROM pg_roles AS r
WHERE r.rolname = $1`, name).Scan(&login, &mighty, &owns)
	switch {
	case err != nil:
		return fmt.Errorf("look at the role %s: %w", name, err)
	case mighty:
		return fmt.Errorf("%w: %s is a superuser or may make roles or databases; name one with LOGIN alone, or a new one", ErrRole, name)
	case owns:
		return fmt.Errorf("%w: %s owns the tables, or is a member of the role that does, and could change them; name another, or a new one", ErrRole, name)
	case !login:
		return fmt.Errorf("%w: %s may not log in, and the settings of a group do not hold for its members; name the role that the processes log in as", ErrRole, name)
	}
	return nil
}

// grants gives the rights anew, from none.
func grants(role string) []string {
	name := pgx.Identifier{role}.Sanitize()
	out := []string{
		"REVOKE ALL ON SCHEMA onefold FROM " + name,
		"REVOKE ALL ON ALL TABLES IN SCHEMA onefold FROM " + name,
		"GRANT USAGE ON SCHEMA onefold TO " + name,
		"GRANT " + allTables + " ON ALL TABLES IN SCHEMA onefold TO " + name,
		"GRANT USAGE ON ALL SEQUENCES IN SCHEMA onefold TO " + name,
		"ALTER DEFAULT PRIVILEGES IN SCHEMA onefold GRANT " + allTables + " ON TABLES TO " + name,
		"ALTER DEFAULT PRIVILEGES IN SCHEMA onefold GRANT USAGE ON SEQUENCES TO " + name,
	}
	for _, t := range tables {
		out = append(out,
			"REVOKE ALL ON onefold."+t.name+" FROM "+name,
			"GRANT "+t.privileges+" ON onefold."+t.name+" TO "+name)
	}
	return out
}

// literal quotes a value for a statement that takes no parameters.
func literal(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
