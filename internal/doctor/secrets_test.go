package doctor_test

import (
	"strings"
	"testing"

	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/doctor"
	"github.com/onefold-dev/onefold/internal/pg/pgtest"
)

// A secret that has signed for 90 days is warned of, until a newer one signs.
func TestOldSecret(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t).Pool(t)
	exec := func(sql string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	look := func() []doctor.Finding {
		t.Helper()
		found, err := doctor.Secrets(t.Context(), doctor.Env{DB: pool, Config: &config.Config{}})
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	exec(`INSERT INTO onefold.gates (scope, name, salt) SELECT 'destination', n, decode(repeat('00', 32), 'hex') FROM unnest('{crm,hook}'::text[]) AS n`)
	exec(`INSERT INTO onefold.destination_signers (destination, secret, first_at, deliveries) VALUES ('crm', 'a', now() - interval '91 days', 7), ('hook', 'b', now() - interval '89 days', 7)`)
	if found := look(); len(found) != 1 || found[0].Subject != "destination crm" || !strings.Contains(found[0].Text, "91 days") || found[0].Level != doctor.Warn {
		t.Errorf("got %+v, want one warning of crm", found)
	}
	exec(`INSERT INTO onefold.destination_signers (destination, secret, deliveries) VALUES ('crm', 'c', 1)`)
	if found := look(); len(found) != 0 {
		t.Errorf("after a rotation: got %+v", found)
	}
}
