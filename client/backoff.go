package client

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Waits between tries: exponential with full jitter, so that callers who failed
// together do not come back together. A server's Retry-After is honoured up to
// a minute; what asks for more is better decided by the caller, who finds it in
// the error.
const (
	backoffBase   = 250 * time.Millisecond
	backoffCap    = 10 * time.Second
	backoffFloor  = 50 * time.Millisecond
	retryAfterCap = time.Minute
)

// pause is the wait before the next try, try being the number of those made.
func pause(hint time.Duration, try int) time.Duration {
	if hint > 0 {
		return min(hint, retryAfterCap) + jitter(backoffBase)
	}
	ceiling, try := backoffCap, max(try, 1)
	if try < 6 { // 250 ms << 5 = 8 s
		ceiling = backoffBase << (try - 1)
	}
	return max(jitter(ceiling), backoffFloor)
}

func jitter(d time.Duration) time.Duration { return rand.N(d + 1) }

// retryAfter reads a Retry-After header: seconds with at most one dot, or an
// HTTP date counted from the server's own Date. Zero means nothing usable was
// said; it never gives a negative wait, and a value beyond a day is a day.
func retryAfter(h http.Header, now time.Time) time.Duration {
	const longest = 24 * time.Hour
	v := strings.TrimSpace(h.Get("Retry-After"))
	if at, err := http.ParseTime(v); err == nil {
		if date, err := http.ParseTime(h.Get("Date")); err == nil {
			now = date
		}
		return min(max(at.Sub(now), 0), longest)
	}
	// ParseFloat alone would take 1e3, NaN and Inf, and the product overflow.
	if strings.Trim(v, "0123456789.") != "" {
		return 0
	}
	s, err := strconv.ParseFloat(v, 64)
	switch {
	case err != nil && s == 0: // nothing, or two dots
		return 0
	case s >= longest.Seconds():
		return longest
	}
	return time.Duration(s * float64(time.Second))
}
