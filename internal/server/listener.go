package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/telemetry"
)

// Listener makes the refusals that net/http gives by itself, before any handler
// and in plain text (a control character in a header, headers too large), the
// problem documents that all other refusals are. net/http offers no hook for
// them; it writes each with one Write of a form that no handler of ours uses.
// Should that form change, they are plain text again, and TestNotHTTP fails.
func (s *Server) Listener(ln net.Listener) net.Listener { return &listener{ln, s.Log} }

type listener struct {
	net.Listener
	log *slog.Logger
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		return &conn{tcp, l.log}, nil
	}
	return c, nil
}

// conn keeps the whole of a TCP connection's methods, CloseWrite among them.
type conn struct {
	*net.TCPConn
	log *slog.Logger
}

const (
	plainStart   = "HTTP/1.1 "
	plainHeaders = "\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"
)

// Write replaces a refusal of net/http's own; all else goes out as it is.
func (c *conn) Write(b []byte) (int, error) {
	if !bytes.HasPrefix(b, []byte(plainStart)) {
		return c.TCPConn.Write(b)
	}
	status, _, ok := strings.Cut(string(b[len(plainStart):min(len(b), 300)]), plainHeaders)
	if !ok || strings.Contains(status, "\r\n") {
		return c.TCPConn.Write(b)
	}
	if _, err := c.TCPConn.Write(c.refusal(status)); err != nil {
		return 0, err
	}
	return len(b), nil
}

// refusal is the problem for a status line such as "400 Bad Request: invalid
// header value". Its texts are net/http's and hold nothing of the request.
func (c *conn) refusal(status string) []byte {
	code, text, _ := strings.Cut(status, " ")
	_, why, _ := strings.Cut(text, ": ")
	var e *api.Error
	switch code {
	case "431":
		e = api.Errorf(api.CodeTooLarge, "the headers of the request are larger than %d KiB", maxHeaderBytes>>10).
			WithFix("Send fewer or shorter headers.")
	case "501":
		e = api.Errorf(api.CodeEncoding, "the Transfer-Encoding of the request is not supported").WithField("Transfer-Encoding").
			WithFix("Send a Content-Length, or chunks.")
	default:
		if why == "" {
			why = "it cannot be read"
		}
		e = api.Errorf(api.CodeInvalidParam, "the request is not well-formed HTTP/1.1: %s", why).
			WithFix("Look for control characters and line breaks in header values, and at what stands between.")
	}
	p := problem{
		Title: http.StatusText(e.Status), Status: e.Status, Code: string(e.Code), Detail: e.Message, Fix: e.Fix, Field: e.Field,
		RequestID: telemetry.NewRequestID(),
	}
	body, err := json.Marshal(p)
	if err != nil {
		panic(err) // texts and numbers only
	}
	line := telemetry.NewLine(c.log, telemetry.MsgRequest, slog.Int("status", p.Status), slog.String("code", p.Code), slog.String("reason", status),
		slog.String(telemetry.KeyRequestID, p.RequestID), slog.String("remote", c.RemoteAddr().String()))
	line.Emit(context.Background())
	return fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nCache-Control: no-store\r\n%s: %s\r\nConnection: close\r\n\r\n%s",
		p.Status, p.Title, problemType, len(body), headerRequestID, p.RequestID, body)
}
