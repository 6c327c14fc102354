package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/onefold-dev/onefold/internal/audit"
	"github.com/onefold-dev/onefold/internal/config"
)

type auditCmd struct {
	dbFlags
	SQL       string        `name:"sql" placeholder:"FILE|SQL" help:"A query for results that are there twice: the task's id in a column task_id, the business key in the others."`
	Since     moment        `placeholder:"TIME" help:"Only tasks created at or after this time (RFC 3339), or so long ago; 168h when not given."`
	Older     time.Duration `default:"24h" help:"From which age an effect without a final state is a finding."`
	Timeout   time.Duration `default:"1m" help:"How long one query may take."`
	Conflicts bool          `help:"Also print submits that were refused because their key was used with another payload, by kind and beginning of the key."`
}

func (c *auditCmd) Help() string {
	return `It reads in one read-only transaction, directly on the database, and changes nothing. With --sql it groups what the query
returns by all columns but task_id, and prints the groups of more than one task, without those that
onefold mark-duplicate has marked. For example, for invoices:

    SELECT result->>'customer' AS customer, result->>'number' AS number, task_id FROM invoices

The exit code is 1 when something is wrong.`
}

func (c *auditCmd) Run(ctx context.Context, e *env) error {
	o := audit.Opts{Since: e.now().Add(-7 * 24 * time.Hour), Older: c.Older, Timeout: c.Timeout, Config: config.Built(e.getenv), SQL: c.SQL}
	o.Config.SkipSecrets, o.Config.SkipSources = true, true
	if t := c.Since.ago(e.now()); t != nil {
		o.Since = *t
	}
	if c.SQL != "" && !strings.ContainsAny(c.SQL, " \n") {
		b, err := os.ReadFile(c.SQL)
		if err != nil {
			return usage(fmt.Sprintf("--sql: %v", err), "Give a SELECT, or the name of a file that holds one.")
		}
		o.SQL = string(b)
	}
	pool, err := c.open(ctx, e)
	if err != nil {
		return err
	}
	defer pool.Close()
	r, err := audit.Run(ctx, pool, o)
	var own *audit.ErrSQL
	if errors.As(err, &own) {
		return usage(clean(own.Error()), "Only reading is allowed, for %s. SQLSTATE %s.", c.Timeout, own.Err.Code)
	}
	if err != nil {
		return dbProblem(err)
	}
	if err := e.audited(r, c.SQL != "", c.Conflicts); err != nil {
		return err
	}
	if r.Wrong() {
		return ending(exitError)
	}
	return nil
}

// auditLine is a finding as -o json shows it.
type auditLine struct {
	Check       string     `json:"check"`
	Wrong       bool       `json:"wrong"`
	Tasks       []string   `json:"tasks,omitempty"`
	Key         string     `json:"key,omitempty"`
	Tenant      string     `json:"tenant,omitempty"`
	Kind        string     `json:"kind,omitempty"`
	State       string     `json:"state,omitempty"`
	Effect      string     `json:"effect,omitempty"`
	Destination string     `json:"destination,omitempty"`
	Count       int64      `json:"count,omitempty"`
	Old         int64      `json:"old,omitempty"`
	Oldest      *time.Time `json:"oldest,omitempty"`
	Last        *time.Time `json:"last,omitempty"`
	Attempts    *int32     `json:"attempts,omitempty"`
	InLedger    *int64     `json:"in_ledger,omitempty"`
	Succeeded   int64      `json:"succeeded,omitempty"`
}

// section is one check: its rows for people, its lines for programs.
type section struct {
	title, fine, fix string
	head             []string
	rows             [][]string
	lines            []auditLine
}

func (e *env) audited(r *audit.Report, duplicates, conflicts bool) error {
	all := []section{e.ledgerSection(r), e.effectsSection(r), e.missingSection(r)}
	if duplicates {
		all = append([]section{e.duplicatesSection(r)}, all...)
	}
	if conflicts {
		all = append(all, e.conflictsSection(r))
	}
	for i, s := range all {
		if e.json {
			for _, l := range s.lines {
				if err := e.jsonLine(l); err != nil {
					return err
				}
			}
			continue
		}
		if i > 0 {
			s.title = "\n" + s.title
		}
		if len(s.rows) == 0 {
			if err := e.print(s.title + ": " + s.fine + "\n"); err != nil {
				return err
			}
			continue
		}
		if err := e.print(s.title + ":\n"); err != nil {
			return err
		}
		if err := e.rows(append([][]string{s.head}, s.rows...), nil); err != nil {
			return err
		}
		if s.fix != "" {
			if err := e.print(s.fix + "\n"); err != nil {
				return err
			}
		}
	}
	if len(r.Unread) > 0 {
		e.say("not looked at, for this program cannot read their configuration: %s", strings.Join(r.Unread, ", "))
	}
	return nil
}

func (e *env) duplicatesSection(r *audit.Report) section {
	s := section{
		title: "results that are there twice", fine: "none", head: []string{"BUSINESS KEY", "TASKS"},
		fix: "Decide which stays; then onefold mark-duplicate, onefold compensate (docs/playbooks/duplicates.md).",
	}
	for _, d := range r.Duplicates {
		var ids []string
		for _, id := range d.Tasks {
			ids = append(ids, id.String())
		}
		key := clean(strings.Join(d.Key, " "))
		s.rows = append(s.rows, []string{key, orDash(strings.Join(ids, " "))})
		s.lines = append(s.lines, auditLine{Check: "duplicates", Wrong: true, Key: key, Tasks: ids})
	}
	return s
}

func (e *env) ledgerSection(r *audit.Report) section {
	s := section{
		title: "calls against the ledger", fine: "they agree", head: []string{"TASK", "TENANT", "KIND", "KEY", "COUNTED", "IN LEDGER", "SUCCEEDED"},
		fix: "Look at each with onefold attempts ID.",
	}
	for _, g := range r.Ledger {
		s.rows = append(s.rows, []string{
			g.ID.String(), clean(g.Tenant), clean(g.Kind), clean(orDash(g.Key)), strconv.Itoa(int(g.Counted)), strconv.FormatInt(g.InLedger, 10), strconv.FormatInt(g.Successes, 10),
		})
		s.lines = append(s.lines, auditLine{
			Check: "ledger", Wrong: true, Tasks: []string{g.ID.String()}, Tenant: g.Tenant, Kind: g.Kind, Key: g.Key,
			Attempts: &g.Counted, InLedger: &g.InLedger, Succeeded: g.Successes,
		})
	}
	return s
}

func (e *env) effectsSection(r *audit.Report) section {
	s := section{
		title: "effects without a final state", fine: "none", head: []string{"DESTINATION", "STATE", "COUNT", "TOO OLD", "OLDEST"},
		fix: "See onefold review list and onefold destinations list.",
	}
	for _, o := range r.Effects {
		s.rows = append(s.rows, []string{
			clean(orDash(o.Destination)), string(o.State), strconv.FormatInt(o.Count, 10), strconv.FormatInt(o.Old, 10), e.when(o.Oldest),
		})
		at := o.Oldest.UTC()
		s.lines = append(s.lines, auditLine{
			Check: "effects", Wrong: o.Old > 0, Destination: o.Destination, State: string(o.State), Count: o.Count, Old: o.Old, Oldest: &at,
		})
	}
	return s
}

func (e *env) missingSection(r *audit.Report) section {
	s := section{title: "outcomes without their effects", fine: "none", head: []string{"TASK", "TENANT", "KIND", "KEY", "STATE", "LACKS"}}
	for _, m := range r.Missing {
		s.rows = append(s.rows, []string{m.ID.String(), clean(m.Tenant), clean(m.Kind), clean(orDash(m.Key)), string(m.State), clean(m.Effect)})
		s.lines = append(s.lines, auditLine{
			Check: "missing_effects", Wrong: true, Tasks: []string{m.ID.String()}, Tenant: m.Tenant, Kind: m.Kind, Key: m.Key, State: string(m.State), Effect: m.Effect,
		})
	}
	return s
}

func (e *env) conflictsSection(r *audit.Report) section {
	s := section{
		title: "keys used with another payload (422)", fine: "none", head: []string{"TENANT", "KIND", "KEYS LIKE", "COUNT", "LAST", "LAST TASK"},
		fix: "Nothing was changed by them. A key that stands for several payloads is made of too little: see the caller.",
	}
	for _, c := range r.Conflicts {
		like := c.Prefix + "..."
		at := c.LastAt.UTC()
		s.rows = append(s.rows, []string{clean(c.Tenant), clean(c.Kind), clean(like), strconv.FormatInt(c.Count, 10), e.when(c.LastAt), c.LastTask.String()})
		s.lines = append(s.lines, auditLine{
			Check: "conflicts", Tenant: c.Tenant, Kind: c.Kind, Key: like, Count: c.Count, Last: &at, Tasks: []string{c.LastTask.String()},
		})
	}
	return s
}
