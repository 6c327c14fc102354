package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/onefold-dev/onefold/internal/store"
)

// Versions says which versions the live workers are of.
func Versions(ctx context.Context, e Env) ([]Finding, error) {
	live, err := store.WorkerVersions(ctx, e.DB)
	if err != nil {
		return nil, err
	}
	return []Finding{judgeVersions(live, e.Version)}, nil
}

func judgeVersions(live map[string]int, own string) Finding {
	var parts []string
	for _, v := range slices.Sorted(maps.Keys(live)) {
		parts = append(parts, fmt.Sprintf("%d of version %s", live[v], v))
	}
	text := strings.Join(parts, ", ")
	_, same := live[own]
	switch {
	case len(live) == 0:
		return Finding{Level: Warn, Subject: "workers", Text: "none is alive: nothing is called, delivered or swept", Fix: "start a worker"}
	case len(live) > 1:
		return Finding{Level: Warn, Subject: "workers", Text: text, Fix: "end the rolling upgrade: run one version"}
	case own != "" && !same:
		return Finding{Level: Note, Subject: "workers", Text: text + "; this program is " + own, Fix: "use the command line of the workers' version"}
	}
	return Finding{Level: OK, Subject: "workers", Text: text}
}
