package http_test

import (
	"bufio"
	"io"
	"net"
	nethttp "net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/onefold-dev/onefold/internal/outbox"
	"github.com/onefold-dev/onefold/internal/outbox/http"
	"github.com/onefold-dev/onefold/internal/outbox/outboxtest"
	"github.com/onefold-dev/onefold/internal/task"
	"github.com/onefold-dev/onefold/internal/telemetry"
)

func newSender(t *testing.T) *http.Sender {
	t.Helper()
	s := http.New(nil)
	t.Cleanup(s.Close)
	return s
}

func to(url string) outbox.Delivery {
	return outbox.Delivery{
		ID: task.NewID(), Attempt: 1, Body: []byte(`{"a": 1.10}`), URL: telemetry.NewSecret(url), AllowPrivate: true, IdempotencyHeader: "Idempotency-Key",
	}
}

func TestSuite(t *testing.T) {
	t.Parallel()
	outboxtest.Run(t, outboxtest.Kind{
		Sender:  newSender(t),
		Header:  "X-Team",
		Prepare: func(d *outbox.Delivery, _ *outboxtest.Receiver) { d.IdempotencyHeader = "X-Request-Ref" },
		Start: func(t *testing.T, b outboxtest.Behaviour) *outboxtest.Receiver {
			return outboxtest.StartHTTP(t, b, "", func(r *nethttp.Request) string { return r.Header.Get("X-Request-Ref") }, nil)
		},
	})
}

// TestRequest: method, path, query, headers and credential as the effect and its destination say.
func TestRequest(t *testing.T) {
	t.Parallel()
	got := make(chan *nethttp.Request, 1)
	srv := httptest.NewServer(nethttp.HandlerFunc(func(_ nethttp.ResponseWriter, r *nethttp.Request) { got <- r }))
	t.Cleanup(srv.Close)
	d := to(srv.URL + "/api/v1?tenant=7")
	d.Method, d.Path, d.Traffic = "PUT", "/orders/a%2Fb?x=1", `version="1", attempt=2, of=8`
	d.IdempotencyHeader, d.CredentialHeader, d.Credential = "X-Once", "X-Api-Key", telemetry.NewSecret("k-1")
	d.Headers = map[string]string{"Content-Type": "application/vnd.x+json", "X-Once": "forged", "X-Api-Key": "forged"}
	if out := newSender(t).Send(t.Context(), d); out.Status != 200 {
		t.Fatalf("got %+v", out)
	}
	r := <-got
	if r.Method != "PUT" || r.URL.String() != "/api/v1/orders/a%2Fb?tenant=7&x=1" {
		t.Errorf("got %s %s", r.Method, r.URL)
	}
	for name, want := range map[string]string{
		"X-Once": d.ID.String(), "X-Api-Key": "k-1", "Onefold-Traffic": d.Traffic, "Content-Type": "application/vnd.x+json",
		"Webhook-Signature": "", "Idempotency-Key": "", "Accept-Encoding": "",
	} {
		if got := r.Header.Get(name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

// TestPathsThatLeadElsewhere are refused before anything is dialled.
func TestPathsThatLeadElsewhere(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/../admin", "/a/%2e%2e/b", "/a/..", "/x#y", "/a/./b", "/%zz"} {
		d := to("http://127.0.0.1:1/api")
		d.Path = path
		if out := newSender(t).Send(t.Context(), d); out.Class != outbox.Blocked || out.Code != outbox.CodeBadURL {
			t.Errorf("%s: got %+v, want blocked", path, out)
		}
	}
	d := to("http://127.0.0.1:1/api")
	d.Path = "//other.example/x" // stays a path
	if out := newSender(t).Send(t.Context(), d); out.Class != outbox.NotSent {
		t.Errorf("got %+v, want not sent to the destination itself", out)
	}
}

// TestNothingIsReplayed: a server that answers once on a connection and then takes the next request and closes without a
// word. net/http would send that one again by itself, for its Idempotency-Key or its method say that this is safe.
func TestNothingIsReplayed(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"POST", "PUT", "DELETE", "GET"} {
		for _, body := range []string{`{"a":1}`, ""} {
			for _, safe := range []bool{true, false} {
				executed, url := onceThenClose(t)
				s := newSender(t)
				for range 2 {
					d := to(url)
					d.Method, d.Body, d.Safe = method, []byte(body), safe
					s.Send(t.Context(), d)
				}
				if n := executed.Load(); n != 2 {
					t.Errorf("%s with %d bytes, safe %t: got %d executions of two sends", method, len(body), safe, n)
				}
			}
		}
	}
}

func onceThenClose(t *testing.T) (executed *atomic.Int32, url string) {
	t.Helper()
	executed = new(atomic.Int32)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				in := bufio.NewReader(c)
				for n := range 2 {
					r, err := nethttp.ReadRequest(in)
					if err != nil {
						return
					}
					_, _ = io.Copy(io.Discard, r.Body)
					executed.Add(1)
					if n == 0 {
						_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
					}
				}
			}()
		}
	}()
	return executed, "http://" + l.Addr().String()
}

// TestCheckIsAQuestion: no idempotency key, and the whole answer.
func TestCheckIsAQuestion(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(nethttp.HandlerFunc(func(w nethttp.ResponseWriter, r *nethttp.Request) {
		if r.Method != "GET" || r.Header.Get("Idempotency-Key") != "" || r.URL.Path != "/found" {
			t.Errorf("got %s %s with %v", r.Method, r.URL, r.Header)
		}
		_, _ = w.Write(make([]byte, 64<<10))
	}))
	t.Cleanup(srv.Close)
	d := to(srv.URL)
	d.Check, d.Method, d.Path, d.Body = true, "GET", "/found", nil
	if out := newSender(t).Send(t.Context(), d); out.Status != 200 || len(out.Reply) != outbox.MaxAnswer {
		t.Errorf("got %d with %d bytes, want 200 with %d", out.Status, len(out.Reply), outbox.MaxAnswer)
	}
}
