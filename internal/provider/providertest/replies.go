package providertest

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/onefold-dev/onefold/internal/provider"
	"github.com/onefold-dev/onefold/internal/provider/wire"
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

// timeouts: the server falls silent, or sends only what is no progress.
func timeouts(t *testing.T, d Dialect, stream bool) {
	const short = 150 * time.Millisecond
	firstByte := func(r *provider.Request) { r.Timeouts.FirstByte = short }
	idle := func(r *provider.Request) { r.Timeouts.Idle = short }
	total := func(r *provider.Request) { r.Timeouts.Total = short }
	begin := func(c *Conn) { // up to the first byte that counts
		c.head(stream)
		if stream {
			c.Chunk(d.Tokens("one ", "two")[0])
		} else {
			c.Chunk([]byte("{"))
		}
	}
	for name, c := range map[string]struct {
		play  func(*Conn)
		limit func(*provider.Request)
		code  string
	}{
		"no header":              {(*Conn).Hold, firstByte, provider.CodeFirstByteTimeout},
		"no header, total":       {(*Conn).Hold, total, provider.CodeTotalTimeout},
		"no first byte":          {func(c *Conn) { c.head(stream); c.Hold() }, firstByte, provider.CodeFirstByteTimeout},
		"pings only":             {func(c *Conn) { c.head(stream); c.keepAlive(stream) }, firstByte, provider.CodeFirstByteTimeout},
		"silence after a token":  {func(c *Conn) { begin(c); c.Hold() }, idle, provider.CodeIdleTimeout},
		"pings after a token":    {func(c *Conn) { begin(c); c.keepAlive(stream) }, idle, provider.CodeIdleTimeout},
		"a slow reply, in total": {func(c *Conn) { begin(c); c.keepAlive(stream) }, total, provider.CodeTotalTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gone := make(chan struct{})
			r := d.rig(t, func(k *Conn) {
				k.Read()
				c.play(k)
				close(gone)
			})
			req := d.request(stream)
			c.limit(&req)
			f := r.fail(req, provider.Unknown, c.code, 1)
			if c.code != provider.CodeIdleTimeout && f.Partial != nil && !strings.Contains(name, "slow") {
				t.Errorf("partial %+v before the first token", f.Partial)
			}
			<-gone // the call hung up, so that a server can notice
		})
	}
	t.Run("a late reply", func(t *testing.T) {
		t.Parallel()
		given := make(chan struct{})
		r := d.rig(t, func(c *Conn) {
			c.Read()
			<-given
			d.reply(c, stream)
		})
		req := d.request(stream)
		req.Timeouts.Total = short
		r.fail(req, provider.Unknown, provider.CodeTotalTimeout, 1)
		close(given)
	})
}

// keepAlive sends what keeps a connection alive and is no progress, until the client has gone.
func (c *Conn) keepAlive(stream bool) {
	ping := " \n"
	if stream {
		ping = ": ping\n\n"
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		c.Hold()
	}()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-gone:
			return
		case <-tick.C:
			c.Chunk([]byte(ping))
		}
	}
}

// endedByCaller: the caller's context ends in a phase.
func endedByCaller(t *testing.T, d Dialect, stream bool) {
	for name, c := range map[string]struct {
		at    provider.Phase
		class provider.Class
		code  string
		play  func(*Conn)
	}{
		"after the send": {provider.PhaseWritten, provider.Unknown, provider.CodeCancelled, (*Conn).Hold},
		"after the headers": {provider.PhaseHeaders, provider.Unknown, provider.CodeCancelled, func(c *Conn) {
			c.head(stream)
			c.Hold()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := d.rig(t, func(k *Conn) {
				k.Read()
				c.play(k)
			})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			phases, reached := until(c.at)
			go func() {
				<-reached
				cancel()
			}()
			req := d.request(stream)
			req.OnPhase = phases.add
			resp, err := r.p.Call(ctx, req)
			if f := mustFail(t, resp, err); f.Class != c.class || f.Code != c.code {
				t.Errorf("got %v, want %s %s", f, c.class, c.code)
			}
		})
	}
	t.Run("while writing", func(t *testing.T) {
		t.Parallel()
		r := d.rig(t, func(k *Conn) {
			_, _ = k.r.Peek(1024)
			<-k.s.done
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		phases, reached := until(provider.PhaseWriting)
		go func() {
			<-reached
			cancel()
		}()
		req := d.big(stream)
		req.OnPhase = phases.add
		resp, err := r.p.Call(ctx, req)
		if f := mustFail(t, resp, err); f.Class != provider.NotSent || f.Code != provider.CodeNotSentCancelled {
			t.Errorf("got %v, want not_sent", f)
		}
	})
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

// bounds: replies larger than the limit cost one call and bounded memory.
func bounds(t *testing.T, d Dialect, stream bool) {
	o := &wire.Opts{MaxReply: 1 << 20}
	t.Run("large reply", func(t *testing.T) {
		t.Parallel()
		r := d.rigWith(t, o, func(c *Conn) {
			c.Read()
			c.Send("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n", string(d.Whole(strings.Repeat("x", 2<<20))))
		})
		r.fail(d.request(stream), provider.Rejected, provider.CodeResultTooLarge, 1)
	})
	t.Run("endless body", func(t *testing.T) {
		t.Parallel()
		r := d.rigWith(t, o, func(c *Conn) {
			c.Read()
			c.Send("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n{\"a\":\"")
			for {
				if _, err := c.Write(bytes.Repeat([]byte("x"), 64<<10)); err != nil {
					return
				}
			}
		})
		r.fail(d.request(stream), provider.Rejected, provider.CodeResultTooLarge, 1)
	})
	t.Run("gzip bomb", func(t *testing.T) {
		t.Parallel()
		bomb := zip(bytes.Repeat([]byte(" "), 8<<20))
		r := d.rigWith(t, o, func(c *Conn) {
			c.Read()
			c.Send("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\n",
				fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(bomb), bomb))
		})
		r.fail(d.request(stream), provider.Rejected, provider.CodeResultTooLarge, 1)
	})
	if !stream {
		return
	}
	t.Run("endless stream of tokens", func(t *testing.T) {
		t.Parallel()
		token := d.Tokens(strings.Repeat("x", 32<<10))[0]
		r := d.rigWith(t, o, func(c *Conn) {
			c.Read()
			c.head(true)
			for range 100 {
				c.Chunk(token)
			}
		})
		r.fail(d.request(stream), provider.Rejected, provider.CodeResultTooLarge, 1)
	})
	t.Run("endless line", func(t *testing.T) {
		t.Parallel()
		r := d.rigWith(t, o, func(c *Conn) {
			c.Read()
			c.head(true)
			c.Chunk([]byte("data: "))
			for range 100 {
				c.Chunk(bytes.Repeat([]byte("x"), 32<<10))
			}
		})
		r.fail(d.request(stream), provider.Rejected, provider.CodeResultTooLarge, 1)
	})
}

// cutStreams: the stream breaks at each place; what came is kept.
func cutStreams(t *testing.T, d Dialect) {
	parts := d.Tokens("one ", "two")
	for n := range len(parts) + 1 {
		for _, way := range []string{"closed", "reset", "ended"} {
			t.Run(fmt.Sprintf("%s after %d tokens", way, n), func(t *testing.T) {
				t.Parallel()
				phase := provider.PhaseHeaders
				if n > 0 {
					phase = provider.PhaseFirstToken
				}
				phases, read := until(phase)
				r := d.rig(t, func(c *Conn) {
					c.Read()
					c.head(true)
					if n > 0 { // in one piece, so that all of it is read when its first token is
						c.Chunk(bytes.Join(parts[:n], nil))
					}
					switch way {
					case "closed":
						_ = c.Close()
					case "ended":
						c.Send(endChunked)
					default:
						c.Chunk([]byte("data: {\"cho"))
						<-read // a reset overtakes what the client has not read
						c.Reset()
					}
				})
				req := d.request(true)
				req.OnPhase = phases.add
				f := r.fail(req, provider.Unknown, provider.CodeStreamCut, 1)
				want := strings.Join([]string{"one ", "two"}[:n], "")
				got, tokens := "", int64(0)
				if f.Partial != nil {
					got, tokens = f.Partial.Text, f.Partial.Usage.OutputTokens
				}
				if got != want || (n > 0) != (tokens > 0) || (n > 0) != (f.Billed == provider.BilledYes) {
					t.Errorf("partial %q with %d tokens, billed %s, want %q", got, tokens, f.Billed, want)
				}
			})
		}
	}
	for _, way := range []string{"held", "closed"} {
		t.Run(way+" after the end", func(t *testing.T) {
			t.Parallel()
			r := d.rig(t, func(c *Conn) {
				c.Read()
				c.head(true)
				for _, p := range append(parts, d.Terminal) {
					c.Chunk(p)
				}
				if way == "held" {
					c.Hold()
				}
				_ = c.Close()
			})
			resp, err := r.p.Call(t.Context(), d.request(true))
			if err != nil || resp.Text != "one two" {
				t.Errorf("got %+v, %v, want success", resp, err)
			}
		})
	}
}
