package doctor

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/store"
)

const (
	// timesLately is how far back calls are looked at: a week holds every hour of
	// the day and every day of the week.
	timesLately = 7 * 24 * time.Hour
	// timesEnough is how many calls the 99th percentile needs at least.
	timesEnough = 100
	// cutWorth is the share of calls that a timeout may end before it is worth a word.
	cutWorth = 0.01
	// nearLimit is the part of a timeout that the 99th percentile may reach.
	nearLimit = 0.8
)

// Timeouts compares the timeouts of each kind with what calls took under the
// present configuration of the kind and its provider.
func Timeouts(ctx context.Context, e Env) ([]Finding, error) {
	var all []Finding
	for _, name := range slices.Sorted(maps.Keys(e.Config.Kinds)) {
		k := e.Config.Kinds[name]
		times, err := store.ReadCallTimes(ctx, e.DB, k.Hash(), e.Config.ProviderHash(k.Provider), timesLately)
		if err != nil {
			return all, err
		}
		if len(times) == 0 {
			all = append(all, Finding{Level: Note, Subject: "kind " + name, Text: "no calls since the change, not enough yet"})
		}
		p := e.Config.Providers[k.Provider]
		for _, t := range times {
			subject := "kind " + name
			if t.Model != "" {
				subject += ", model " + t.Model
			}
			all = append(all, judgeTimes(subject, e.Config.TimeoutsOf(k), p != nil && p.Stream, t)...)
		}
	}
	return all, nil
}

// judgeTimes says what the times of one kind and model mean for its timeouts.
func judgeTimes(subject string, limits config.Timeouts, stream bool, t store.CallTimes) []Finding {
	seen := t.Succeeded + t.FirstByteCut + t.IdleCut + t.TotalCut
	if seen < timesEnough {
		return []Finding{{Level: Note, Subject: subject, Text: fmt.Sprintf("%s since the change, not enough yet: %d are needed", calls(seen), timesEnough)}}
	}
	var out []Finding
	warn := func(fix, format string, args ...any) {
		out = append(out, Finding{Level: Warn, Subject: subject, Text: fmt.Sprintf(format, args...), Fix: fix})
	}
	alive := t.TotalAlive
	if share(alive, t.Succeeded) >= cutWorth {
		warn("raise timeouts.total to "+roomy(limits.Total), "your total timeout (%s) cut %s of calls that would have succeeded: %d of %d were still sending tokens",
			short(limits.Total), percent(share(alive, t.Succeeded)), alive, alive+t.Succeeded)
	}
	if silent := t.TotalCut - alive; share(silent, t.Succeeded) >= cutWorth {
		text := "had sent nothing yet"
		if !stream {
			text = "had sent nothing yet, as a reply that is not streamed does until it is done"
		}
		warn("raise timeouts.total to "+roomy(limits.Total)+", or stream", "your total timeout (%s) ended %s of calls: %d of %d %s, so that nobody knows whether they would have succeeded",
			short(limits.Total), percent(share(silent, t.Succeeded)), silent, silent+t.Succeeded, text)
	}
	if share(t.FirstByteCut, t.Succeeded) >= cutWorth {
		warn("raise timeouts.first_byte to "+roomy(limits.FirstByte)+" unless the provider hung", "your first-byte timeout (%s) ended %s of calls, and 99 %% of the others had a first byte within %s",
			short(limits.FirstByte), percent(share(t.FirstByteCut, t.Succeeded)), short(t.FirstByte.P99))
	}
	if share(t.IdleCut, t.Succeeded) >= cutWorth {
		warn("raise timeouts.idle if the model thinks that long between tokens", "your idle timeout (%s) ended %s of calls in the middle of a reply",
			short(limits.Idle), percent(share(t.IdleCut, t.Succeeded)))
	}
	if len(out) == 0 {
		out = near(subject, limits, t)
	}
	if len(out) == 0 {
		out = []Finding{{Level: OK, Subject: subject, Text: fmt.Sprintf("first byte %s of %s, total %s of %s (p50/p95/p99 of %s)",
			three(t.FirstByte), short(limits.FirstByte), three(t.Total), short(limits.Total), calls(t.Succeeded))}}
	}
	return out
}

// near warns while a timeout that cuts nothing yet is close to the tail.
func near(subject string, limits config.Timeouts, t store.CallTimes) (out []Finding) {
	for _, l := range []struct {
		name, field string
		p99, limit  time.Duration
	}{{"first-byte", "first_byte", t.FirstByte.P99, limits.FirstByte}, {"total", "total", t.Total.P99, limits.Total}} {
		if float64(l.p99) < nearLimit*float64(l.limit) {
			continue
		}
		out = append(out, Finding{
			Level: Warn, Subject: subject, Fix: "raise timeouts." + l.field + " to " + roomy(l.p99),
			Text: fmt.Sprintf("1 %% of calls take %s or longer, and your %s timeout is %s: it is about to cut calls that would have succeeded", short(l.p99), l.name, short(l.limit)),
		})
	}
	return out
}

// share is cut's part of the calls that went well or would have.
func share(cut, good int64) float64 {
	if cut+good == 0 {
		return 0
	}
	return float64(cut) / float64(cut+good)
}

func percent(f float64) string {
	if f < 0.095 {
		return strings.TrimSuffix(fmt.Sprintf("%.1f", f*100), ".0") + " %"
	}
	return fmt.Sprintf("%.0f %%", f*100)
}

// roomy is twice a time, in round seconds.
func roomy(d time.Duration) string {
	return (time.Duration(math.Ceil(2*d.Seconds())) * time.Second).String()
}

func three(p store.Percentiles) string {
	return short(p.P50) + "/" + short(p.P95) + "/" + short(p.P99)
}

// short shows a time with two or three digits.
func short(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Millisecond).String()
}

func calls(n int64) string {
	if n == 1 {
		return "1 call"
	}
	return fmt.Sprintf("%d calls", n)
}
