package provider

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// MaxRetryAfter is the longest wait that a provider can ask for; what is beyond it is clamped. Kinds have deadlines of
// their own, and a wrong header must not park a task for years.
const MaxRetryAfter = 24 * time.Hour

// RetryAfter reads how long the provider asks us to wait. It returns false when the headers say nothing usable, which
// includes zero, negative and past values: then the caller's normal backoff applies, never an immediate retry.
//
// In order: retry-after-ms (milliseconds), Retry-After (seconds with at most one dot, or one of the three HTTP dates,
// counted from the server's own Date where there is one), and, when both are absent, the reset time of an exhausted
// x-ratelimit bucket. Of several lines the longest wait counts.
func RetryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	if d, ok := longest(h.Values("Retry-After-Ms"), func(s string) (time.Duration, bool) {
		return decimal(s, time.Millisecond)
	}); ok {
		return d, true
	}
	if d, ok := longest(h.Values("Retry-After"), func(s string) (time.Duration, bool) {
		return seconds(s, h, now)
	}); ok {
		return d, true
	}
	if len(h.Values("Retry-After")) > 0 || len(h.Values("Retry-After-Ms")) > 0 {
		return 0, false
	}
	return rateLimitReset(h, now)
}

func longest(values []string, parse func(string) (time.Duration, bool)) (time.Duration, bool) {
	var best time.Duration
	for _, v := range values {
		if d, ok := parse(strings.TrimSpace(v)); ok && d > best {
			best = d
		}
	}
	return best, best > 0
}

func seconds(s string, h http.Header, now time.Time) (time.Duration, bool) {
	if d, ok := decimal(s, time.Second); ok {
		return d, true
	}
	at, err := http.ParseTime(s)
	if err != nil {
		return 0, false
	}
	// The server's clock may be off by hours; its own Date takes the difference out.
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	return clamp(at.Sub(now)), true
}

// decimal reads digits with at most one dot. strconv alone would take 1e3, NaN, Inf, 0x10 and 1_0, and a conversion
// before the clamp overflows to a negative wait.
func decimal(s string, unit time.Duration) (time.Duration, bool) {
	if s == "" || strings.Count(s, ".") > 1 || strings.Trim(s, "0123456789.") != "" || strings.Trim(s, ".") == "" {
		return 0, false
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil { // out of range: more digits than a float64 has
		return MaxRetryAfter, true
	}
	if f >= float64(MaxRetryAfter)/float64(unit) {
		return MaxRetryAfter, true
	}
	return clamp(time.Duration(math.Round(f * float64(unit)))), true
}

func clamp(d time.Duration) time.Duration { return min(max(d, 0), MaxRetryAfter) }

// rateLimitReset reads the reset headers of the buckets that are empty; a bucket with something left says nothing
// about this refusal.
func rateLimitReset(h http.Header, now time.Time) (time.Duration, bool) {
	var best time.Duration
	for _, p := range []struct{ remaining, reset string }{
		{"X-Ratelimit-Remaining-Requests", "X-Ratelimit-Reset-Requests"},
		{"X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Reset-Tokens"},
		{"X-Ratelimit-Remaining", "X-Ratelimit-Reset"},
		{"Anthropic-Ratelimit-Requests-Remaining", "Anthropic-Ratelimit-Requests-Reset"},
		{"Anthropic-Ratelimit-Tokens-Remaining", "Anthropic-Ratelimit-Tokens-Reset"},
		{"Anthropic-Ratelimit-Input-Tokens-Remaining", "Anthropic-Ratelimit-Input-Tokens-Reset"},
		{"Anthropic-Ratelimit-Output-Tokens-Remaining", "Anthropic-Ratelimit-Output-Tokens-Reset"},
	} {
		if strings.TrimSpace(h.Get(p.remaining)) != "0" {
			continue
		}
		if d, ok := resetValue(strings.TrimSpace(h.Get(p.reset)), now); ok && d > best {
			best = d
		}
	}
	return best, best > 0
}

// Reset headers come as a Go-like duration (6m0s, 250ms), as seconds, as Unix time in seconds or milliseconds, or as
// RFC 3339. A plain number is told apart by size: one day of seconds is far below any Unix time.
func resetValue(s string, now time.Time) (time.Duration, bool) {
	if d, err := time.ParseDuration(s); err == nil && s != "0" {
		return clamp(d), true
	}
	if at, err := time.Parse(time.RFC3339, s); err == nil {
		return clamp(at.Sub(now)), true
	}
	if s == "" || strings.Count(s, ".") > 1 || strings.Trim(s, "0123456789.") != "" {
		return 0, false
	}
	f, err := strconv.ParseFloat(s, 64)
	switch {
	case err != nil:
		return 0, false
	case f >= 1e14:
		return 0, false
	case f >= 1e11:
		return clamp(time.UnixMilli(int64(f)).Sub(now)), true
	case f >= 1e8:
		return clamp(time.Unix(int64(f), 0).Sub(now)), true
	}
	return decimal(s, time.Second)
}
