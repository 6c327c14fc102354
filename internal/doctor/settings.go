package doctor

import (
	"context"
	"fmt"

	"github.com/onefold-dev/onefold/internal/store"
)

// guc is one setting of the server: what it must not be, and why.
type guc struct {
	name, not string
	level     Level
	why, fix  string
}

var gucs = []guc{
	{"fsync", "off", Fail, "an answer is given before anything is on disk", "set fsync = on"},
	{"full_page_writes", "off", Fail, "a power cut can tear pages", "set full_page_writes = on"},
	{"synchronous_commit", "off", Fail, "a committed task can be lost", "set synchronous_commit = on for the programs' role"},
	{"synchronous_commit", "local", Fail, "a failover can lose a committed task", "set synchronous_commit = on for the programs' role"},
	{"autovacuum", "off", Fail, "dead rows pile up until the queue stands still", "set autovacuum = on"},
	{"track_counts", "off", Fail, "autovacuum does not see what to do", "set track_counts = on"},
	{"synchronous_standby_names", "", Note, "a failover to a standby can lose what was committed last", "name synchronous standbys if there is a failover"},
}

// Settings looks at the settings of the server, as this session has them.
func Settings(ctx context.Context, e Env) ([]Finding, error) {
	var names []string
	for _, g := range gucs {
		names = append(names, g.name)
	}
	s, err := store.ReadServer(ctx, e.DB, names)
	if err != nil {
		return nil, err
	}
	return judgeSettings(s.Settings), nil
}

func judgeSettings(have map[string]string) (out []Finding) {
	for _, g := range gucs {
		v, known := have[g.name]
		if !known || v != g.not {
			continue
		}
		if v == "" {
			v = "empty"
		}
		out = append(out, Finding{Level: g.level, Subject: g.name, Text: fmt.Sprintf("it is %s: %s", v, g.why), Fix: g.fix})
	}
	if Worst(out) != Fail {
		out = append(out, Finding{Level: OK, Subject: "Postgres", Text: "what durability and vacuum depend on is on"})
	}
	return out
}
