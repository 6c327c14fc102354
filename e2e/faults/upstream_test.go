package faults

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/onefold-dev/onefold/e2e/proc"
)

// upstream is a provider of which the test holds each answer back as it likes.
// call gets the task's id and returns when the answer is to go out.
func upstream(t *testing.T, call func(task, model string)) (config func(string) string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q struct{ Model string }
		raw, err := io.ReadAll(r.Body)
		if err != nil || json.Unmarshal(raw, &q) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		call(r.Header.Get("Onefold-Task"), q.Model)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}],`+
			`"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`)
	}))
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return func(text string) string {
		if text == "" {
			text = proc.DefaultConfig
		}
		return strings.ReplaceAll(text, "{{FAKELLM}}", s.URL+"/v1")
	}
}
