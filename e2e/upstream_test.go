package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/onefold-dev/onefold/e2e/proc"
)

// upstream is a provider of which the test itself holds the answers, by model.
type upstream struct {
	*httptest.Server
	mu      sync.Mutex
	answers map[string]func(*answering)
	count   map[string]int
}

// answering is one call being answered.
type answering struct {
	http.ResponseWriter
	r *http.Request
	n int // the number of the call among those of its model, from 1
}

// say answers with a whole reply, not streamed.
func (a *answering) say(text string) {
	a.Header().Set("Content-Type", "application/json")
	raw, _ := json.Marshal(map[string]any{
		"id": "x", "choices": []any{map[string]any{"index": 0, "message": map[string]string{"role": "assistant", "content": text}, "finish_reason": "stop"}},
		"usage": map[string]int{"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
	})
	_, _ = a.Write(raw)
}

func newUpstream(t *testing.T) *upstream {
	t.Helper()
	u := &upstream{answers: map[string]func(*answering){}, count: map[string]int{}}
	u.Server = httptest.NewServer(u)
	t.Cleanup(func() { u.CloseClientConnections(); u.Close() })
	return u
}

// config is the default configuration with this upstream as the provider.
func (u *upstream) config() string {
	return strings.ReplaceAll(proc.DefaultConfig, "{{FAKELLM}}", u.URL+"/v1")
}

func (u *upstream) answer(model string, f func(*answering)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.answers[model] = f
}

func (u *upstream) calls(model string) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.count[model]
}

// await waits until the nth call of a model has come.
func (u *upstream) await(t *testing.T, model string, n int) {
	t.Helper()
	proc.Until(t, "a call of "+model, func() bool { return u.calls(model) >= n })
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var q struct{ Model string }
	raw, err := io.ReadAll(r.Body)
	if err != nil || json.Unmarshal(raw, &q) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	u.mu.Lock()
	u.count[q.Model]++
	n, f := u.count[q.Model], u.answers[q.Model]
	u.mu.Unlock()
	a := &answering{ResponseWriter: w, r: r, n: n}
	if f == nil {
		a.say("ok")
		return
	}
	f(a)
}
