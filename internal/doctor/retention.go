package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/store"
)

const (
	// spanLately is how many days of duplicates are looked at.
	spanLately = 30
	// spanRoom is how often the longest span of duplicates must fit into the
	// retention: what was seen is not the longest there can be.
	spanRoom = 2
	// tombsRead bounds the tombstones that are compared with later submits.
	tombsRead = 10_000
)

// Retention compares how long keys are kept with how late duplicates came, and
// looks for repeats that came after their key was forgotten.
func Retention(ctx context.Context, e Env) ([]Finding, error) {
	spans, err := store.DuplicateSpans(ctx, e.DB, spanLately)
	if err != nil {
		return nil, err
	}
	late, err := store.LateRepeats(ctx, e.DB, spanLately, tombsRead)
	if err != nil {
		return nil, err
	}
	longest := map[string]time.Duration{}
	for _, s := range spans {
		longest[s.Kind] = s.Longest
	}
	var all []Finding
	for _, name := range slices.Sorted(maps.Keys(e.Config.Kinds)) {
		k := e.Config.Kinds[name]
		if k.Dedupe.Mode != config.DedupeKey && k.Dedupe.Mode != config.DedupeWindow {
			continue
		}
		all = append(all, judgeRetention("kind "+name, e.Config.RetentionOf(k), e.Config.Retention.ClientSchedule, longest[name], late[name])...)
	}
	return all, nil
}

func judgeRetention(subject string, keep, schedule, longest time.Duration, late int) []Finding {
	var out []Finding
	if late > 0 {
		out = append(out, Finding{
			Level: Warn, Subject: subject,
			Text: fmt.Sprintf("%d keys were submitted again after they had been purged, and became second tasks", late),
			Fix:  "raise the retention unless they were new intents under old keys; then make the keys differ",
		})
	}
	switch {
	case longest == 0:
		if late == 0 {
			out = append(out, Finding{Level: Note, Subject: subject, Text: fmt.Sprintf("no duplicates in %d days", spanLately)})
		}
	case spanRoom*longest > keep:
		out = append(out, Finding{
			Level: Warn, Subject: subject,
			Text: fmt.Sprintf("duplicates came up to %s after the first submit, and keys are kept for %s", span(longest), span(keep)),
			Fix:  fmt.Sprintf("keep tasks for %s at least: one that comes after its key was forgotten is a second task", span(spanRoom*longest)),
		})
	case longest > schedule:
		out = append(out, Finding{
			Level: Warn, Subject: subject,
			Text: fmt.Sprintf("duplicates came up to %s after the first submit, and retention.client_schedule says %s", span(longest), span(schedule)),
			Fix:  fmt.Sprintf("set client_schedule to %s, so that the check at start reckons with it", span(longest)),
		})
	default:
		out = append(out, Finding{
			Level: OK, Subject: subject,
			Text: fmt.Sprintf("duplicates came up to %s after the first submit in %d days, and keys are kept for %s", span(longest), spanLately, span(keep)),
		})
	}
	return out
}

// span writes a long time the way it would be configured: whole seconds below
// an hour, then whole hours, rounded up.
func span(d time.Duration) string {
	if d < time.Hour {
		return d.Round(time.Second).String()
	}
	return fmt.Sprintf("%dh", (d+time.Hour-1)/time.Hour)
}
