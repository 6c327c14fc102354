package doctor

import (
	"context"
	"fmt"

	"github.com/onefold-dev/onefold/internal/store"
)

// Providers looks for providers for which tasks wait and which no live worker
// serves: their tasks run into their deadlines.
func Providers(ctx context.Context, e Env) ([]Finding, error) {
	behind, err := store.WaitingByProvider(ctx, e.DB)
	if err != nil {
		return nil, err
	}
	var all []Finding
	for _, w := range behind {
		if w.Pending == 0 {
			continue
		}
		f := Finding{Level: OK, Subject: "provider " + w.Provider, Text: fmt.Sprintf("%s, %s it", waiting(w.Pending), serve(w.Workers))}
		if w.Workers == 0 {
			f.Level = Fail
			f.Text = waiting(w.Pending) + ", and no live worker serves the provider: what waits runs into its deadline"
			f.Fix = "start a worker with the provider " + w.Provider + " in its onefold.yaml"
		}
		all = append(all, f)
	}
	if len(all) == 0 {
		all = append(all, Finding{Level: OK, Subject: "providers", Text: "no task waits"})
	}
	return all, nil
}

func waiting(n int64) string {
	if n == 1 {
		return "1 task waits"
	}
	return fmt.Sprintf("%d tasks wait", n)
}

func serve(workers int) string {
	if workers == 1 {
		return "1 worker serves"
	}
	return fmt.Sprintf("%d workers serve", workers)
}
