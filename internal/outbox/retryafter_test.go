package outbox_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/onefold-dev/onefold/internal/outbox"
)

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 2, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		values []string
		date   string
		want   time.Duration
	}{
		{nil, "", 0},
		{[]string{""}, "", 0},
		{[]string{"0"}, "", 0},
		{[]string{"120"}, "", 2 * time.Minute},
		{[]string{" 7 "}, "", 7 * time.Second},
		{[]string{"5", "60", "9"}, "", time.Minute},
		{[]string{"-1"}, "", 0},
		{[]string{"1e3"}, "", 0},
		{[]string{"NaN"}, "", 0},
		{[]string{"soon"}, "", 0},
		{[]string{"10000000000"}, "", outbox.MaxRetryAfter},
		{[]string{"99999999999999999999999999"}, "", outbox.MaxRetryAfter},
		{[]string{"Sun, 01 Feb 2026 12:00:30 GMT"}, "", 30 * time.Second},
		{[]string{"Sun, 01 Feb 2026 11:00:00 GMT"}, "", 0},
		{[]string{"Sun, 01 Feb 2026 15:00:30 GMT"}, "Sun, 01 Feb 2026 15:00:00 GMT", 30 * time.Second},
		{[]string{"Fri, 31 Dec 9999 23:59:59 GMT"}, "", outbox.MaxRetryAfter},
	} {
		h := http.Header{"Retry-After": c.values}
		if c.date != "" {
			h.Set("Date", c.date)
		}
		if got := outbox.RetryAfter(h, now); got != c.want {
			t.Errorf("%q: got %s, want %s", c.values, got, c.want)
		}
	}
}
