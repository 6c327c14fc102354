package wire

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"

	"github.com/onefold-dev/onefold/internal/provider"
)

// Send is one request to make.
type Send struct {
	Method   string // "" is POST
	URL      *url.URL
	Header   http.Header
	Body     []byte // empty only where the method has none
	Timeouts provider.Timeouts
	OnPhase  func(provider.Phase)
	// Secrets are masked in every message, besides what looks like a key anyway.
	Secrets []string
}

// Exchange is a request that got a reply's headers. Its Read gives the body, decoded and bounded. The caller says with
// Progress when something real came, with Terminal when the reply says that it is complete, and must call Close.
type Exchange struct {
	Status int
	Header http.Header
	// Bytes counts the body bytes read off the wire.
	Bytes int64

	ctx     context.Context
	parent  context.Context
	cancel  context.CancelCauseFunc
	meter   *meter
	body    io.ReadCloser
	reader  io.Reader
	secrets []string
	request []byte
	max     int64
}

// errTooLarge is what Read returns past the limit.
var errTooLarge = errors.New("the reply is larger than the limit")

// errEncoding is what Read returns for a body whose Content-Encoding it does not know or that is broken.
var errEncoding = errors.New("the reply's encoding is unknown or broken")

// Do sends the request once and waits for the headers of the reply. The error is always classed.
func (c *Client) Do(ctx context.Context, p Send) (*Exchange, *provider.Error) {
	inner, cancel := context.WithCancelCause(ctx)
	x := &Exchange{parent: ctx, cancel: cancel, secrets: p.Secrets, request: p.Body, max: c.maxReply}
	x.meter = newMeter(cancel, p.Timeouts, p.OnPhase)
	var link link
	x.ctx = httptrace.WithClientTrace(inner, link.trace(x.meter))
	body := &requestBody{data: p.Body}
	u, header := withoutUserinfo(p.URL, p.Header)
	req := (&http.Request{
		Method: cmp.Or(p.Method, http.MethodPost), URL: u, Host: u.Host, Header: header, Body: body, ContentLength: int64(len(p.Body)),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(x.ctx)
	if len(p.Body) == 0 {
		req.Body = http.NoBody // one that is not known to be empty would be announced
	}
	// RoundTrip, not Client.Do: no redirects, no cookies, no error that wraps the URL.
	resp, err := c.transport.RoundTrip(req)
	if err != nil {
		complete := body.seal()
		fail := x.failSend(err, complete, link.multiplexed())
		x.end(fail)
		x.Close()
		return nil, fail
	}
	x.meter.advance(provider.PhaseWritten)
	x.meter.advance(provider.PhaseHeaders)
	x.Status, x.Header, x.body = resp.StatusCode, resp.Header, resp.Body
	x.reader = &counter{r: resp.Body, n: &x.Bytes, max: maxStream}
	switch strings.ToLower(strings.TrimSpace(resp.Header.Get("Content-Encoding"))) {
	case "", "identity":
	case "gzip", "x-gzip":
		x.reader = &counter{r: &unzip{src: x.reader}, n: new(int64), max: maxStream}
	default:
		x.reader = broken{errEncoding}
	}
	return x, nil
}

// withoutUserinfo moves the userinfo of a URL into an Authorization header, unless there is one.
func withoutUserinfo(u *url.URL, h http.Header) (*url.URL, http.Header) {
	h = h.Clone()
	if h == nil {
		h = http.Header{}
	}
	if u.User == nil {
		return u, h
	}
	if h.Get("Authorization") == "" {
		password, _ := u.User.Password()
		r := http.Request{Header: h}
		r.SetBasicAuth(u.User.Username(), password)
	}
	bare := *u
	bare.User = nil
	return &bare, h
}

// Read reads the body of the reply.
func (x *Exchange) Read(p []byte) (int, error) { return x.reader.Read(p) }

// Progress says that something real came: a token, or a byte of a reply that is not streamed.
func (x *Exchange) Progress() { x.meter.progress() }

// Terminal says that the reply has said it is complete; what may follow is waited for only shortly.
func (x *Exchange) Terminal() {
	x.meter.advance(provider.PhaseBody)
	x.meter.shorten(layerTail, tailWait)
}

// Finish reads a stream that has ended to the end of its body, if that comes at once, so that the connection can be
// reused, and returns the times of the call.
func (x *Exchange) Finish() provider.Phases {
	x.meter.advance(provider.PhaseBody)
	_, times := x.meter.seen()
	x.meter.shorten(layerTail, drainWait)
	_, _ = io.CopyN(io.Discard, x.reader, 4<<10)
	x.meter.advance(provider.PhaseDone)
	return times
}

// Close ends the exchange; a body that was not read to its end costs the connection.
func (x *Exchange) Close() {
	x.meter.end()
	if x.body != nil {
		_ = x.body.Close()
	}
	x.cancel(nil)
}

// ReadAll reads a reply that is not streamed from r, which reads from x. White space, which some servers send to keep the connection alive, is
// no progress.
func (x *Exchange) ReadAll(r io.Reader) ([]byte, error) {
	var buf bytes.Buffer
	chunk := make([]byte, 4<<10)
	for {
		n, err := r.Read(chunk)
		if n > 0 && len(bytes.TrimSpace(chunk[:n])) > 0 {
			x.Progress()
		}
		buf.Write(chunk[:n])
		if int64(buf.Len()) > x.max {
			return nil, errTooLarge
		}
		if n == len(chunk) && n < 64<<10 {
			chunk = make([]byte, 4*n)
		}
		if errors.Is(err, io.EOF) {
			return buf.Bytes(), nil
		}
		if err != nil {
			return buf.Bytes(), err
		}
	}
}

// ErrorBody reads the start of the body of a reply whose status is not 2xx. What cannot be read in time is left: the
// status alone is enough for a class.
func (x *Exchange) ErrorBody() []byte {
	x.meter.shorten(layerTail, errorBodyWait)
	b, _ := io.ReadAll(io.LimitReader(x.reader, maxErrorBody))
	return b
}

// MaxReply is the largest reply to keep, in bytes.
func (x *Exchange) MaxReply() int64 { return x.max }

// link remembers what the transport said of the connection it chose.
type link struct {
	conn any
}

// trace feeds the meter from the transport's hooks.
func (l *link) trace(m *meter) *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		DNSStart:          func(httptrace.DNSStartInfo) { m.advance(provider.PhaseResolving) },
		ConnectStart:      func(string, string) { m.advance(provider.PhaseDialing) },
		TLSHandshakeStart: func() { m.advance(provider.PhaseTLS) },
		GotConn: func(i httptrace.GotConnInfo) {
			l.conn = i.Conn
			m.connected(i.Reused)
		},
		WroteRequest: func(i httptrace.WroteRequestInfo) {
			if i.Err == nil {
				m.advance(provider.PhaseWritten)
			}
		},
	}
}

// multiplexed says whether the connection is shared with other calls (HTTP/2).
func (l *link) multiplexed() bool {
	c, ok := l.conn.(*tls.Conn)
	return ok && c.ConnectionState().NegotiatedProtocol == "h2"
}

// counter counts and bounds what comes off the wire.
type counter struct {
	r   io.Reader
	n   *int64
	max int64
}

func (c *counter) Read(p []byte) (int, error) {
	if *c.n >= c.max {
		return 0, errTooLarge
	}
	n, err := c.r.Read(p)
	*c.n += int64(n)
	return n, err
}

// unzip opens the gzip stream at the first read. What it yields is bounded by its readers.
type unzip struct {
	src io.Reader
	zip *gzip.Reader
}

func (u *unzip) Read(p []byte) (int, error) {
	if u.zip == nil {
		z, err := gzip.NewReader(u.src)
		if err != nil {
			return 0, encodingError(err)
		}
		u.zip = z
	}
	n, err := u.zip.Read(p)
	return n, encodingError(err)
}

func encodingError(err error) error {
	if errors.Is(err, gzip.ErrHeader) || errors.Is(err, gzip.ErrChecksum) {
		return errEncoding
	}
	return err
}

type broken struct{ err error }

func (b broken) Read([]byte) (int, error) { return 0, b.err }
