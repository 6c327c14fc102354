package providertest

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
)

// Server answers on real sockets as a script says, byte for byte. It keeps no order that net/http would impose.
type Server struct {
	t        *testing.T
	listener net.Listener
	script   func(*Conn)
	done     chan struct{}
	wait     sync.WaitGroup

	// Conns counts the connections taken, Requests those requests that were read to their end.
	Conns    atomic.Int64
	Requests atomic.Int64
}

// Conn is one connection of a Server, in the hands of its script.
type Conn struct {
	net.Conn
	s    *Server
	raw  net.Conn // below TLS
	r    *bufio.Reader
	Head *http.Request // of the last request read
	Body []byte
}

// Serve starts a Server whose every connection is played by script; it ends with the test. With tlsConfig, connections
// speak TLS.
func Serve(t *testing.T, tlsConfig *tls.Config, script func(*Conn)) *Server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{t: t, listener: l, script: script, done: make(chan struct{})}
	s.wait.Go(func() { s.accept(tlsConfig) })
	t.Cleanup(func() {
		close(s.done)
		_ = l.Close()
		s.wait.Wait()
	})
	return s
}

func (s *Server) accept(tlsConfig *tls.Config) {
	for {
		raw, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.Conns.Add(1)
		c := &Conn{Conn: raw, raw: raw, s: s}
		if tlsConfig != nil {
			c.Conn = tls.Server(raw, tlsConfig)
		}
		c.r = bufio.NewReader(c.Conn)
		stop := make(chan struct{})
		s.wait.Go(func() { // ends reads that the script is in when the test is over
			select {
			case <-s.done:
			case <-stop:
			}
			_ = raw.Close()
		})
		s.wait.Go(func() {
			defer close(stop)
			s.script(c)
		})
	}
}

// Addr is the server's host and port.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Read reads one request to its end and says whether there was one.
func (c *Conn) Read() bool {
	req, err := http.ReadRequest(c.r)
	if err != nil {
		return false
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return false
	}
	c.Head, c.Body = req, body
	c.s.Requests.Add(1)
	return true
}

// Send writes bytes as they are.
func (c *Conn) Send(parts ...string) {
	for _, p := range parts {
		if _, err := io.WriteString(c.Conn, p); err != nil {
			return // the client has gone: some scripts expect it
		}
	}
}

// Chunk writes one chunk of a chunked body.
func (c *Conn) Chunk(b []byte) {
	c.Send(fmt.Sprintf("%x\r\n%s\r\n", len(b), b))
}

// Hold waits until the client closes the connection or the test ends.
func (c *Conn) Hold() { _, _ = io.Copy(io.Discard, c.r) }

// Reset closes the connection with a reset.
func (c *Conn) Reset() {
	if tcp, ok := c.raw.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.raw.Close()
}
