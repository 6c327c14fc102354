// Package webhook decides how an effect travels as a Standard Webhook: one signed POST of exactly the stored bytes.
//
// It tells apart what cannot have arrived from what may have. Redirects are not followed, no proxy is used, nothing is
// sent a second time by itself, and addresses inside the own network are refused unless the destination allows them.
package webhook

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
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/outbox"
)

// Limits of one delivery; its whole time is bounded by the outbox.
const (
	dialLimit = 5 * time.Second // resolve and dial
	tlsLimit  = 5 * time.Second
	// maxRead is how much of an answer is read, in bytes, and bodyWait for how long: the status is what counts.
	maxRead  = 16 << 10
	bodyWait = 3 * time.Second
	// maxHeaders bounds the answer's headers, in bytes.
	maxHeaders = 64 << 10
	// idleConn is how long an unused connection is kept, well below what common servers allow.
	idleConn = 10 * time.Second
)

// The codes of tries that brought no answer, besides those of packages api and outbox.
const (
	CodeResolve   = "resolve_failed"
	CodeConnect   = "connect_failed"
	CodeTLS       = "tls_failed"
	CodeWrite     = "write_failed"
	CodeBadURL    = "invalid_url"
	CodeBadSecret = "invalid_secret"
)

// Opts tunes a Sender. The zero value works.
type Opts struct {
	// UserAgent names this program to receivers. Default "onefold".
	UserAgent string
	// TLS is the client's configuration. Nil means the system's roots. Certificates are always verified.
	TLS *tls.Config
	// Resolver looks names up. Nil means the system's.
	Resolver *net.Resolver
}

// Sender delivers webhooks. It is safe for use by many goroutines.
type Sender struct {
	userAgent string
	clients   map[mode]*http.Transport
}

// mode is what a destination asks of a connection. One whose receiver must not get anything twice gets a fresh
// connection each time: on a kept one, a request and the receiver's close can cross, and then nobody knows whether it
// arrived.
type mode struct{ private, fresh bool }

// New makes a Sender.
func New(o *Opts) *Sender {
	if o == nil {
		o = &Opts{}
	}
	s := &Sender{userAgent: o.UserAgent, clients: map[mode]*http.Transport{}}
	if s.userAgent == "" {
		s.userAgent = "onefold"
	}
	for _, m := range []mode{{false, false}, {false, true}, {true, false}, {true, true}} {
		s.clients[m] = &http.Transport{
			Proxy:                  nil, // through a proxy the guard would see the proxy's address only
			DialContext:            newGuard(m.private, o.Resolver).dial,
			TLSClientConfig:        o.TLS.Clone(),
			TLSHandshakeTimeout:    tlsLimit,
			DisableKeepAlives:      m.fresh,
			DisableCompression:     true,
			MaxIdleConnsPerHost:    32,
			IdleConnTimeout:        idleConn,
			MaxResponseHeaderBytes: maxHeaders,
		}
	}
	return s
}

// Close drops the idle connections.
func (s *Sender) Close() {
	for _, t := range s.clients {
		t.CloseIdleConnections()
	}
}

// Send makes one POST and says what is known afterwards.
func (s *Sender) Send(ctx context.Context, d outbox.Delivery) outbox.Outcome {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var p progress
	req, refused := s.request(httptrace.WithClientTrace(ctx, p.trace()), d)
	if refused != nil {
		return *refused
	}
	// The transport is used by itself: it follows no redirect, and what it might repeat it cannot, for the body can be
	// read only once.
	resp, err := s.clients[mode{d.AllowPrivate, !d.Safe}].RoundTrip(req)
	if err != nil {
		return p.failure(err)
	}
	defer resp.Body.Close() //nolint:errcheck // read as far as wanted
	stop := time.AfterFunc(bodyWait, cancel)
	defer stop.Stop()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxRead))
	return outbox.Outcome{
		Class: outbox.Answered, Status: resp.StatusCode, RetryAfter: outbox.RetryAfter(resp.Header, time.Now()),
		Reply: body[:min(len(body), outbox.MaxReply)],
	}
}

func (s *Sender) request(ctx context.Context, d outbox.Delivery) (*http.Request, *outbox.Outcome) {
	u, err := url.Parse(d.URL.Reveal())
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return nil, &outbox.Outcome{Class: outbox.Blocked, Code: CodeBadURL, Message: "the destination's address is not an http or https URL"}
	}
	h := http.Header{}
	h.Set("Content-Type", "application/json")
	for name, value := range d.Headers {
		h.Set(name, value)
	}
	now := time.Now().Unix()
	h.Set("User-Agent", s.userAgent)
	h.Set("Onefold-Attempt", strconv.Itoa(d.Attempt))
	h.Set(headerID, d.ID.String())
	h.Set(headerTimestamp, strconv.FormatInt(now, 10))
	if len(d.Secrets) > 0 {
		signature, err := sign(d.Secrets, d.ID.String(), now, d.Body)
		if err != nil {
			return nil, &outbox.Outcome{Class: outbox.NotSent, Code: CodeBadSecret, Message: err.Error()}
		}
		h.Set(headerSignature, signature)
	}
	req := &http.Request{
		Method: http.MethodPost, URL: u, Host: u.Host, Header: h, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body: io.NopCloser(bytes.NewReader(d.Body)), ContentLength: int64(len(d.Body)),
	}
	if len(d.Body) == 0 {
		req.Body = http.NoBody
	}
	return req.WithContext(ctx), nil
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
	switch {
	case blocked(err):
		return outbox.Outcome{
			Class: outbox.Blocked, Code: outbox.CodeBlocked,
			Message: "the destination's address is in a private or special range; allow_private: true opens loopback and private ranges",
		}
	case !p.connected.Load():
		return notSent(err, p.tls.Load())
	case p.broken.Load():
		return outbox.Outcome{Class: outbox.NotSent, Code: CodeWrite, Message: "the connection broke before the whole request was written"}
	}
	out := outbox.Outcome{Class: outbox.Unclear, Code: string(api.CodeConnection), Message: "sent, but the connection broke before an answer came"}
	if timeout(err) {
		out.Code, out.Message = string(api.CodeTimeout), "sent, but no answer came in time"
	}
	return out
}

func notSent(err error, handshake bool) outbox.Outcome {
	out := outbox.Outcome{Class: outbox.NotSent, Code: CodeConnect, Message: "the receiver could not be reached"}
	var dns *net.DNSError
	var errno syscall.Errno
	switch {
	case errors.As(err, &dns):
		out.Code, out.Message = CodeResolve, "the receiver's name could not be resolved"
	case handshake:
		out.Code, out.Message = CodeTLS, "no secure connection could be made with the receiver"
		var certificate *tls.CertificateVerificationError
		if errors.As(err, &certificate) {
			out.Message += ": its certificate is not valid"
		}
	case errors.As(err, &errno):
		out.Message += ": " + errno.Error()
	case timeout(err):
		out.Message += " in time"
	}
	return out
}

func timeout(err error) bool {
	var n net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &n) && n.Timeout()
}
