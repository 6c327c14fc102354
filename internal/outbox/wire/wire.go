// Package wire decides what is known after one HTTP exchange with a receiver, for every effect type that speaks HTTP.
//
// It tells apart what cannot have arrived from what may have. Redirects are not followed, no proxy is used, nothing is
// sent a second time by itself, nothing is unpacked, and addresses inside the own network are refused unless the
// destination allows them.
package wire

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/egress"
	"github.com/onefold-dev/onefold/internal/outbox"
)

// Limits of one delivery; its whole time is bounded by the outbox.
const (
	tlsLimit = 5 * time.Second
	// bodyWait is how long an answer's body is read: the status is what counts.
	bodyWait = 3 * time.Second
	// maxHeaders bounds the answer's headers, in bytes.
	maxHeaders = 64 << 10
	// idleConn is how long an unused connection is kept, well below what common servers allow.
	idleConn = 10 * time.Second
)

// TrafficHeader tells a receiver what is calling, from which region, at which try of how many.
const TrafficHeader = "Onefold-Traffic"

// Opts tunes a Client. The zero value works.
type Opts struct {
	// UserAgent names this program to receivers. Default "onefold".
	UserAgent string
	// TLS is the client's configuration. Nil means the system's roots. Certificates are always verified.
	TLS *tls.Config
	// Resolver looks names up. Nil means the system's.
	Resolver *net.Resolver
}

// Client makes exchanges. It is safe for use by many goroutines.
type Client struct {
	userAgent  string
	transports map[mode]*http.Transport
}

// mode is what a destination asks of a connection. One whose receiver must not get anything twice gets a fresh
// connection each time: on a kept one, a request and the receiver's close can cross, and then nobody knows whether it
// arrived.
type mode struct{ private, fresh bool }

// New makes a Client.
func New(o *Opts) *Client {
	if o == nil {
		o = &Opts{}
	}
	c := &Client{userAgent: o.UserAgent, transports: map[mode]*http.Transport{}}
	if c.userAgent == "" {
		c.userAgent = "onefold"
	}
	for _, m := range []mode{{false, false}, {false, true}, {true, false}, {true, true}} {
		c.transports[m] = &http.Transport{
			Proxy:                  nil, // through a proxy the guard would see the proxy's address only
			DialContext:            egress.New(m.private, o.Resolver).Dial,
			TLSClientConfig:        o.TLS.Clone(),
			TLSHandshakeTimeout:    tlsLimit,
			DisableKeepAlives:      m.fresh,
			DisableCompression:     true,
			MaxIdleConnsPerHost:    32,
			IdleConnTimeout:        idleConn,
			MaxResponseHeaderBytes: maxHeaders,
		}
	}
	return c
}

// Close drops the idle connections.
func (c *Client) Close() {
	for _, t := range c.transports {
		t.CloseIdleConnections()
	}
}

// Exchange sends d with method and what set adds to its headers, and says what is known afterwards. set runs last, so
// that nothing a template gave stands in place of what the type itself says.
func (c *Client) Exchange(ctx context.Context, method string, d outbox.Delivery, set func(h http.Header)) outbox.Outcome {
	u, err := Address(d)
	if err != nil {
		return outbox.Outcome{Class: outbox.Blocked, Code: outbox.CodeBadURL, Message: err.Error()}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var p progress
	req := c.request(httptrace.WithClientTrace(ctx, p.trace()), method, u, d, set)
	// The transport is used by itself: it follows no redirect, and what it might repeat it cannot, for the body can be
	// read only once. A request without a body it would repeat, on a kept connection that breaks, where the method or an
	// idempotency key says that this is safe.
	resp, err := c.transports[mode{d.AllowPrivate, !d.Safe || len(d.Body) == 0}].RoundTrip(req)
	if err != nil {
		return p.failure(err)
	}
	defer resp.Body.Close() //nolint:errcheck // read as far as wanted
	stop := time.AfterFunc(bodyWait, cancel)
	defer stop.Stop()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, outbox.MaxAnswer))
	if !d.Check {
		body = body[:min(len(body), outbox.MaxReply)]
	}
	return outbox.Outcome{
		Class: outbox.Answered, Status: resp.StatusCode, RetryAfter: outbox.RetryAfter(resp.Header, time.Now()), Reply: body,
	}
}

func (c *Client) request(ctx context.Context, method string, u *url.URL, d outbox.Delivery, set func(h http.Header)) *http.Request {
	h := http.Header{}
	if len(d.Body) > 0 {
		h.Set("Content-Type", "application/json")
	}
	for name, value := range d.Headers {
		h.Set(name, value)
	}
	h.Set("User-Agent", c.userAgent)
	if d.Traffic != "" {
		h.Set(TrafficHeader, d.Traffic)
	}
	if d.CredentialHeader != "" && !d.Credential.Empty() {
		h.Set(d.CredentialHeader, d.Credential.Reveal())
	}
	set(h)
	req := &http.Request{
		Method: method, URL: u, Host: u.Host, Header: h, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body: io.NopCloser(bytes.NewReader(d.Body)), ContentLength: int64(len(d.Body)),
	}
	if len(d.Body) == 0 {
		req.Body = http.NoBody
	}
	return req.WithContext(ctx)
}

var (
	errURL  = errors.New("the destination's address is not an http or https URL")
	errPath = errors.New("the path does not fit the destination's address")
)

// Address is where d goes: the destination's URL, and its path below that.
func Address(d outbox.Delivery) (*url.URL, error) {
	u, err := url.Parse(d.URL.Reveal())
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return nil, errURL
	}
	if d.Path == "" {
		return u, nil
	}
	ref, err := url.Parse(strings.TrimRight(u.EscapedPath(), "/") + "/" + strings.TrimLeft(d.Path, "/"))
	if err != nil || ref.Host != "" || ref.Scheme != "" || ref.Fragment != "" {
		return nil, errPath
	}
	for part := range strings.SplitSeq(ref.Path, "/") {
		if part == ".." || part == "." {
			return nil, errPath // out of the part of the receiver that the destination stands for
		}
	}
	query := u.RawQuery
	if query != "" && ref.RawQuery != "" {
		query += "&"
	}
	u.Path, u.RawPath, u.RawQuery = ref.Path, ref.RawPath, query+ref.RawQuery
	return u, nil
}

// progress is how far a request came. The hooks run in goroutines of the transport.
type progress struct {
	connected atomic.Bool // a connection was there, so bytes may have left
	broken    atomic.Bool // writing failed before the last byte
	tls       atomic.Bool // the handshake began
}

func (p *progress) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		TLSHandshakeStart: func() { p.tls.Store(true) },
		GotConn:           func(httptrace.GotConnInfo) { p.connected.Store(true) },
		WroteRequest: func(i httptrace.WroteRequestInfo) {
			if i.Err != nil {
				p.broken.Store(true)
			}
		},
	}
}

// failure classes an error. In doubt it may have arrived.
func (p *progress) failure(err error) outbox.Outcome {
	if !p.connected.Load() {
		return NotConnected(err, p.tls.Load())
	}
	if p.broken.Load() {
		return outbox.Outcome{Class: outbox.NotSent, Code: outbox.CodeWrite, Message: "the connection broke before the whole request was written"}
	}
	out := outbox.Outcome{Class: outbox.Unclear, Code: string(api.CodeConnection), Message: "sent, but the connection broke before an answer came"}
	if Timeout(err) {
		out.Code, out.Message = string(api.CodeTimeout), "sent, but no answer came in time"
	}
	return out
}

// NotConnected classes an error of resolving, dialling or the TLS handshake.
func NotConnected(err error, handshake bool) outbox.Outcome {
	if b, ok := egress.IsBlocked(err); ok {
		return outbox.Outcome{Class: outbox.Blocked, Code: outbox.CodeBlocked, Message: b.Error()}
	}
	out := outbox.Outcome{Class: outbox.NotSent, Code: outbox.CodeConnect, Message: "the receiver could not be reached"}
	var dns *net.DNSError
	var errno syscall.Errno
	switch {
	case errors.As(err, &dns):
		out.Code, out.Message = outbox.CodeResolve, "the receiver's name could not be resolved"
	case handshake:
		out.Code, out.Message = outbox.CodeTLS, "no secure connection could be made with the receiver"
		var certificate *tls.CertificateVerificationError
		if errors.As(err, &certificate) {
			out.Message += ": its certificate is not valid"
		}
	case errors.As(err, &errno):
		out.Message += ": " + errno.Error()
	case Timeout(err):
		out.Message += " in time"
	}
	return out
}

// Timeout says whether err means that time ran out.
func Timeout(err error) bool {
	var n net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &n) && n.Timeout()
}
