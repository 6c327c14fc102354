package proxytest

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5/pgproto3"
)

// conn is one client with its connection to the server. Frames go through as
// they are; those that name statements are read on the way.
type conn struct {
	p      *Proxy
	client net.Conn
	server net.Conn
	done   chan struct{} // closed once either side is cut
	once   sync.Once

	mu       sync.Mutex
	prepared map[string]string // by name
	ever     []string          // statements run so far
	tx       []string          // those since the last COMMIT or ROLLBACK
	fault    *Fault            // the COMMIT whose answer is awaited
	hole     bool              // nothing goes through any more
}

func newConn(p *Proxy, client, server net.Conn) *conn {
	return &conn{p: p, client: client, server: server, done: make(chan struct{}), prepared: map[string]string{}}
}

// cut resets both sides.
func (c *conn) cut() {
	c.once.Do(func() { close(c.done) })
	reset(c.client)
	reset(c.server)
}

func (c *conn) run() {
	defer c.cut()
	if !c.startup() {
		return
	}
	var both sync.WaitGroup
	both.Go(c.requests)
	both.Go(c.answers)
	both.Wait()
}

// startup forwards the first message, which has no type. Encryption is refused.
// A request to cancel what another connection does is swallowed: pgx sends one
// when it loses a connection, and it would decide at random whether the commit
// in flight there stands.
func (c *conn) startup() bool {
	for {
		var head [8]byte
		if _, err := io.ReadFull(c.client, head[:]); err != nil {
			return false
		}
		size, code := binary.BigEndian.Uint32(head[:4]), binary.BigEndian.Uint32(head[4:])
		if code == sslRequest || code == gssRequest {
			if _, err := c.client.Write([]byte("N")); err != nil {
				return false
			}
			continue
		}
		if code == cancelRequest || size < 8 || size > 1<<16 {
			return false
		}
		rest := make([]byte, size-8)
		if _, err := io.ReadFull(c.client, rest); err != nil {
			return false
		}
		_, err := c.server.Write(append(head[:], rest...))
		return err == nil
	}
}

// The codes of first messages that start no session.
const (
	cancelRequest = 80877102
	sslRequest    = 80877103
	gssRequest    = 80877104
)

// frame reads one message as it is on the wire: type, length, body.
func frame(r *bufio.Reader) ([]byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(head[1:])
	if size < 4 {
		return nil, io.ErrUnexpectedEOF
	}
	out := make([]byte, 1+size)
	copy(out, head[:])
	_, err := io.ReadFull(r, out[5:])
	return out, err
}

// requests forwards what the client says, until either side is gone.
func (c *conn) requests() {
	r, w := bufio.NewReader(c.client), bufio.NewWriter(c.server)
	for {
		m, err := frame(r)
		if err != nil {
			c.mu.Lock()
			cut := c.fault != nil && c.fault.fate == CutDuring
			c.mu.Unlock()
			if !cut { // else the server finishes first
				c.cut()
			}
			return
		}
		if !c.open() || !c.request(m) {
			return
		}
		if _, err := w.Write(m); err != nil {
			c.cut()
			return
		}
		if r.Buffered() == 0 {
			if err := w.Flush(); err != nil {
				c.cut()
				return
			}
		}
		c.sent()
	}
}

// open waits while the proxy is frozen; it is false once the connection is cut,
// and never returns before that where the connection is a black hole.
func (c *conn) open() bool {
	c.mu.Lock()
	hole := c.hole
	c.mu.Unlock()
	if hole {
		<-c.done
		return false
	}
	select {
	case <-c.p.flowing():
		return true
	case <-c.done:
		return false
	}
}

// request looks at one message; it is false where the message stops here.
func (c *conn) request(m []byte) bool {
	text := c.statement(m)
	if text == "" {
		return true
	}
	if !isCommit(text) {
		c.note(text)
		c.judge(c.p.silences())
		c.p.hold(text, c.done)
		return c.open()
	}
	c.mu.Lock()
	tx := c.tx
	c.tx = nil
	c.mu.Unlock()
	f := c.p.take(tx)
	if f == nil {
		return true
	}
	switch f.fate {
	case CutBefore:
		f.strike(c.cut)
		return false
	case Stall:
		f.strike(func() {})
		<-c.done
		return false
	}
	c.mu.Lock()
	c.fault = f
	c.mu.Unlock()
	return true
}

// sent does what follows once a message is on its way to the server.
func (c *conn) sent() {
	c.mu.Lock()
	f := c.fault
	c.mu.Unlock()
	if f != nil && f.fate == CutDuring {
		f.strike(func() { reset(c.client) })
	}
}

func isCommit(text string) bool {
	return strings.EqualFold(strings.TrimRight(strings.TrimSpace(text), ";"), "commit")
}

// statement is the text that a message makes the server run, "" if none.
func (c *conn) statement(m []byte) string {
	body := m[5:]
	switch m[0] {
	case 'Q':
		var q pgproto3.Query
		if q.Decode(body) == nil {
			return q.String
		}
	case 'P':
		var p pgproto3.Parse
		if p.Decode(body) == nil {
			c.mu.Lock()
			c.prepared[p.Name] = p.Query
			c.mu.Unlock()
		}
	case 'B':
		var b pgproto3.Bind
		if b.Decode(body) == nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.prepared[b.PreparedStatement]
		}
	}
	return ""
}

func (c *conn) note(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tx = append(c.tx, text)
	if !ran(c.ever, text) {
		c.ever = append(c.ever, text)
	}
	if strings.EqualFold(strings.TrimSpace(text), "rollback") {
		c.tx = nil
	}
}

func (c *conn) everything() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.ever...)
}

// judge makes the connection a black hole if it has run what is to be silent.
func (c *conn) judge(silent []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range silent {
		c.hole = c.hole || ran(c.ever, s)
	}
}

// answers forwards what the server says, but for the answer that is dropped.
func (c *conn) answers() {
	defer c.cut()
	r, w := bufio.NewReader(c.server), bufio.NewWriter(c.client)
	for {
		m, err := frame(r)
		if err != nil {
			return
		}
		c.mu.Lock()
		f := c.fault
		c.mu.Unlock()
		if f != nil {
			if m[0] != 'Z' { // ready for query: the answer is whole
				continue
			}
			if f.fate == DropReply {
				f.strike(c.cut)
			}
			close(f.landed)
			return
		}
		if !c.open() {
			return
		}
		if _, err := w.Write(m); err != nil {
			return
		}
		if r.Buffered() == 0 {
			if err := w.Flush(); err != nil {
				return
			}
		}
	}
}
