package gate

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"github.com/onefold-dev/onefold/internal/store"
)

// Unserved are the providers for which tasks wait and which no live worker
// serves: their tasks run into their deadlines.
func Unserved(ctx context.Context, db store.DBTX) ([]store.Waiting, error) {
	all, err := store.WaitingByProvider(ctx, db)
	if err != nil {
		return nil, err
	}
	var out []store.Waiting
	for _, w := range all {
		if w.Pending > 0 && w.Workers == 0 {
			out = append(out, w)
		}
	}
	return out, nil
}

// TellUnserved logs the unserved providers, for the start of a process. besides
// are the providers this process is about to serve itself.
func TellUnserved(ctx context.Context, db store.DBTX, log *slog.Logger, besides ...string) {
	all, err := Unserved(ctx, db)
	if err != nil {
		log.Warn("unserved providers not looked for", "error", err)
		return
	}
	for _, w := range all {
		if slices.Contains(besides, w.Provider) {
			continue
		}
		log.Warn("tasks wait for a provider that no live worker serves", "provider", w.Provider, "count", w.Pending,
			"fix", fmt.Sprintf("start a worker with the provider %s in its onefold.yaml", w.Provider))
	}
}
