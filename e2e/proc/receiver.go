package proc

import (
	"crypto/sha256"
	"io"
	"maps"
	"net/http"
	"sync"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// Secret is what the destination's webhooks are signed with; it stands in the
// environment of every process as [SecretEnv].
const Secret = "whsec_b25lZm9sZC1lMmUtc2VjcmV0LW9uZWZvbGQtZTJlMDE="

// SecretEnv names the variable that holds Secret.
const SecretEnv = "E2E_SECRET"

// Receiver is the customer's system: it verifies each webhook and remembers it
// by its id.
type Receiver struct {
	answer func(id string, body []byte, n int) int

	mu   sync.Mutex
	got  map[string]*Received
	bad  int
	more chan struct{}
}

// Received is what came under one webhook id.
type Received struct {
	Count  int    // deliveries, repeats included
	Body   []byte // of the first
	Differ int    // deliveries whose body was another than the first one's
	Taken  int    // deliveries answered with 2xx
	sum    [sha256.Size]byte
}

func newReceiver(answer func(id string, body []byte, n int) int) *Receiver {
	return &Receiver{answer: answer, got: map[string]*Received{}, more: make(chan struct{})}
}

func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(io.LimitReader(req.Body, 8<<20))
	if err != nil {
		return // a sender that was killed
	}
	hook, err := standardwebhooks.NewWebhook(Secret)
	if err == nil {
		err = hook.Verify(body, req.Header)
	}
	if err != nil {
		r.mu.Lock()
		r.bad++
		r.mu.Unlock()
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	id := req.Header.Get("webhook-id")
	n := r.note(id, body)
	status := http.StatusNoContent
	if r.answer != nil {
		status = r.answer(id, body, n)
	}
	if status/100 == 2 {
		r.mu.Lock()
		r.got[id].Taken++
		r.mu.Unlock()
	}
	w.WriteHeader(status)
}

func (r *Receiver) note(id string, body []byte) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	sum := sha256.Sum256(body)
	g := r.got[id]
	if g == nil {
		g = &Received{Body: body, sum: sum}
		r.got[id] = g
	}
	g.Count++
	if g.sum != sum {
		g.Differ++
	}
	close(r.more)
	r.more = make(chan struct{})
	return g.Count
}

// Received returns what came so far, by webhook id.
func (r *Receiver) Received() map[string]Received {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make(map[string]Received, len(r.got))
	for id, g := range maps.All(r.got) {
		out[id] = *g
	}
	return out
}

// Bad is the number of deliveries with a wrong signature.
func (r *Receiver) Bad() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bad
}

// More is closed when the next delivery comes.
func (r *Receiver) More() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.more
}
