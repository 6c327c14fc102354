// Package doctor decides what is wrong with an installation, or soon will be: a
// list of checks that look at the configuration and the database, change
// nothing, and say in words what they found and what to do.
package doctor

import (
	"context"
	"fmt"

	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/store"
)

// Level says how much a finding matters.
type Level string

// The levels. Only Bad makes `onefold doctor` fail.
const (
	Fine Level = "fine" // looked at, and as it should be
	Note Level = "note" // cannot be judged yet, or worth knowing
	Warn Level = "warn" // costs something: money, time, patience
	Bad  Level = "bad"  // a promise does not hold, or work does not get done
)

// Finding is what a check found about one thing.
type Finding struct {
	Check   string `json:"check"`
	Level   Level  `json:"level"`
	Subject string `json:"subject"` // what it is about, as "kind llm.chat, model m"
	Text    string `json:"text"`
	Fix     string `json:"fix,omitempty"`
}

// Env is what checks look at.
type Env struct {
	DB     store.DBTX
	Config *config.Config
}

// Check is one thing that is looked at. Run returns findings; an error means
// that it could not look.
type Check struct {
	Name string
	Run  func(ctx context.Context, e Env) ([]Finding, error)
}

// Checks are all checks, in the order in which they are shown. A new check gets
// a file of its own and its line here.
var Checks = []Check{
	{"timeouts", Timeouts},
	{"retention", Retention},
	{"providers", Providers},
	{"secrets", Secrets},
}

// Run runs checks. One that cannot look is a finding itself, and keeps none of
// the others from looking.
func Run(ctx context.Context, e Env, checks []Check) []Finding {
	var all []Finding
	for _, c := range checks {
		found, err := c.Run(ctx, e)
		for i := range found {
			found[i].Check = c.Name
		}
		all = append(all, found...)
		if err != nil {
			all = append(all, Finding{Check: c.Name, Level: Bad, Subject: "the check itself", Text: fmt.Sprintf("it could not look: %v", err)})
		}
	}
	return all
}

// Worst is the gravest level among findings.
func Worst(all []Finding) Level {
	rank := map[Level]int{Fine: 0, Note: 1, Warn: 2, Bad: 3}
	worst := Fine
	for _, f := range all {
		if rank[f.Level] > rank[worst] {
			worst = f.Level
		}
	}
	return worst
}
