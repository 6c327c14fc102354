package doctor

import (
	"context"
	"log/slog"
	"time"
)

// WatchEvery is how often a running process runs the checks.
const WatchEvery = time.Hour

// Watch runs checks again and again until ctx ends, and logs what is warned of
// or fails: once, and again when it changes. The first run comes after a tenth of
// the time.
func Watch(ctx context.Context, e Env, checks []Check, every time.Duration, log *slog.Logger) {
	told := map[Finding]bool{}
	timer := time.NewTimer(every / 10)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		told = tell(log, Run(ctx, e, checks), told)
		timer.Reset(every)
	}
}

// tell logs the findings that are new, and returns those there are now. What
// only differs in its numbers is the same.
func tell(log *slog.Logger, found []Finding, told map[Finding]bool) map[Finding]bool {
	now := map[Finding]bool{}
	for _, f := range found {
		key := Finding{Check: f.Check, Level: f.Level, Subject: f.Subject}
		level := slog.LevelWarn
		switch f.Level {
		case Fail:
			level = slog.LevelError
		case Warn:
		default:
			continue
		}
		if !told[key] {
			log.Log(context.Background(), level, "doctor", "check", f.Check, "subject", f.Subject, "finding", f.Text, "fix", f.Fix)
		}
		now[key] = true
	}
	return now
}
