package doctor

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/migrations"
)

// promised are the indexes that keep a promise themselves; they come with constraints.
var promised = []string{"tasks_key", "tasks_pkey", "effects_once", "effects_pkey", "attempts_pkey", "river_job_pkey"}

// Indexes says which indexes are missing or were left half made, as CREATE INDEX
// CONCURRENTLY does where it is cut off.
func Indexes(ctx context.Context, e Env) ([]Finding, error) {
	have, err := store.Indexes(ctx, e.DB)
	if err != nil {
		return nil, err
	}
	want, err := indexNames(migrations.Files())
	if err != nil {
		return nil, err
	}
	return judgeIndexes(have, want), nil
}

func judgeIndexes(have []store.Index, want []string) (out []Finding) {
	seen := map[string]bool{}
	for _, i := range have {
		seen[i.Name] = true
		if !i.Valid {
			out = append(out, Finding{
				Level: Fail, Subject: "index " + i.Name, Text: "it is invalid: no query uses it, and each write pays for it",
				Fix: fmt.Sprintf("REINDEX INDEX CONCURRENTLY onefold.%s", i.Name),
			})
		}
	}
	for _, name := range slices.Concat(promised, want) {
		if !seen[name] {
			out = append(out, Finding{
				Level: Fail, Subject: "index " + name, Text: "it is missing",
				Fix: "run `onefold migrate`; where the schema is current make it as docs/schema.sql says",
			})
		}
	}
	if len(out) == 0 {
		out = []Finding{{Level: OK, Subject: "indexes", Text: fmt.Sprintf("%d, all valid", len(have))}}
	}
	return out
}

var (
	makes = regexp.MustCompile(`(?i)CREATE\s+(?:UNIQUE\s+)?INDEX\s+(?:CONCURRENTLY\s+)?(?:IF\s+NOT\s+EXISTS\s+)?(\w+)\s+ON\b`)
	drops = regexp.MustCompile(`(?i)DROP\s+INDEX\s+(?:CONCURRENTLY\s+)?(?:IF\s+EXISTS\s+)?(?:onefold\.)?(\w+)`)
)

// indexNames are the indexes that the migrations leave behind, in order of name.
func indexNames(files fs.FS) ([]string, error) {
	paths, err := fs.Glob(files, "*.sql")
	if err != nil {
		return nil, fmt.Errorf("read migrations: %w", err)
	}
	slices.Sort(paths)
	names := map[string]bool{}
	for _, p := range paths {
		b, err := fs.ReadFile(files, p)
		if err != nil {
			return nil, fmt.Errorf("read migrations: %w", err)
		}
		up, _, _ := strings.Cut(string(b), "-- +goose Down")
		for _, line := range strings.Split(up, ";") {
			if m := drops.FindStringSubmatch(line); m != nil {
				delete(names, m[1])
			}
			if m := makes.FindStringSubmatch(line); m != nil {
				names[m[1]] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names)), nil
}
