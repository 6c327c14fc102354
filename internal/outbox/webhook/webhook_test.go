package webhook_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/onefold-dev/onefold/internal/outbox"
	"github.com/onefold-dev/onefold/internal/outbox/outboxtest"
	"github.com/onefold-dev/onefold/internal/outbox/webhook"
	"github.com/onefold-dev/onefold/internal/task"
	"github.com/onefold-dev/onefold/internal/telemetry"
)

var whsec = "whsec_" + base64.StdEncoding.EncodeToString([]byte("a secret of thirty-two bytes, ok"))

func newSender(t *testing.T, o *webhook.Opts) *webhook.Sender {
	t.Helper()
	s := webhook.New(o)
	t.Cleanup(s.Close)
	return s
}

func TestSuite(t *testing.T) {
	t.Parallel()
	verifier, err := standardwebhooks.NewWebhook(whsec)
	if err != nil {
		t.Fatal(err)
	}
	outboxtest.Run(t, outboxtest.Kind{
		Sender: newSender(t, nil),
		Header: "X-Team",
		Start: func(t *testing.T, b outboxtest.Behaviour) *outboxtest.Receiver {
			id := func(r *http.Request) string { return r.Header.Get("webhook-id") }
			check := func(r *http.Request, body []byte) error { return verifier.Verify(body, r.Header) }
			return outboxtest.StartHTTP(t, b, whsec, id, check)
		},
	})
}

// serve starts a receiver and returns its address.
func serve(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv.URL
}

func to(url string, secrets ...string) outbox.Delivery {
	d := outbox.Delivery{ID: task.NewID(), Attempt: 1, Body: []byte(`{}`), URL: telemetry.NewSecret(url), AllowPrivate: true}
	for _, s := range secrets {
		d.Secrets = append(d.Secrets, telemetry.NewSecret(s))
	}
	return d
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	got := make(chan *http.Request, 1)
	url := serve(t, func(_ http.ResponseWriter, r *http.Request) { got <- r })
	d := to(url+"/in?x=1", whsec)
	d.Attempt = 3
	d.Headers = map[string]string{"X-Team": "billing", "Content-Type": "application/cloudevents+json"}
	if out := newSender(t, &webhook.Opts{UserAgent: "onefold/9"}).Send(t.Context(), d); out.Status != 200 {
		t.Fatalf("got %+v, want 200", out)
	}
	r := <-got
	for name, want := range map[string]string{
		"Webhook-Id": d.ID.String(), "Onefold-Attempt": "3", "User-Agent": "onefold/9", "X-Team": "billing",
		"Content-Type": "application/cloudevents+json", "Accept-Encoding": "",
	} {
		if got := r.Header.Get(name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	if r.Method != "POST" || r.URL.String() != "/in?x=1" || r.ContentLength != 2 {
		t.Errorf("got %s %s with %d bytes, want POST /in?x=1 with 2", r.Method, r.URL, r.ContentLength)
	}
}

func TestRotationSignsWithBothSecrets(t *testing.T) {
	t.Parallel()
	old := "whsec_" + base64.StdEncoding.EncodeToString([]byte("the previous secret of this one."))
	raw := "a raw secret, not base64!"
	for name, c := range map[string]struct {
		secrets []string
		knows   []*standardwebhooks.Webhook
		want    int
	}{
		"one":      {[]string{whsec}, []*standardwebhooks.Webhook{verifier(t, whsec)}, 1},
		"rotation": {[]string{whsec, old}, []*standardwebhooks.Webhook{verifier(t, whsec), verifier(t, old)}, 2},
		"raw":      {[]string{raw}, []*standardwebhooks.Webhook{rawVerifier(t, raw)}, 1},
	} {
		got := make(chan error, 3)
		url := serve(t, func(_ http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			for _, v := range c.knows {
				got <- v.Verify(body, r.Header)
			}
			if n := len(strings.Fields(r.Header.Get("webhook-signature"))); n != c.want {
				got <- fmt.Errorf("%d signatures, want %d", n, c.want)
			}
		})
		if out := newSender(t, nil).Send(t.Context(), to(url, c.secrets...)); out.Status != 200 {
			t.Fatalf("%s: got %+v, want 200", name, out)
		}
		close(got)
		for err := range got {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func verifier(t *testing.T, secret string) *standardwebhooks.Webhook {
	t.Helper()
	v, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func rawVerifier(t *testing.T, secret string) *standardwebhooks.Webhook {
	t.Helper()
	v, err := standardwebhooks.NewWebhookRaw([]byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestBadSecretSendsNothing(t *testing.T) {
	t.Parallel()
	var hits atomic.Int32
	url := serve(t, func(http.ResponseWriter, *http.Request) { hits.Add(1) })
	out := newSender(t, nil).Send(t.Context(), to(url, "whsec_not base64"))
	if out.Class != outbox.NotSent || out.Code != webhook.CodeBadSecret || hits.Load() != 0 {
		t.Errorf("got %+v and %d requests, want not_sent and none", out, hits.Load())
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	var followed atomic.Int32
	other := serve(t, func(http.ResponseWriter, *http.Request) { followed.Add(1) })
	for _, status := range []int{301, 302, 303, 307, 308} {
		url := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/hook" {
				followed.Add(1)
			}
			w.Header().Set("Location", other)
			w.WriteHeader(status)
		})
		if out := newSender(t, nil).Send(t.Context(), to(url+"/hook", whsec)); out.Status != status {
			t.Errorf("got %+v, want status %d", out, status)
		}
	}
	if n := followed.Load(); n != 0 {
		t.Errorf("got %d followed redirects, want none", n)
	}
}

func TestProxyIsNotUsed(t *testing.T) {
	var hits atomic.Int32
	proxy := serve(t, func(http.ResponseWriter, *http.Request) { hits.Add(1) })
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"} {
		t.Setenv(name, proxy)
	}
	out := newSender(t, nil).Send(t.Context(), outbox.Delivery{ID: task.NewID(), URL: telemetry.NewSecret("http://hook.invalid/")})
	if hits.Load() != 0 || out.Class != outbox.NotSent {
		t.Errorf("got %d requests at the proxy and %+v, want none and not_sent", hits.Load(), out)
	}
}

func TestAddressesOfTheOwnNetwork(t *testing.T) {
	t.Parallel()
	s := newSender(t, nil)
	closed := []string{
		"http://127.0.0.1/", "http://localhost/", "http://[::1]/", "http://0.0.0.0/", "http://169.254.169.254/latest/meta-data/",
		"http://10.0.0.1/", "http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]/", "http://2130706433/", "http://0x7f000001/",
		"http://127.1/", "http://100.64.0.1/", "http://[fd00::1]/", "http://[fe80::1]/", "http://[64:ff9b::a9fe:a9fe]/",
		"http://[2002:7f00:1::]/", "http://198.18.0.1/", "http://192.0.0.1/", "http://0177.0.0.1/", "http://127.0.0.1.:80/",
		"file:///etc/passwd", "gopher://127.0.0.1/", "http:///x", "://", "",
	}
	for _, url := range closed {
		d := to(url, whsec)
		d.AllowPrivate = false
		if out := s.Send(t.Context(), d); out.Class != outbox.Blocked {
			t.Errorf("%s: got %+v, want blocked", url, out)
		}
	}
	for _, url := range []string{"http://169.254.169.254/", "http://[fe80::1]/", "http://[64:ff9b::a9fe:a9fe]/"} {
		if out := s.Send(t.Context(), to(url, whsec)); out.Class != outbox.Blocked {
			t.Errorf("%s with allow_private: got %+v, want blocked all the same", url, out)
		}
	}
}

func TestTLSIsVerified(t *testing.T) {
	t.Parallel()
	var hits atomic.Int32
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) }))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	out := newSender(t, nil).Send(t.Context(), to(srv.URL, whsec))
	if out.Class != outbox.NotSent || out.Code != outbox.CodeTLS || hits.Load() != 0 {
		t.Errorf("got %+v and %d requests, want not_sent %s and none", out, hits.Load(), outbox.CodeTLS)
	}
}

func TestRetryAfterAndExcerpt(t *testing.T) {
	t.Parallel()
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "120")
		w.Header().Set("Content-Encoding", "gzip") // what comes is kept as it is
		w.WriteHeader(429)
		_, _ = io.WriteString(w, strings.Repeat("slow down ", 1000))
	})
	out := newSender(t, nil).Send(t.Context(), to(url, whsec))
	if out.Class != outbox.Answered || out.Status != 429 || out.RetryAfter != 2*time.Minute || len(out.Reply) != outbox.MaxReply {
		t.Errorf("got %s %d after %s with %d bytes, want answered 429 after 2m with %d", out.Class, out.Status, out.RetryAfter, len(out.Reply), outbox.MaxReply)
	}
}

// A reply that would unpack to a gigabyte is never unpacked: its first bytes are kept as they came.
func TestBombIsNotUnpacked(t *testing.T) {
	t.Parallel()
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	for block := make([]byte, 1<<20); bomb.Len() < 4*outbox.MaxReply; {
		if _, err := z.Write(block); err != nil {
			t.Fatal(err)
		}
	}
	var asked atomic.Value
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Store(strings.Join(r.Header.Values("Accept-Encoding"), ","))
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(bomb.Bytes())
	})
	out := newSender(t, nil).Send(t.Context(), to(url, whsec))
	if out.Class != outbox.Answered || out.Status != 200 || !bytes.Equal(out.Reply, bomb.Bytes()[:outbox.MaxReply]) {
		t.Errorf("got %s %d with %d bytes, want 200 with the first %d as they were sent", out.Class, out.Status, len(out.Reply), outbox.MaxReply)
	}
	if got := asked.Load(); strings.Contains(got.(string), "gzip") {
		t.Errorf("the delivery asks for %q", got)
	}
}

// raw answers one connection with bytes as they are.
func raw(t *testing.T, answer func(net.Conn)) string {
	t.Helper()
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
				answer(c)
			}()
		}
	}()
	return "http://" + l.Addr().String() + "/"
}

func TestAnswersThatAreNone(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"nothing":         "",
		"no http":         "SSH-2.0-OpenSSH_9.6\r\n",
		"cut headers":     "HTTP/1.1 200 OK\r\nContent-Le",
		"endless headers": "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("a", 128<<10) + "\r\n\r\n",
	} {
		url := raw(t, func(c net.Conn) {
			_, _ = c.Read(make([]byte, 4096))
			_, _ = io.WriteString(c, text)
		})
		if out := newSender(t, nil).Send(t.Context(), to(url, whsec)); out.Class != outbox.Unclear {
			t.Errorf("%s: got %+v, want unclear", name, out)
		}
	}
}

func TestStatusCountsEvenWhenTheBodyIsCut(t *testing.T) {
	t.Parallel()
	url := raw(t, func(c net.Conn) {
		_, _ = c.Read(make([]byte, 4096))
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
	})
	out := newSender(t, nil).Send(t.Context(), to(url, whsec))
	if out.Class != outbox.Answered || out.Status != 200 || string(out.Reply) != "half" {
		t.Errorf("got %+v, want 200 and half", out)
	}
}

func TestTricklingAnswerEndsWithTheContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	url := raw(t, func(c net.Conn) {
		_, _ = c.Read(make([]byte, 4096))
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nX: a")
		cancel()
		_, _ = c.Read(make([]byte, 1)) // until the sender hangs up
	})
	if out := newSender(t, nil).Send(ctx, to(url, whsec)); out.Class != outbox.Unclear {
		t.Errorf("got %+v, want unclear", out)
	}
}

// TestRequestNotFullyWritten: the receiver reads a little of a large body and resets.
func TestRequestNotFullyWritten(t *testing.T) {
	t.Parallel()
	url := raw(t, func(c net.Conn) {
		_, _ = c.Read(make([]byte, 1024))
		_ = c.(*net.TCPConn).SetLinger(0)
	})
	d := to(url, whsec)
	d.Body = make([]byte, 64<<20)
	out := newSender(t, nil).Send(t.Context(), d)
	if out.Class == outbox.Answered || out.Class == outbox.Blocked {
		t.Errorf("got %+v, want not_sent, or unclear where that cannot be told", out)
	}
}
