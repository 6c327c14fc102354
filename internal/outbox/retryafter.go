package outbox

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// MaxRetryAfter is the longest wait a receiver can ask for; a wrong header must not park an effect for years.
const MaxRetryAfter = 24 * time.Hour

// RetryAfter reads Retry-After (RFC 9110, 10.2.3): seconds, or an HTTP date counted from the receiver's own Date. Of
// several lines the longest counts. Zero means that it says nothing usable.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	var longest time.Duration
	for _, v := range h.Values("Retry-After") {
		longest = max(longest, retryAfter(strings.TrimSpace(v), h, now))
	}
	return longest
}

func retryAfter(v string, h http.Header, now time.Time) time.Duration {
	if v != "" && strings.Trim(v, "0123456789") == "" {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n > int64(MaxRetryAfter/time.Second) { // compared before it is multiplied, which would overflow
			return MaxRetryAfter
		}
		return time.Duration(n) * time.Second
	}
	at, err := http.ParseTime(v)
	if err != nil {
		return 0
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	return min(max(0, at.Sub(now)), MaxRetryAfter)
}
