package client

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		value, date string
		want        time.Duration
	}{
		{value: "30", want: 30 * time.Second},
		{value: "1.5", want: 1500 * time.Millisecond},
		{value: " 2 ", want: 2 * time.Second},
		{value: "Thu, 01 Jan 2026 00:00:45 GMT", want: 45 * time.Second},
		{value: "Thursday, 01-Jan-26 00:00:45 GMT", want: 45 * time.Second},
		{value: "Thu Jan  1 00:00:45 2026", want: 45 * time.Second},
		{value: "Thu, 01 Jan 2026 01:00:30 GMT", date: "Thu, 01 Jan 2026 01:00:00 GMT", want: 30 * time.Second},
		{value: "Wed, 31 Dec 2025 23:00:00 GMT", want: 0},
		{value: "0", want: 0},
		{value: "-1484742195", want: 0},
		{value: "", want: 0},
		{value: ".", want: 0},
		{value: "1.2.3", want: 0},
		{value: "soon", want: 0},
		{value: "NaN", want: 0},
		{value: "Inf", want: 0},
		{value: "1e3", want: 0},
		{value: "0x10", want: 0},
		{value: "99999999999999999999", want: 24 * time.Hour},
		{value: "9" + strings.Repeat("0", 400), want: 24 * time.Hour},
		{value: "Fri, 31 Dec 9999 23:59:59 GMT", want: 24 * time.Hour},
	} {
		h := http.Header{"Retry-After": {c.value}}
		if c.date != "" {
			h.Set("Date", c.date)
		}
		if got := retryAfter(h, now); got != c.want {
			t.Errorf("%q: got %s, want %s", c.value, got, c.want)
		}
	}
}

func TestPauseStaysInItsBounds(t *testing.T) {
	t.Parallel()
	for range 1000 {
		for try := 1; try < 100; try++ {
			if got := pause(0, try); got < backoffFloor || got > backoffCap {
				t.Fatalf("try %d: got %s", try, got)
			}
		}
		if got := pause(0, 1); got > backoffBase {
			t.Fatalf("first: got %s", got)
		}
		if got := pause(2*time.Second, 1); got < 2*time.Second || got > 2*time.Second+backoffBase {
			t.Fatalf("hint of 2 s: got %s", got)
		}
		if got := pause(time.Hour, 1); got < retryAfterCap || got > retryAfterCap+backoffBase {
			t.Fatalf("hint of an hour: got %s", got)
		}
	}
}
