package doctor_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/internal/doctor"
)

// A provider whose tasks wait and which nobody serves is named, until a worker
// is there.
func TestProviders(t *testing.T) {
	t.Parallel()
	b := setup(t)
	look := func() doctor.Finding {
		t.Helper()
		found, err := doctor.Providers(t.Context(), doctor.Env{DB: b.pool, Config: b.cfg})
		if err != nil || len(found) != 1 {
			t.Fatalf("got %+v, %v", found, err)
		}
		return found[0]
	}
	want := doctor.Finding{
		Level: doctor.Fail, Subject: "provider p", Text: "1 task waits, and no live worker serves the provider: what waits runs into its deadline",
		Fix: "start a worker with the provider p in its onefold.yaml",
	}
	if diff := cmp.Diff(look(), want); diff != "" {
		t.Errorf("nobody: -got +want:\n%s", diff)
	}
	if _, err := b.pool.Exec(t.Context(), `
INSERT INTO onefold.workers (incarnation, process, instance, host, pid, version, providers, expires_at)
VALUES (gen_random_uuid(), gen_random_uuid(), 'i', 'h', 1, 'v', '{p}', now() + interval '1 hour')`); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(look(), doctor.Finding{Level: doctor.OK, Subject: "provider p", Text: "1 task waits, 1 worker serves it"}); diff != "" {
		t.Errorf("a worker: -got +want:\n%s", diff)
	}
	if _, err := b.pool.Exec(t.Context(), `UPDATE onefold.tasks SET state = 'cancelled', finished_at = now(), expires_at = now()`); err != nil {
		t.Fatal(err)
	}
	if f := look(); f.Level != doctor.OK || f.Text != "no task waits" {
		t.Errorf("nothing waits: %+v", f)
	}
}
