package providertest

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/onefold-dev/onefold/internal/provider"
	"github.com/onefold-dev/onefold/internal/provider/wire"
)

// rig is a provider that talks to a scripted server.
type rig struct {
	t *testing.T
	d Dialect
	s *Server
	p provider.Provider
}

func (d Dialect) rig(t *testing.T, script func(*Conn)) rig {
	t.Helper()
	return d.rigWith(t, nil, script)
}

func (d Dialect) rigWith(t *testing.T, o *wire.Opts, script func(*Conn)) rig {
	t.Helper()
	s := Serve(t, nil, script)
	return rig{t: t, d: d, s: s, p: d.make(t, "http://"+s.Addr()+"/v1", o)}
}

func (d Dialect) make(t *testing.T, url string, o *wire.Opts) provider.Provider {
	t.Helper()
	p, err := d.New(url, func() string { return Key }, o)
	if err != nil {
		t.Fatal(err)
	}
	if c, ok := p.(interface{ Close() }); ok {
		t.Cleanup(c.Close)
	}
	return p
}

// request is a request with time limits that only a fault would reach.
func (d Dialect) request(stream bool) provider.Request {
	return provider.Request{
		TaskID: "0199aaaa-0000-7000-8000-000000000001", Key: "order-7", Tenant: "t1", Kind: "k", Attempt: 1, Run: 1,
		BudgetRemaining: 2, Body: d.Body("the secret plan of the prompt"), Stream: stream,
		Timeouts: provider.Timeouts{Connect: patience, FirstByte: patience, Idle: patience, Total: patience},
	}
}

// fail calls and wants a failure of a class and code after so many sends.
func (r rig) fail(req provider.Request, class provider.Class, code string, sends int64) *provider.Error {
	r.t.Helper()
	resp, err := r.p.Call(r.t.Context(), req)
	f := mustFail(r.t, resp, err)
	if f.Class != class || f.Code != code {
		r.t.Errorf("got %s %s (%s), want %s %s", f.Class, f.Code, f.Message, class, code)
	}
	if n := r.s.Requests.Load(); n != sends {
		r.t.Errorf("%d sends, want %d", n, sends)
	}
	if class == provider.NotSent && (f.Sent() || f.Billed != provider.BilledNo) {
		r.t.Errorf("not_sent in phase %q, billed %s", f.Phase, f.Billed)
	}
	return f
}

const (
	head200    = "HTTP/1.1 200 OK\r\nContent-Type: %s\r\nTransfer-Encoding: chunked\r\nX-Request-Id: req-9\r\n\r\n"
	endChunked = "0\r\n\r\n"
)

func (c *Conn) head(stream bool) {
	kind := "application/json"
	if stream {
		kind = "text/event-stream"
	}
	c.Send(fmt.Sprintf(head200, kind))
}

// answer plays a good reply to each request of a connection.
func (d Dialect) answer(stream bool) func(*Conn) {
	return func(c *Conn) {
		for c.Read() {
			d.reply(c, stream)
		}
	}
}

func (d Dialect) reply(c *Conn, stream bool) {
	c.head(stream)
	if stream {
		for _, part := range d.Tokens("one ", "two") {
			c.Chunk(part)
		}
		c.Chunk(d.Terminal)
	} else {
		c.Chunk(d.Whole("one two"))
	}
	c.Send(endChunked)
}

// Wire breaks a call in each of its phases.
func Wire(t *testing.T, d Dialect) {
	t.Helper()
	modes := []bool{false}
	if d.Tokens != nil {
		modes = append(modes, true)
	}
	for _, stream := range modes {
		t.Run(map[bool]string{true: "streamed", false: "whole"}[stream], func(t *testing.T) {
			t.Parallel()
			t.Run("contract", func(t *testing.T) {
				t.Parallel()
				Contract(t, d.rig(t, d.answer(stream)).p, d.request(stream))
			})
			for name, f := range map[string]func(*testing.T, Dialect, bool){
				"good reply": goodReply, "before the send": beforeSend, "while writing": whileWriting,
				"after the send": afterSend, "bodies": bodies, "timeouts": timeouts, "ended by the caller": endedByCaller,
				"one send": oneSend, "statuses": statuses, "secrets": secrets, "bounds": bounds,
			} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					f(t, d, stream)
				})
			}
		})
	}
	if d.Tokens != nil {
		t.Run("cut streams", func(t *testing.T) {
			t.Parallel()
			cutStreams(t, d)
		})
	}
}

func goodReply(t *testing.T, d Dialect, stream bool) {
	r := d.rig(t, d.answer(stream))
	for range 2 { // the second over the same connection
		resp, err := r.p.Call(t.Context(), d.request(stream))
		if err != nil {
			t.Fatal(err)
		}
		checkReply(t, resp)
		if resp.Text != "one two" || resp.RequestID != "req-9" || resp.Bytes == 0 {
			t.Errorf("text %q, request id %q, %d bytes", resp.Text, resp.RequestID, resp.Bytes)
		}
	}
	if n, c := r.s.Requests.Load(), r.s.Conns.Load(); n != 2 || c != 1 {
		t.Errorf("%d sends over %d connections, want 2 over 1", n, c)
	}
}

func beforeSend(t *testing.T, d Dialect, stream bool) {
	t.Run("connection refused", func(t *testing.T) {
		t.Parallel()
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addr := l.Addr().String()
		_ = l.Close()
		r := rig{t, d, &Server{}, d.make(t, "http://"+addr, nil)}
		r.fail(d.request(stream), provider.NotSent, provider.CodeRefusedConn, 0)
	})
	t.Run("name not found", func(t *testing.T) {
		t.Parallel()
		r := rig{t, d, &Server{}, d.make(t, "http://no-such-host.invalid/v1", &wire.Opts{Dial: dialerWithoutNames(t)})}
		f := r.fail(d.request(stream), provider.NotSent, provider.CodeResolveFailed, 0)
		if f.Phase != provider.PhaseResolving {
			t.Errorf("phase %q, want resolving", f.Phase)
		}
	})
	t.Run("TLS stalls", func(t *testing.T) {
		t.Parallel()
		s := Serve(t, nil, (*Conn).Hold)
		r := rig{t, d, s, d.make(t, "https://"+s.Addr(), nil)}
		req := d.request(stream)
		req.Timeouts.Connect = 100 * time.Millisecond
		f := r.fail(req, provider.NotSent, provider.CodeConnectTimeout, 0)
		if f.Phase != provider.PhaseTLS {
			t.Errorf("phase %q, want tls", f.Phase)
		}
	})
	t.Run("TLS is cut", func(t *testing.T) {
		t.Parallel()
		s := Serve(t, nil, func(c *Conn) {
			_, _ = c.r.Peek(1)
			c.Reset()
		})
		r := rig{t, d, s, d.make(t, "https://"+s.Addr(), nil)}
		r.fail(d.request(stream), provider.NotSent, provider.CodeTLSFailed, 0)
	})
	t.Run("certificate not known", func(t *testing.T) {
		t.Parallel()
		s := Serve(t, certificate(t), d.answer(stream))
		r := rig{t, d, s, d.make(t, "https://"+s.Addr(), nil)}
		r.fail(d.request(stream), provider.NotSent, provider.CodeTLSFailed, 0)
	})
}

// big is a request that does not fit into the buffers of a socket.
func (d Dialect) big(stream bool) provider.Request {
	req := d.request(stream)
	req.Body = d.Body(strings.Repeat("x", 16<<20))
	return req
}

// whileWriting: the server takes a part of the request.
func whileWriting(t *testing.T, d Dialect, stream bool) {
	t.Run("reset", func(t *testing.T) {
		t.Parallel()
		r := d.rig(t, func(c *Conn) {
			_, _ = c.r.Peek(1024)
			c.Reset()
		})
		r.fail(d.big(stream), provider.NotSent, provider.CodeWriteFailed, 0)
	})
	t.Run("stalled", func(t *testing.T) {
		t.Parallel()
		gone := make(chan struct{})
		r := d.rig(t, func(c *Conn) {
			_, _ = c.r.Peek(1024)
			<-gone
		})
		defer close(gone)
		req := d.big(stream)
		req.Timeouts.FirstByte = 200 * time.Millisecond
		r.fail(req, provider.NotSent, provider.CodeWriteTimeout, 0)
	})
}

// afterSend: the request was read to its end, no reply came.
func afterSend(t *testing.T, d Dialect, stream bool) {
	for name, end := range map[string]func(*Conn){
		"closed": func(c *Conn) { _ = c.Close() },
		"reset":  (*Conn).Reset,
		"no HTTP": func(c *Conn) {
			c.Send("hello there\r\n\r\n")
		},
		"half a header": func(c *Conn) { c.Send("HTTP/1.1 200 OK\r\nContent-Ty") },
		"a long header": func(c *Conn) { c.Send("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 1<<20) + "\r\n\r\n") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := d.rig(t, func(c *Conn) {
				c.Read()
				end(c)
			})
			f := r.fail(d.request(stream), provider.Unknown, provider.CodeConnectionLost, 1)
			if f.Billed != provider.BilledUnknown || f.Partial != nil || !f.Sent() {
				t.Errorf("billed %s, partial %v, phase %q", f.Billed, f.Partial, f.Phase)
			}
		})
	}
}
