package provider_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/onefold-dev/onefold/internal/casetest"
	"github.com/onefold-dev/onefold/internal/provider"
)

// TestCasesRetryAfter takes every case of the theme. "Normal backoff" is the answer false; a value beyond any deadline
// is clamped, never immediate.
func TestCasesRetryAfter(t *testing.T) {
	t.Parallel()
	for _, c := range casetest.Theme(t, "retry_after") {
		t.Run(c.ID, func(t *testing.T) {
			t.Parallel()
			var in struct {
				Now     string            `json:"now"`
				Headers map[string]string `json:"headers"`
			}
			if err := json.Unmarshal(c.Input, &in); err != nil {
				t.Fatal(err)
			}
			now, err := http.ParseTime(in.Now)
			if err != nil {
				t.Fatal(err)
			}
			h := http.Header{}
			for k, v := range in.Headers {
				h.Set(k, v)
			}
			var want struct {
				DelayMS *int64 `json:"delay_ms"`
				Delay   string `json:"delay"`
				Note    string `json:"note"`
			}
			c.Expect(t, &want)
			got, ok := provider.RetryAfter(h, now)
			switch {
			case want.DelayMS != nil:
				if d := time.Duration(*want.DelayMS) * time.Millisecond; !ok || got != d {
					t.Errorf("got %v, %t, want %v", got, ok, d)
				}
			case want.Delay != "":
				if ok || got != 0 {
					t.Errorf("got %v, %t, want the normal backoff", got, ok)
				}
			default:
				if !ok || got != provider.MaxRetryAfter {
					t.Errorf("got %v, %t, want the longest wait: %s", got, ok, want.Note)
				}
			}
		})
	}
}

func TestRetryAfterForms(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name string
		h    http.Header
		want time.Duration
	}{
		{"longest of several lines", http.Header{"Retry-After": {"1", "7", "x"}}, 7 * time.Second},
		{"broken ms falls back to seconds", http.Header{"Retry-After-Ms": {"soon"}, "Retry-After": {"3"}}, 3 * time.Second},
		{"two dots", http.Header{"Retry-After": {"1.2.3"}}, 0},
		{"a dot alone", http.Header{"Retry-After": {"."}}, 0},
		{"exponent", http.Header{"Retry-After": {"1e3"}}, 0},
		{"hexadecimal", http.Header{"Retry-After": {"0x10"}}, 0},
		{"underscore", http.Header{"Retry-After": {"1_0"}}, 0},
		{"plus", http.Header{"Retry-After": {"+5"}}, 0},
		{"infinity", http.Header{"Retry-After": {"Inf"}}, 0},
		{"full-width digits", http.Header{"Retry-After": {"５"}}, 0},
		{"400 digits", http.Header{"Retry-After": {"9" + string(make400())}}, provider.MaxRetryAfter},
		{"ms overflow", http.Header{"Retry-After-Ms": {"99999999999999999999"}}, provider.MaxRetryAfter},
		{"rounds to the nearest nanosecond", http.Header{"Retry-After": {"0.0000000001"}}, 0},
		{"bucket not empty", http.Header{"X-Ratelimit-Remaining-Requests": {"3"}, "X-Ratelimit-Reset-Requests": {"6m"}}, 0},
		{"unix seconds", http.Header{"X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {"1767225610"}}, 10 * time.Second},
		{"unix milliseconds", http.Header{"X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {"1767225610000"}}, 10 * time.Second},
		{"rfc 3339", http.Header{"Anthropic-Ratelimit-Tokens-Remaining": {"0"}, "Anthropic-Ratelimit-Tokens-Reset": {"2026-01-01T00:00:09Z"}}, 9 * time.Second},
		{"reset far away", http.Header{"X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {"9767225610"}}, provider.MaxRetryAfter},
		{"retry-after zero beats the bucket", http.Header{"Retry-After": {"0"}, "X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {"60"}}, 0},
	} {
		got, ok := provider.RetryAfter(c.h, now)
		if got != c.want || ok != (c.want > 0) {
			t.Errorf("%s: got %v, %t, want %v", c.name, got, ok, c.want)
		}
	}
}

func make400() []byte {
	b := make([]byte, 400)
	for i := range b {
		b[i] = '9'
	}
	return b
}
