// Package wire makes one HTTP request to a provider and says how far it came.
//
// Providers build on it so that the classes of network failures, the layers of timeouts and the limits are decided
// once. It never repeats a request, follows no redirect, and keeps its hands off what the bytes mean.
package wire

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/url"
	"time"
)

// Limits of one exchange.
const (
	// MaxReply is the largest reply that is kept, in bytes. It is the largest result a task may have.
	MaxReply = 64 << 20
	// maxStream bounds the bytes of a streamed reply on the wire: a token of 4 bytes travels in 200–300 bytes of
	// JSON, so a stream is larger than the reply put together from it.
	maxStream = 16 * MaxReply
	// maxErrorBody is how much is read of a reply whose status is not 2xx.
	maxErrorBody = 64 << 10
	// errorBodyWait bounds the wait for the body of such a reply: the status alone is enough.
	errorBodyWait = 5 * time.Second
	// tailWait bounds the wait for what follows a terminal signal (usage, [DONE]).
	tailWait = 10 * time.Second
	// drainWait bounds the wait for the end of a stream after its last event, so that the connection can be reused.
	drainWait = 100 * time.Millisecond
	// dialLimit ends a dial or handshake that its call no longer waits for.
	dialLimit = 30 * time.Second
	// idleConn is how long an unused connection is kept: less than the 60 s after which common load balancers drop
	// theirs, because a request written to a connection just dropped has an unknown outcome.
	idleConn = 30 * time.Second
	// maxHeaders bounds the reply's headers.
	maxHeaders = 64 << 10
)

// Opts tunes a Client. The zero value works.
type Opts struct {
	// TLS is the client's TLS configuration; nil means the system's roots.
	TLS *tls.Config
	// Proxy chooses a proxy for a request, as in http.Transport; nil means none.
	Proxy func(*http.Request) (*url.URL, error)
	// Dial replaces the dialer, for tests; DialContext does, and goes before it, for guards.
	Dial        *net.Dialer
	DialContext func(ctx context.Context, network, address string) (net.Conn, error)
	// MaxReply bounds a reply; 0 means MaxReply.
	MaxReply int64
}

// Client holds the connections to one provider. It is safe for use by many goroutines.
type Client struct {
	transport *http.Transport
	maxReply  int64
}

// NewClient makes a Client. The number of connections is not limited here: gates limit concurrency.
func NewClient(o *Opts) *Client {
	if o == nil {
		o = &Opts{}
	}
	dialer := o.Dial
	if dialer == nil {
		dialer = &net.Dialer{Timeout: dialLimit, KeepAlive: 15 * time.Second}
	}
	dial := o.DialContext
	if dial == nil {
		dial = dialer.DialContext
	}
	c := &Client{maxReply: o.MaxReply, transport: &http.Transport{
		Proxy:                  o.Proxy,
		DialContext:            dial,
		TLSClientConfig:        o.TLS.Clone(),
		TLSHandshakeTimeout:    dialLimit,
		ForceAttemptHTTP2:      true,
		MaxIdleConnsPerHost:    512,
		IdleConnTimeout:        idleConn,
		MaxResponseHeaderBytes: maxHeaders,
		// Compressed replies are taken when a provider insists, and bounded; they are not asked for.
		DisableCompression: true,
		// A dead HTTP/2 connection carries many calls; pings find it.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
	}}
	if c.maxReply <= 0 {
		c.maxReply = MaxReply
	}
	return c
}

// Close drops the idle connections.
func (c *Client) Close() { c.transport.CloseIdleConnections() }
