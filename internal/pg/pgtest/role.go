package pgtest

import (
	"context"
	"crypto/rand"
	"net/url"
	"strings"
	"testing"

	"github.com/onefold-dev/onefold/migrations"
)

// Runtime makes a role as `onefold migrate --runtime-role` does, for this
// database alone, and returns the URL to connect as it. The role is dropped when
// t ends.
func (d *DB) Runtime(t testing.TB, settings []migrations.Setting) string {
	t.Helper()
	role := migrations.Role{Name: d.Role(t), Password: rand.Text(), Settings: settings}
	if err := migrations.Grant(context.Background(), d.url, role); err != nil {
		t.Fatalf("make a runtime role: %v", err)
	}
	return d.As(t, role.Name, role.Password)
}

// As is the URL of the database for another role.
func (d *DB) As(t testing.TB, name, password string) string {
	t.Helper()
	u, err := url.Parse(d.url)
	if err != nil {
		t.Fatalf("read the test database's URL: %v", err)
	}
	u.User = url.UserPassword(name, password)
	return u.String()
}

// Role names a role that does not exist yet. Where it does when t ends, it is
// dropped, with what it owns in this database.
func (d *DB) Role(t testing.TB) string {
	t.Helper()
	name := "test_" + strings.ToLower(rand.Text())
	t.Cleanup(func() {
		err := run(d.url, "DO $$ BEGIN IF EXISTS (SELECT FROM pg_roles WHERE rolname = '"+name+"') THEN "+
			"DROP OWNED BY "+name+" CASCADE; DROP ROLE "+name+"; END IF; END $$")
		if err != nil {
			t.Errorf("drop the role: %v", err)
		}
	})
	return name
}
