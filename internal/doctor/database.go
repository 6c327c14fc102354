package doctor

import (
	"context"
	"errors"
	"fmt"

	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/telemetry"
	"github.com/onefold-dev/onefold/migrations"
)

// oldestServer is the oldest Postgres that is supported, as server_version_num.
const oldestServer = 150000

// Database says whether the database answers and could take our writes.
func Database(ctx context.Context, e Env) ([]Finding, error) {
	s, err := store.ReadServer(ctx, e.DB, nil)
	if err != nil {
		f := Finding{
			Level: Fail, Subject: "the database", Text: "it does not answer: " + telemetry.ScrubError(err),
			Fix: "check that it runs, the URL, and that this user may connect",
		}
		if errors.Is(err, context.DeadlineExceeded) {
			f.Text = fmt.Sprintf("it did not answer within %s", checkLimit)
		}
		return []Finding{f}, errNothing
	}
	return judgeServer(s), nil
}

func judgeServer(s store.Server) (out []Finding) {
	fail := func(fix, format string, args ...any) {
		out = append(out, Finding{Level: Fail, Subject: "database " + s.Database, Text: fmt.Sprintf(format, args...), Fix: fix})
	}
	if s.Number < oldestServer {
		fail("move to Postgres 15 or newer", "it is Postgres %s", s.Version)
	}
	if s.Standby {
		fail("connect to the primary: add target_session_attrs=read-write to the URL", "it is a standby and takes no writes")
	} else if s.ReadOnly {
		fail("unset default_transaction_read_only for the role "+s.Role, "its transactions are read-only")
	}
	if s.Encoding != "UTF8" {
		fail("make a database with ENCODING 'UTF8' TEMPLATE template0", "its encoding is %s", s.Encoding)
	}
	if free := s.MostConnections - s.Connections; free*5 < s.MostConnections {
		out = append(out, Finding{
			Level: Warn, Subject: "database " + s.Database, Text: fmt.Sprintf("%d of %d connections are taken", s.Connections, s.MostConnections),
			Fix: "raise max_connections, or bound the programs' pools (pool_max_conns in the URL)",
		})
	}
	if len(out) == 0 {
		out = []Finding{{Level: OK, Subject: "database " + s.Database, Text: fmt.Sprintf("Postgres %s, %d of %d connections taken", s.Version, s.Connections, s.MostConnections)}}
	}
	return out
}

// Schema says whether the schema is there and as new as this program. A newer
// one is fine: the programs of a version run on the schema of the next.
func Schema(ctx context.Context, e Env) ([]Finding, error) {
	have, there, err := store.SchemaVersion(ctx, e.DB)
	if err != nil {
		return nil, err
	}
	if !there {
		return []Finding{{Level: Fail, Subject: "schema onefold", Text: "it is not there", Fix: "run `onefold migrate`"}}, errNothing
	}
	want := migrations.Latest()
	f := Finding{Level: OK, Subject: "schema onefold", Text: fmt.Sprintf("version %d", have)}
	switch {
	case have < want:
		f.Level, f.Text, f.Fix = Fail, fmt.Sprintf("version %d, and this program needs %d", have, want), "run `onefold migrate`"
	case have > want:
		f.Level, f.Text = Note, fmt.Sprintf("version %d, newer than this program's %d: checks of the newer version are not made", have, want)
	}
	out := []Finding{f}
	if err := store.CheckRiver(ctx, e.DB); err != nil {
		out = append(out, Finding{Level: Fail, Subject: "River's tables", Text: telemetry.ScrubError(err), Fix: "run `onefold migrate`"})
	}
	return out, nil
}
