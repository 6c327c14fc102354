package doctor

import (
	"context"
	"fmt"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/store"
)

// Review says how much waits for a person, and whether it waits long.
func Review(ctx context.Context, e Env) ([]Finding, error) {
	counts, atLeast, err := store.CountReview(ctx, e.DB, store.ReviewFilter{})
	if err != nil {
		return nil, err
	}
	return []Finding{judgeReview(counts, atLeast)}, nil
}

func judgeReview(counts []store.ReviewCount, atLeast bool) Finding {
	var all, old int64
	for _, c := range counts {
		if c.Reason == "" {
			continue
		}
		all += c.Count
		if c.Age == api.AgeOlder {
			old += c.Count
		}
	}
	more := ""
	if atLeast {
		more = " at least"
	}
	f := Finding{Level: OK, Subject: "review", Text: "nothing waits for a person"}
	switch {
	case old > 0:
		f.Level, f.Text, f.Fix = Warn, fmt.Sprintf("%d items%s wait for a person, %d of them for more than a day", all, more, old), "onefold review list"
	case all > 0:
		f.Text = fmt.Sprintf("%d items%s wait for a person, none for more than a day", all, more)
	}
	return f
}
