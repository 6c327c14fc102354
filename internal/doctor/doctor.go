// Package doctor decides what is wrong with an installation, or soon will be: a
// list of checks that look at the configuration and the database, change
// nothing, and say in words what they found and what to do.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/telemetry"
)

// Level says how much a finding matters.
type Level string

// The levels. Only Fail makes `onefold doctor` fail.
const (
	OK   Level = "ok"   // looked at, and as it should be
	Note Level = "note" // cannot be judged, or not yet
	Warn Level = "warn" // costs something: money, time, patience
	Fail Level = "fail" // a promise does not hold, or work does not get done
)

// Finding is what a check found about one thing: Text is what was measured, Fix
// what to do about it.
type Finding struct {
	Check   string `json:"check"`
	Level   Level  `json:"level"`
	Subject string `json:"subject"` // what it is about, as "kind llm.chat, model m"
	Text    string `json:"text"`
	Fix     string `json:"fix,omitempty"`
}

// Env is what checks look at. What is nil could not be had.
type Env struct {
	DB     store.DBTX
	Config *config.Config
	// ConfigErr is why there is no Config.
	ConfigErr error
	// Version is that of this program.
	Version string
	// Now is this machine's clock; time.Now if nil.
	Now func() time.Time
}

func (e Env) now() time.Time {
	if e.Now == nil {
		return time.Now()
	}
	return e.Now()
}

// Need is what a check cannot look without.
type Need uint8

// The needs. A check that has one is left out once the check that gives it
// returned errNothing.
const (
	NeedConfig Need = 1 << iota // onefold.yaml could be read
	NeedDB                      // the database answers
	NeedSchema                  // our tables are there, if only an older form of them
)

// Check is one thing that is looked at. Run returns findings; an error means
// that it could not look.
type Check struct {
	Name  string
	Needs Need
	Gives Need // what is there for the checks after it unless it says errNothing
	Run   func(ctx context.Context, e Env) ([]Finding, error)
}

// errNothing is returned, besides findings, by a check whose Gives is not there.
var errNothing = errors.New("there is nothing to look at")

// Checks are all checks, in the order in which they are shown. A new check gets
// a file of its own and its line here.
var Checks = []Check{
	{Name: "configuration", Gives: NeedConfig, Run: Configuration},
	{Name: "database", Gives: NeedDB, Run: Database},
	{Name: "schema", Needs: NeedDB, Gives: NeedSchema, Run: Schema},
	{Name: "clock", Needs: NeedDB, Run: Clock},
	{Name: "settings", Needs: NeedDB, Run: Settings},
	{Name: "indexes", Needs: NeedDB | NeedSchema, Run: Indexes},
	{Name: "vacuum", Needs: NeedDB | NeedSchema, Run: Vacuum},
	{Name: "versions", Needs: NeedDB | NeedSchema, Run: Versions},
	{Name: "timeouts", Needs: NeedConfig | NeedDB | NeedSchema, Run: Timeouts},
	{Name: "retention", Needs: NeedConfig | NeedDB | NeedSchema, Run: Retention},
	{Name: "providers", Needs: NeedDB | NeedSchema, Run: Providers},
	{Name: "gates", Needs: NeedDB | NeedSchema, Run: Gates},
	{Name: "review", Needs: NeedDB | NeedSchema, Run: Review},
	{Name: "secrets", Needs: NeedConfig | NeedDB | NeedSchema, Run: Secrets},
}

// checkLimit is how long one check may take: none of them waits for work, so
// that one that takes longer waits for a database in trouble.
const checkLimit = 10 * time.Second

// Run runs checks, each within its limit and all within ctx. One that cannot
// look is a finding itself, and keeps none of the others from looking but those
// that need what it looked for.
func Run(ctx context.Context, e Env, checks []Check) []Finding {
	var all []Finding
	missing := map[Need]string{} // by which check it is known
	for _, c := range checks {
		found, err := c.run(ctx, e, missing)
		for i := range found {
			found[i].Check = c.Name
		}
		all = append(all, found...)
		if c.Gives != 0 && err != nil {
			missing[c.Gives] = c.Name
		}
	}
	return all
}

func (c Check) run(ctx context.Context, e Env, missing map[Need]string) ([]Finding, error) {
	for _, need := range []Need{NeedConfig, NeedDB, NeedSchema} {
		if by := missing[need]; c.Needs&need != 0 && by != "" {
			return []Finding{{Level: Note, Subject: "the check itself", Text: "not looked at, for what " + by + " says"}}, errNothing
		}
	}
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	found, err := c.Run(ctx, e)
	if err != nil && !errors.Is(err, errNothing) {
		found = append(found, unable(err))
	}
	return found, err
}

// unable says why a check could not look.
func unable(err error) Finding {
	f := Finding{Level: Fail, Subject: "the check itself", Text: "it could not look: " + telemetry.ScrubError(err)}
	switch state := store.SQLState(err); {
	case state == "42P01" || state == "42703": // undefined table or column
		f.Level, f.Fix = Note, "the schema lacks what it looks at: run `onefold migrate`"
	case state == "42501": // insufficient privilege
		f.Level, f.Fix = Note, "log in as a role that may read it: the one that migrates, or the programs' own"
	case errors.Is(err, context.DeadlineExceeded), state == "57014", state == "55P03":
		f.Text = fmt.Sprintf("it could not look: the database did not answer within %s", checkLimit)
		f.Fix = "see what it is busy with or waits for: SELECT * FROM pg_stat_activity WHERE state <> 'idle'"
	}
	return f
}

// Worst is the gravest level among findings.
func Worst(all []Finding) Level {
	rank := map[Level]int{OK: 0, Note: 1, Warn: 2, Fail: 3}
	worst := OK
	for _, f := range all {
		if rank[f.Level] > rank[worst] {
			worst = f.Level
		}
	}
	return worst
}
