package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/onefold-dev/onefold/internal/store"
)

// The database's clock decides; this machine's is used for ids, in logs, and in
// the time that webhooks are signed with, which receivers accept for minutes.
const (
	clockWorth = 2 * time.Second
	clockBad   = time.Minute
)

// Clock compares this machine's clock with the database's.
func Clock(ctx context.Context, e Env) ([]Finding, error) {
	before := e.now()
	s, err := store.ReadServer(ctx, e.DB, nil)
	if err != nil {
		return nil, err
	}
	after := e.now()
	return []Finding{judgeClock(s.Now, before, after)}, nil
}

// judgeClock takes as off only what the time of the question cannot explain.
func judgeClock(db, before, after time.Time) Finding {
	f := Finding{Level: OK, Subject: "this machine", Text: fmt.Sprintf("its clock agrees with the database's, within %s", short(after.Sub(before)))}
	off, word := before.Sub(db), "ahead of"
	if behind := db.Sub(after); behind > off {
		off, word = behind, "behind"
	}
	if off < clockWorth {
		return f
	}
	f.Level, f.Text = Warn, fmt.Sprintf("its clock is %s %s the database's", short(off), word)
	f.Fix = "set both by the same time server (NTP)"
	if off >= clockBad {
		f.Level = Fail
		f.Text += ": receivers refuse signatures of another time"
	}
	return f
}
