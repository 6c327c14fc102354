package worker_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/casetest"
	"github.com/onefold-dev/onefold/internal/provider"
	"github.com/onefold-dev/onefold/internal/provider/openai"
	"github.com/onefold-dev/onefold/internal/provider/providertest"
	"github.com/onefold-dev/onefold/internal/provider/wire"
)

const goodReply = `{"id":"x","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`

func answerWell(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(goodReply))
}

// raw starts a world around a server that is scripted byte by byte.
func raw(t *testing.T, script func(*providertest.Conn)) (*upstream, *providertest.Server) {
	t.Helper()
	s := providertest.Serve(t, nil, script)
	u := &upstream{}
	u.start(t, "60s", "http://"+s.Addr(), nil)
	return u, s
}

func sendWell(c *providertest.Conn) {
	c.Send("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
	c.Chunk([]byte(goodReply))
	c.Send("0\r\n\r\n")
}

// TestTransportCases are scenarios in words: one function plays each.
func TestTransportCases(t *testing.T) {
	t.Parallel()
	plays := map[string]func(*testing.T){
		"C167": noHiddenReplay, "C168": idleConnectionClosed, "C169": goAwayAnswers, "C170": namesComeBack, "C171": noSuchName,
		"C172": neverAnswers, "C173": answersAfterManyLeases,
	}
	for _, c := range casetest.Claimed(t, "internal/worker.TestTransportCases") {
		play := plays[c.ID]
		if play == nil {
			t.Errorf("nothing plays %s", c.ID)
			continue
		}
		t.Run(c.ID, func(t *testing.T) {
			t.Parallel()
			play(t)
		})
	}
}

// A warm connection takes the request and is closed without a reply: one send
// an attempt, nothing repeats it unasked.
func noHiddenReplay(t *testing.T) {
	u, s := raw(t, func(c *providertest.Conn) {
		if c.Read() {
			sendWell(c)
		}
		c.Read()
		_ = c.Close()
	})
	if r := u.work(u.put("k", "warm"), 1); r.State != api.Succeeded {
		t.Fatalf("warming up: %s %s", r.State, r.ErrorMessage)
	}
	id := u.put("k", "x")
	u.p.Work(context.Background(), id)
	all := u.attempts(id)
	if s.Requests.Load() != 2 || s.Conns.Load() != 1 || len(all) != 1 {
		t.Errorf("%d requests over %d connections for %d attempts", s.Requests.Load(), s.Conns.Load(), len(all))
	}
	if a := all[0]; a.Code != provider.CodeConnectionLost || a.Billed != api.BilledUnknown || !a.Orphaned || a.Sends != 1 {
		t.Errorf("the ledger says %+v", a)
	}
}

// An idle connection that the server closed costs the next call nothing but
// perhaps an attempt.
func idleConnectionClosed(t *testing.T) {
	closed := make(chan struct{}, 9)
	u, _ := raw(t, func(c *providertest.Conn) {
		if c.Read() {
			sendWell(c)
		}
		_ = c.Close()
		closed <- struct{}{}
	})
	u.work(u.put("k", "first"), 1)
	<-closed
	if r := u.work(u.put("k", "second"), 2); r.State != api.Succeeded {
		t.Errorf("got %s %s", r.State, r.ErrorMessage)
	}
}

// An HTTP/2 server that says goodbye and still answers the stream it accepted,
// once the client has shown that it read the goodbye.
func goAwayAnswers(t *testing.T) {
	u := &upstream{}
	config, pem := providertest.Certificate(t)
	s := providertest.ServeGoAway(t, config, goodReply)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	u.start(t, "60s", "https://"+s.Addr(), &wire.Opts{TLS: &tls.Config{RootCAs: roots}})
	if r := u.work(u.put("k", "x"), 1); r.State != api.Succeeded || s.Calls.Load() != 1 || s.Answered.Load() != 1 {
		t.Errorf("got %s %s after %d calls, %d answered after the goodbye", r.State, r.ErrorMessage, s.Calls.Load(), s.Answered.Load())
	}
}

// names is a name server that fails every question with rcode, or, at 0, says
// that every name is this machine.
func names(t *testing.T, rcode *atomic.Int32) *net.Resolver {
	t.Helper()
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() {
		_ = pc.Close()
		<-done
	})
	go func() {
		defer close(done)
		buf := make([]byte, 1500)
		for {
			n, from, err := pc.ReadFrom(buf)
			if err != nil {
				return
			}
			if a := answerName(buf[:n], byte(rcode.Load())); a != nil {
				_, _ = pc.WriteTo(a, from)
			}
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", pc.LocalAddr().String())
	}}
}

// answerName answers a question of RFC 1035: header, the question, one address.
func answerName(q []byte, rcode byte) []byte {
	end := 12
	for end < len(q) && q[end] != 0 {
		end += int(q[end]) + 1
	}
	if end += 5; end > len(q) {
		return nil
	}
	a := append([]byte(nil), q[:end]...)
	a[2], a[3] = 0x81, 0x80|rcode
	for i := 6; i < 12; i++ {
		a[i] = 0
	}
	if rcode == 0 && q[end-3] == 1 { // an A record; of other types there are none
		a[7] = 1
		a = append(a, 0xC0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 127, 0, 0, 1)
	}
	return a
}

// A name server that is down for a while: nothing was sent, nothing is used up.
func namesComeBack(t *testing.T) {
	u := &upstream{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u.calls.Add(1)
		answerWell(w, r)
	}))
	t.Cleanup(srv.Close)
	_, port, err := net.SplitHostPort(srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	var rcode atomic.Int32
	rcode.Store(2) // SERVFAIL
	u.start(t, "60s", "http://model.example:"+port, &wire.Opts{Dial: &net.Dialer{Timeout: patience, Resolver: names(t, &rcode)}})
	id := u.put("k", "x")
	for range 4 { // 2, 4, 8 and 16 s: thirty seconds of waits
		u.p.Work(context.Background(), id)
		u.due(id)
	}
	if r := u.row(id); r.State != api.Pending || r.Attempts != 0 || r.NotSent != 4 {
		t.Fatalf("while it is down: %s, attempts %d, not sent %d", r.State, r.Attempts, r.NotSent)
	}
	rcode.Store(0)
	if r := u.work(id, 1); r.State != api.Succeeded || r.Attempts != 1 || u.calls.Load() != 1 {
		t.Errorf("got %s %s after %d calls", r.State, r.ErrorMessage, u.calls.Load())
	}
	if a := u.attempts(id)[0]; a.Code != provider.CodeResolveFailed || a.Billed != api.BilledNo || a.Sends != 0 || a.DispatchedAt != nil {
		t.Errorf("the ledger says %+v", a)
	}
}

// A host name that does not exist ends the task after few attempts.
func noSuchName(t *testing.T) {
	u := &upstream{}
	var rcode atomic.Int32
	rcode.Store(3) // NXDOMAIN
	u.start(t, "60s", "http://nosuch.example", &wire.Opts{Dial: &net.Dialer{Timeout: patience, Resolver: names(t, &rcode)}})
	r := u.work(u.put("k", "x"), 20)
	if r.State != api.Failed || r.ErrorCode != "not_sent" || r.Permanent() || r.Attempts > 5 || r.Usage.Billed != api.BilledNo {
		t.Errorf("got %s %s after %d attempts, billed %s", r.State, r.ErrorCode, r.Attempts, r.Usage.Billed)
	}
}

// A model that accepts and never answers: two calls, each ended by its timeout.
func neverAnswers(t *testing.T) {
	u := &upstream{stop: make(chan struct{})}
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		u.calls.Add(1)
		<-u.stop
	}))
	t.Cleanup(srv.Close)
	t.Cleanup(func() { close(u.stop) })
	p, err := openai.New(openai.Opts{BaseURL: srv.URL + "/v1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	u.bundle = setupWith(t, `
providers:
  p: {type: openai, base_url: "http://127.0.0.1:1/v1"}
kinds:
  k: {provider: p, max_attempts: 2, timeouts: {total: 300ms}}
`, nil)
	u.providers = map[string]provider.Provider{"p": p}
	u.p = u.process(5 * time.Second)
	id := u.put("k", "x")
	r := u.work(id, 5)
	if r.State != api.Failed || r.ErrorCode != "attempts_exhausted" || u.calls.Load() != 2 || r.Usage.Billed != api.BilledUnknown {
		t.Errorf("got %s %s after %d calls, billed %s", r.State, r.ErrorCode, u.calls.Load(), r.Usage.Billed)
	}
	for _, a := range u.attempts(id) { // 75 s for two timeouts of 30 s, at five times the value
		if limit := int64(300 * 5 * 75 / 60); a.TotalMS < 300 || a.TotalMS > limit {
			t.Errorf("a call took %d ms, its total timeout is 300 ms", a.TotalMS)
		}
	}
}

// A reply that takes many leases: the heartbeat keeps the task, nobody takes it.
func answersAfterManyLeases(t *testing.T) {
	proceed := make(chan struct{})
	u := &upstream{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u.calls.Add(1)
		<-proceed
		answerWell(w, r)
	}))
	t.Cleanup(srv.Close)
	u.start(t, "60s", srv.URL, nil)
	owner, other := u.process(3*time.Second), u.process(3*time.Second)
	id := u.put("k", "x")
	done := make(chan struct{})
	go func() {
		owner.Work(context.Background(), id)
		close(done)
	}()
	for rounds := time.NewTicker(500 * time.Millisecond); ; { // three leases of somebody else's upkeep
		<-rounds.C
		if err := other.up.Round(context.Background()); err != nil {
			t.Error(err)
		}
		var long bool
		if err := u.pool.QueryRow(context.Background(), `SELECT coalesce(min(claimed_at) < now() - interval '9 s', false) FROM onefold.attempts`).Scan(&long); err != nil {
			t.Fatal(err)
		}
		if long {
			rounds.Stop()
			break
		}
	}
	close(proceed)
	<-done
	if r := u.row(id); r.State != api.Succeeded || u.calls.Load() != 1 || r.Epoch != 1 {
		t.Errorf("got %s at epoch %d after %d calls", r.State, r.Epoch, u.calls.Load())
	}
}
