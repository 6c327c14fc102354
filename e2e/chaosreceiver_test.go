package e2e

import (
	"crypto/sha256"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/onefold-dev/onefold/e2e/proc"
)

// troubledReceiver answers deliveries as receivers in trouble do. What it does
// to the nth delivery of an id follows from its seed alone.
type troubledReceiver struct {
	seed uint64
	url  string
	open chan struct{} // closed: nothing hangs any more

	mu    sync.Mutex
	byID  map[string]*arrived
	fails []string
	asks  int
	plays map[string]int
}

// arrived is what came under one id.
type arrived struct {
	n       int
	body    [sha256.Size]byte
	took    bool // the receiver has worked on it
	unclear bool // since the last refusal or check, the sender cannot know whether it did
}

// A trick is what the receiver does to a delivery.
type trick struct {
	name   string
	weight uint64
	// refuses says that the answer tells the sender that nothing was done, so that
	// sending it again is safe. took says that the receiver did its work.
	refuses, took bool
	answer        func(w http.ResponseWriter, open <-chan struct{}, req *http.Request)
}

func status(code int, header ...string) func(http.ResponseWriter, <-chan struct{}, *http.Request) {
	return func(w http.ResponseWriter, _ <-chan struct{}, _ *http.Request) {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
	}
}

// hang says nothing until the sender has gone, or the test is over.
func hang(_ http.ResponseWriter, open <-chan struct{}, req *http.Request) {
	select {
	case <-open:
	case <-req.Context().Done():
	}
}

// hijacked breaks the connection off, after the text given.
func hijacked(text string, reset bool) func(http.ResponseWriter, <-chan struct{}, *http.Request) {
	return func(w http.ResponseWriter, _ <-chan struct{}, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, text)
		if tcp, ok := conn.(*net.TCPConn); ok && reset {
			_ = tcp.SetLinger(0)
		}
	}
}

const takenAndClosed = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"

// tricks are for every destination, doom is besides for the one it may stop.
var tricks = []trick{
	{"200", 60, false, true, status(200)},
	{"replies, then closes", 8, false, true, hijacked(takenAndClosed, false)},
	{"429", 8, true, false, status(429, "Retry-After", "1")},
	{"500, done", 4, false, true, status(500)},
	{"500, not done", 6, false, false, status(500)},
	{"hangs, done", 2, false, true, hang},
	{"hangs, not done", 2, false, false, hang},
	{"resets, done", 3, false, true, hijacked("", true)},
	{"resets, not done", 4, false, false, hijacked("", true)},
	{"closes in the status line", 3, false, true, hijacked("HTTP/1.", false)},
}

var doom = append(slices.Clone(tricks),
	trick{"301", 4, true, false, status(301, "Location", "http://169.254.169.254/")},
	trick{"404", 10, true, false, status(404)},
	trick{"401", 3, true, false, status(401)},
	trick{"410", 1, true, false, status(410)},
)

func newTroubledReceiver(t *testing.T, seed uint64) *troubledReceiver {
	t.Helper()
	r := &troubledReceiver{seed: seed, open: make(chan struct{}), byID: map[string]*arrived{}, plays: map[string]int{}}
	s := httptest.NewServer(r)
	r.url = s.URL
	t.Cleanup(func() { r.release(); s.Close() })
	return r
}

func (r *troubledReceiver) config(text string) string {
	return strings.ReplaceAll(text, "CHAOS", r.url)
}

// release ends what hangs.
func (r *troubledReceiver) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.open:
	default:
		close(r.open)
	}
}

func (r *troubledReceiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if strings.HasSuffix(req.URL.Path, "/check") {
		r.check(w, req.URL.Query().Get("reference"))
		return
	}
	body, err := io.ReadAll(io.LimitReader(req.Body, 1<<20))
	if err != nil {
		return // a sender that was killed
	}
	hook, err := standardwebhooks.NewWebhook(proc.Secret)
	if err == nil {
		err = hook.Verify(body, req.Header)
	}
	if err != nil {
		r.fail("a delivery with a bad signature: %v", err)
		return
	}
	r.arrive(strings.TrimPrefix(req.URL.Path, "/"), req.Header.Get("webhook-id"), body).answer(w, r.open, req)
}

// arrive notes a delivery and draws what is done to it.
func (r *troubledReceiver) arrive(destination, id string, body []byte) trick {
	r.mu.Lock()
	defer r.mu.Unlock()
	sum := sha256.Sum256(body)
	a := r.byID[id]
	if a == nil {
		a = &arrived{body: sum}
		r.byID[id] = a
	}
	a.n++
	if a.body != sum {
		r.fails = append(r.fails, fmt.Sprintf("delivery %d of %s has another body", a.n, id))
	}
	if unsafe := destination == "once" || destination == "asked"; unsafe && a.unclear {
		r.fails = append(r.fails, fmt.Sprintf("%s (%s) was sent again, delivery %d, and nobody could know that it had not been done", id, destination, a.n))
	}
	set := tricks
	if destination == "doomed" {
		set = doom
	}
	k := draw(set, r.seed, id, a.n)
	r.plays[k.name]++
	if k.took {
		a.took = true
	}
	a.unclear = !k.refuses
	return k
}

func draw(set []trick, seed uint64, id string, n int) trick {
	var all uint64
	for _, k := range set {
		all += k.weight
	}
	h := fnv.New64a()
	fmt.Fprint(h, seed, id, n)
	x := h.Sum64() % all
	for _, k := range set {
		if x < k.weight {
			return k
		}
		x -= k.weight
	}
	panic("no trick drawn")
}

// check answers whether the receiver has worked on an id.
func (r *troubledReceiver) check(w http.ResponseWriter, id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asks++
	a := r.byID[id]
	if a != nil && a.took {
		w.WriteHeader(http.StatusOK)
		return
	}
	if a != nil {
		a.unclear = false
	}
	w.WriteHeader(http.StatusNotFound)
}

func (r *troubledReceiver) fail(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fails = append(r.fails, fmt.Sprintf(format, args...))
}

func (r *troubledReceiver) got(id string) *arrived {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.byID[id]; a != nil {
		copied := *a
		return &copied
	}
	return nil
}

func (r *troubledReceiver) ids() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.byID))
}

func (r *troubledReceiver) distinct() int { return len(r.ids()) }

func (r *troubledReceiver) arrivals() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.byID {
		n += a.n
	}
	return n
}

func (r *troubledReceiver) checks() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asks
}

func (r *troubledReceiver) wrong() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.fails)
}

func (r *troubledReceiver) played() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.plays)
}
