package store

import (
	"context"
	"fmt"
	"strings"

	"github.com/onefold-dev/onefold/internal/task"
)

// SettledChannel carries the ids of tasks that settled, as a hint for waiters:
// up to MaxNotified ids joined by commas, or nothing, which means "everyone
// look again".
const SettledChannel = "onefold_settled"

// MaxNotified bounds the ids in one hint: Postgres refuses payloads of 8,000
// bytes and more, and aborts the transaction then (measured with 500 ids).
const MaxNotified = 150

// NotifySettled sends one hint for all ids.
func NotifySettled(ctx context.Context, db DBTX, ids []task.ID) error {
	payload := ""
	if len(ids) <= MaxNotified {
		texts := make([]string, len(ids))
		for i, id := range ids {
			texts[i] = id.String()
		}
		payload = strings.Join(texts, ",")
	}
	if _, err := db.Exec(ctx, `SELECT pg_notify($1, $2)`, SettledChannel, payload); err != nil {
		return fmt.Errorf("notify waiters: %w", err)
	}
	return nil
}
