package providertest

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/onefold-dev/onefold/internal/provider"
)

// bodies: replies with status 200 that are none.
func bodies(t *testing.T, d Dialect, stream bool) {
	for name, c := range map[string]struct{ kind, body string }{
		"html":       {"text/html", "<!DOCTYPE html><title>Sign in</title>"},
		"empty":      {"application/json", ""},
		"cut JSON":   {"application/json", `{"id":"x","a":[{"b":"c`},
		"two values": {"application/json", `{} {}`},
		"array":      {"application/json", `[1,2]`},
		"text":       {"text/plain", "ok"},
		"deep":       {"application/json", strings.Repeat(`{"a":`, 20_000) + "1" + strings.Repeat("}", 20_000)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := d.rig(t, func(k *Conn) {
				for k.Read() {
					k.Send("HTTP/1.1 200 OK\r\nContent-Type: "+c.kind+"\r\n", fmt.Sprintf("Content-Length: %d\r\n\r\n", len(c.body)), c.body)
				}
			})
			f := r.fail(d.request(stream), provider.BadOutput, provider.CodeProtocol, 1)
			if strings.ContainsAny(f.Message, "<>") {
				t.Errorf("message %q holds HTML", f.Message)
			}
		})
	}
	t.Run("unknown encoding", func(t *testing.T) {
		t.Parallel()
		r := d.rig(t, func(k *Conn) {
			k.Read()
			k.Send("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: br\r\nContent-Length: 3\r\n\r\nabc")
		})
		r.fail(d.request(stream), provider.BadOutput, provider.CodeProtocol, 1)
	})
	t.Run("gzip", func(t *testing.T) {
		t.Parallel()
		packed := zip(d.Whole("one two"))
		r := d.rig(t, func(k *Conn) {
			k.Read()
			k.Send("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\n",
				fmt.Sprintf("Content-Length: %d\r\n\r\n", len(packed)), string(packed))
		})
		resp, err := r.p.Call(t.Context(), d.request(stream))
		if err != nil || resp.Text != "one two" {
			t.Errorf("got %+v, %v, want the reply unpacked", resp, err)
		}
	})
	t.Run("cut body", func(t *testing.T) {
		t.Parallel()
		body := string(d.Whole("one two"))
		r := d.rig(t, func(k *Conn) {
			k.Read()
			k.Send("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n", fmt.Sprintf("Content-Length: %d\r\n\r\n", len(body)), body[:len(body)-2])
			_ = k.Close()
		})
		f := r.fail(d.request(stream), provider.Unknown, provider.CodeBodyCut, 1)
		if f.Billed != provider.BilledYes {
			t.Errorf("billed %s, want yes", f.Billed)
		}
	})
}

func zip(b []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(b)
	_ = w.Close()
	return out.Bytes()
}

// oneSend: what net/http, an SDK or a redirect would repeat is sent once.
func oneSend(t *testing.T, d Dialect, stream bool) {
	t.Run("warm connection closed without a reply", func(t *testing.T) {
		t.Parallel()
		r := d.rig(t, func(c *Conn) {
			if c.Read() {
				d.reply(c, stream)
			}
			c.Read() // the work is done, and then the connection breaks
			_ = c.Close()
		})
		if _, err := r.p.Call(t.Context(), d.request(stream)); err != nil {
			t.Fatal(err)
		}
		r.fail(d.request(stream), provider.Unknown, provider.CodeConnectionLost, 2)
		if c := r.s.Conns.Load(); c != 1 {
			t.Errorf("%d connections, want the warm one only", c)
		}
	})
	t.Run("idle connection closed by the server", func(t *testing.T) {
		t.Parallel()
		closed := make(chan struct{}, 9)
		r := d.rig(t, func(c *Conn) {
			if c.Read() {
				d.reply(c, stream)
			}
			_ = c.Close()
			closed <- struct{}{}
		})
		if _, err := r.p.Call(t.Context(), d.request(stream)); err != nil {
			t.Fatal(err)
		}
		<-closed
		_, err := r.p.Call(t.Context(), d.request(stream))
		if n := r.s.Requests.Load(); err == nil && n != 2 || err != nil && n > 2 {
			t.Errorf("%d sends by two calls, the second gave %v", n, err)
		}
	})
	for _, status := range []int{301, 302, 303, 307, 308} {
		t.Run(fmt.Sprintf("redirect %d", status), func(t *testing.T) {
			t.Parallel()
			other := Serve(t, nil, d.answer(stream))
			r := d.rig(t, func(c *Conn) {
				c.Read()
				c.Send(fmt.Sprintf("HTTP/1.1 %d Moved\r\nLocation: http://%s/v1/x\r\nContent-Length: 0\r\n\r\n", status, other.Addr()))
			})
			r.fail(d.request(stream), provider.Rejected, provider.CodeRedirect, 1)
			if n := other.Conns.Load(); n != 0 {
				t.Error("the redirect was followed")
			}
		})
	}
}

// statuses: refusals, by status and by code.
func statuses(t *testing.T, d Dialect, stream bool) {
	for name, c := range map[string]struct {
		status     int
		header     string
		body       []byte
		class      provider.Class
		code       string
		retryAfter time.Duration
		gate       provider.Gate
	}{
		"429":         {429, "Retry-After: 7\r\n", nil, provider.Refused, provider.CodeRateLimited, 7 * time.Second, provider.GateCool},
		"429 ms":      {429, "retry-after-ms: 1500\r\nRetry-After: 2\r\n", nil, provider.Refused, provider.CodeRateLimited, 1500 * time.Millisecond, provider.GateCool},
		"429 quota":   {429, "", d.Error("over", d.QuotaWord), provider.Rejected, provider.CodeQuotaExhausted, 0, provider.GateHold},
		"403 rate":    {403, "", d.Error("slow", d.RateWord), provider.Refused, provider.CodeRateLimited, 0, provider.GateCool},
		"401":         {401, "", d.Error("no", ""), provider.Unauthorized, provider.CodeUnauthorized, 0, provider.GateHold},
		"403":         {403, "", d.Error("no", ""), provider.Rejected, provider.CodeForbidden, 0, provider.GateNone},
		"400":         {400, "", d.Error("no", ""), provider.Rejected, provider.CodeInvalidRequest, 0, provider.GateNone},
		"503":         {503, "Retry-After: 3\r\n", nil, provider.Unknown, provider.CodeUnavailable, 3 * time.Second, provider.GateNone},
		"500 by html": {500, "Content-Type: text/html\r\n", []byte("<h1>no</h1>"), provider.Unknown, provider.CodeServerError, 0, provider.GateNone},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := d.rig(t, func(k *Conn) {
				for k.Read() {
					k.Send(fmt.Sprintf("HTTP/1.1 %d X\r\nContent-Length: %d\r\nX-Request-Id: req-9\r\n%s\r\n%s", c.status, len(c.body), c.header, c.body))
				}
			})
			f := r.fail(d.request(stream), c.class, c.code, 1)
			if f.Status != c.status || f.RetryAfter != c.retryAfter || f.Gate != c.gate || f.RequestID != "req-9" {
				t.Errorf("status %d, retry after %v, gate %q, request id %q", f.Status, f.RetryAfter, f.Gate, f.RequestID)
			}
		})
	}
	t.Run("a body that never ends", func(t *testing.T) {
		t.Parallel()
		r := d.rig(t, func(k *Conn) {
			k.Read()
			k.Send("HTTP/1.1 429 X\r\nContent-Length: 100\r\nRetry-After: 7\r\n\r\n{")
			k.Hold()
		})
		req := d.request(stream)
		req.Timeouts.FirstByte = 200 * time.Millisecond
		if f := r.fail(req, provider.Refused, provider.CodeRateLimited, 1); f.RetryAfter != 7*time.Second {
			t.Errorf("retry after %v, want 7 s", f.RetryAfter)
		}
	})
}

// secrets: nothing that an error says holds the key, the URL's credentials or query, or the prompt.
func secrets(t *testing.T, d Dialect, stream bool) {
	asked := make(chan string, 9)
	s := Serve(t, nil, func(c *Conn) {
		for c.Read() {
			asked <- c.Head.Header.Get(d.AuthHeader)
			said := "bad key " + Key + " or http://user:" + "pa55word@h/x?token=t0ken for 'the secret plan of the prompt' <b>"
			body := d.Error(said, "")
			c.Send(fmt.Sprintf("HTTP/1.1 400 X\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
		}
	})
	r := rig{t, d, s, d.make(t, "http://user:pa55word@"+s.Addr()+"/v1?token=t0ken", nil)}
	f := r.fail(d.request(stream), provider.Rejected, provider.CodeInvalidRequest, 1)
	for _, secret := range []string{Key, "pa55word", "t0ken", "secret plan", "<b>", "order-7"} {
		if strings.Contains(f.Error(), secret) || strings.Contains(f.ProviderCode, secret) {
			t.Errorf("%q holds %q", f.Error(), secret)
		}
	}
	if got := <-asked; got != d.AuthPrefix+Key {
		t.Errorf("%s: %q, want the key", d.AuthHeader, got)
	}
	key := ""
	p, err := d.New("http://user:pa55word@"+s.Addr(), func() string { return key }, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, key = range []string{"first-key", "second-key", ""} {
		if _, err := p.Call(t.Context(), d.request(stream)); provider.AsError(err).Status != 400 {
			t.Fatal(err)
		}
		want := d.AuthPrefix + key
		if key == "" {
			want = map[bool]string{true: "Basic " + base64.StdEncoding.EncodeToString([]byte("user:pa55word"))}[d.AuthHeader == "Authorization"]
		}
		if got := <-asked; got != want {
			t.Errorf("%s: %q, want %q", d.AuthHeader, got, want)
		}
	}
}
