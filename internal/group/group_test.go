package group_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/onefold-dev/onefold/internal/group"
)

// Conflicts are nobody's fault and pass: callers hear of them only when they
// have no end.
func TestConflictsAreTriedAgain(t *testing.T) {
	t.Parallel()
	conflict := &pgconn.PgError{Code: "40P01", Message: "deadlock detected"}
	for name, c := range map[string]struct {
		conflicts int
		want      error
	}{
		"a few":       {3, nil},
		"many":        {30, nil},
		"without end": {1 << 30, conflict},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tries := 0
			g := group.New(func(_ context.Context, requests []int) ([]int, error) {
				if tries++; tries <= c.conflicts {
					return nil, conflict
				}
				return requests, nil
			}, nil, &group.Opts{Flushers: 1})
			t.Cleanup(g.Close)
			got, err := g.Do(t.Context(), 7)
			if !errors.Is(err, c.want) || err == nil && (got != 7 || tries != c.conflicts+1) {
				t.Errorf("got %d, %v after %d tries", got, err, tries)
			}
		})
	}
}
