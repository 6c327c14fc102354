package providertest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/onefold-dev/onefold/internal/provider"
)

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
