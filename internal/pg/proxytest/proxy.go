// Package proxytest decides what a Postgres client meets on its way to the
// server: a TCP proxy that reads the protocol and cuts, drops, holds or refuses
// where a test says so, above all around a COMMIT.
package proxytest

import (
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// Fate is what becomes of a COMMIT on its way.
type Fate int

const (
	// CutBefore cuts the connection; the COMMIT never reaches the server.
	CutBefore Fate = iota + 1
	// DropReply lets the server commit and loses its answer with the connection.
	DropReply
	// CutDuring cuts the client off once the COMMIT is on its way to the server,
	// which may still be committing for as long as it takes.
	CutDuring
	// Stall swallows the COMMIT and never answers; the connection stays.
	Stall
)

// Proxy stands between clients and one server. Its zero fate is to forward.
type Proxy struct {
	url       string
	network   string // of the server
	addr      string
	listening net.Listener
	all       sync.WaitGroup

	mu     sync.Mutex
	closed bool
	refuse bool
	thawed chan struct{} // closed while traffic flows
	silent []string
	faults []*Fault
	holds  []*Hold
	conns  map[*conn]bool
}

// New starts a proxy to the server of a connection URL; it ends with t.
func New(t testing.TB, target string) *Proxy {
	t.Helper()
	cfg, err := pgconn.ParseConfig(target)
	if err != nil {
		t.Fatalf("read the server's URL: %v", err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen for Postgres clients: %v", err)
	}
	p := &Proxy{listening: ln, conns: map[*conn]bool{}, thawed: make(chan struct{})}
	close(p.thawed)
	p.network, p.addr = pgconn.NetworkAddress(cfg.Host, cfg.Port)
	if p.url, err = through(target, ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	p.all.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// through is the URL of the same database by way of addr.
func through(target, addr string) (string, error) {
	u, err := url.Parse(target)
	if err != nil {
		return "", err
	}
	u.Host = addr
	q := u.Query()
	q.Del("host")
	q.Del("port")
	q.Set("sslmode", "disable")
	u.RawQuery = q.Encode()
	return u.String(), nil
}

// URL is the target's, by way of the proxy.
func (p *Proxy) URL() string { return p.url }

// Fault is one COMMIT that is to go wrong.
type Fault struct {
	match  string
	nth    int
	fate   Fate
	hit    chan struct{}
	landed chan struct{}
	before []func()
}

func (f *Fault) strike(cut func()) {
	for _, do := range f.before {
		do()
	}
	cut()
	close(f.hit)
}

// Hit is closed once the COMMIT has met its fate: the client has lost the
// connection, or waits for ever.
func (f *Fault) Hit() <-chan struct{} { return f.hit }

// Landed is closed once the server has answered the COMMIT, with success or not.
func (f *Fault) Landed() <-chan struct{} { return f.landed }

// AtCommit arms a fault for the nth COMMIT from now on, counted from 1, of the
// transactions that ran a statement with match in its text. What is given as
// before is done at the last moment before the client loses the connection, so
// that a test is there before whatever the client does next.
func (p *Proxy) AtCommit(match string, nth int, fate Fate, before ...func()) *Fault {
	f := &Fault{match: match, nth: nth, fate: fate, before: before, hit: make(chan struct{}), landed: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, f)
	return f
}

// take is the fault of a COMMIT whose transaction ran these statements.
func (p *Proxy) take(statements []string) *Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, f := range p.faults {
		if !ran(statements, f.match) {
			continue
		}
		if f.nth--; f.nth == 0 {
			p.faults = append(p.faults[:i:i], p.faults[i+1:]...)
			return f
		}
	}
	return nil
}

// Hold is one statement that is to wait on its way.
type Hold struct {
	match    string
	reached  chan struct{}
	released chan struct{}
}

// Reached is closed once the statement has come and waits.
func (h *Hold) Reached() <-chan struct{} { return h.reached }

// Release lets it go on, or keeps it from waiting at all.
func (h *Hold) Release() { close(h.released) }

// HoldAt makes the next statement with match in its text wait on its way to the
// server, with all that its connection sends after it.
func (p *Proxy) HoldAt(match string) *Hold {
	h := &Hold{match: match, reached: make(chan struct{}), released: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holds = append(p.holds, h)
	return h
}

// hold waits where a statement is to be held.
func (p *Proxy) hold(statement string, cut <-chan struct{}) {
	p.mu.Lock()
	i := slices.IndexFunc(p.holds, func(h *Hold) bool { return strings.Contains(statement, h.match) })
	if i < 0 {
		p.mu.Unlock()
		return
	}
	h := p.holds[i]
	p.holds = slices.Delete(p.holds, i, i+1)
	p.mu.Unlock()
	close(h.reached)
	select {
	case <-h.released:
	case <-cut:
	}
}

func ran(statements []string, match string) bool {
	for _, s := range statements {
		if strings.Contains(s, match) {
			return true
		}
	}
	return false
}

// Refuse resets new connections, or takes them again.
func (p *Proxy) Refuse(refuse bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = refuse
}

// Cut resets every connection there is.
func (p *Proxy) Cut() {
	p.mu.Lock()
	conns := make([]*conn, 0, len(p.conns))
	for c := range p.conns {
		conns = append(conns, c)
	}
	p.mu.Unlock()
	for _, c := range conns {
		c.cut()
	}
}

// Freeze holds all traffic, of connections to come as well, until Thaw.
func (p *Proxy) Freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.thawed = make(chan struct{})
}

// Thaw lets go what Freeze held.
func (p *Proxy) Thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.thawed:
	default:
		close(p.thawed)
	}
}

// Silence makes a black hole of each connection, present and to come, once it
// has run a statement with match in its text: nothing goes through any more, in
// either direction, and it stays open.
func (p *Proxy) Silence(match string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = append(p.silent, match)
	for c := range p.conns {
		c.judge(p.silent)
	}
}

// Clients is the number of connections that have run a statement with match in
// its text.
func (p *Proxy) Clients(match string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for c := range p.conns {
		if ran(c.everything(), match) {
			n++
		}
	}
	return n
}

func (p *Proxy) accept() {
	for {
		client, err := p.listening.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		refuse, closed := p.refuse, p.closed
		p.mu.Unlock()
		if refuse || closed {
			reset(client)
			continue
		}
		p.all.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	server, err := net.Dial(p.network, p.addr)
	if err != nil {
		reset(client)
		return
	}
	c := newConn(p, client, server)
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		c.cut()
		return
	}
	p.conns[c] = true
	p.mu.Unlock()
	c.run()
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
}

func (p *Proxy) flowing() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.thawed
}

func (p *Proxy) silences() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.silent
}

func (p *Proxy) close() {
	_ = p.listening.Close()
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.Thaw()
	p.Cut()
	p.all.Wait()
}

// reset closes a connection so that the other side sees it break.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}
