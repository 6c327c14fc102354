package providertest

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/onefold-dev/onefold/internal/provider"
	"github.com/onefold-dev/onefold/internal/provider/wire"
)

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
