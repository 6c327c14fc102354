package server

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/telemetry"
)

// How much of a body that is too large is still read before it is refused, and
// for how long: a caller that is cut off while it sends rarely sees the answer.
const (
	maxDrain  = 64 << 20
	drainTime = 5 * time.Second
)

// body reads a JSON body of at most limit bytes that arrives in time. It has been authenticated
// before, and nothing was read of it yet. An empty body without a Content-Type
// is nil.
func (x *exchange) body(limit int64, within time.Duration) ([]byte, error) {
	if x.r.ContentLength == 0 && x.r.Header.Get("Content-Type") == "" {
		return nil, nil
	}
	if err := checkMedia(x.r.Header); err != nil {
		return nil, err
	}
	return x.read(limit, within)
}

// read reads a body of any kind.
func (x *exchange) read(limit int64, within time.Duration) ([]byte, error) {
	conn := http.NewResponseController(x.w)
	x.bodyRead = true
	if x.r.ContentLength > limit {
		return nil, x.tooLarge(conn, limit)
	}
	if err := conn.SetReadDeadline(time.Now().Add(within)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return nil, err
	}
	var buf bytes.Buffer
	buf.Grow(int(min(max(x.r.ContentLength, 0)+bytes.MinRead, 256<<10)))
	n, err := buf.ReadFrom(io.LimitReader(x.r.Body, limit+1))
	if err != nil {
		x.line.Add(slog.Any(telemetry.KeyError, err))
		x.w.Header().Set("Connection", "close")
		return nil, cutShort(err, within)
	}
	if n > limit {
		return nil, x.tooLarge(conn, limit)
	}
	// The deadline must not end a wait that follows.
	if err := conn.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return nil, err
	}
	x.line.Add(slog.Int64("bytes_in", n))
	return buf.Bytes(), nil
}

func (x *exchange) tooLarge(conn *http.ResponseController, limit int64) error {
	_ = conn.SetReadDeadline(time.Now().Add(drainTime))
	_, _ = io.Copy(io.Discard, io.LimitReader(x.r.Body, maxDrain))
	x.w.Header().Set("Connection", "close")
	return api.Errorf(api.CodeTooLarge, "the body is larger than %d bytes", limit)
}

func cutShort(err error, within time.Duration) error {
	var network net.Error
	if errors.As(err, &network) && network.Timeout() {
		return api.Errorf(api.CodeRequestTimeout, "the body did not arrive within %s", within)
	}
	return api.Errorf(api.CodeInvalidJSON, "the body was cut off or is badly framed").
		WithFix("Send the whole body, as long as Content-Length says or in well-formed chunks.")
}

// checkMedia takes plain UTF-8 JSON that says so, and nothing else: what is
// compressed or of another charset would be stored as something else than was
// meant.
func checkMedia(h http.Header) error {
	for _, v := range h.Values("Content-Encoding") {
		if v = strings.TrimSpace(v); v != "" && !strings.EqualFold(v, "identity") {
			return api.Errorf(api.CodeEncoding, "a body with Content-Encoding is not taken").WithField("Content-Encoding")
		}
	}
	types := h.Values("Content-Type")
	if len(types) != 1 {
		return api.Errorf(api.CodeMediaType, "there must be one Content-Type").WithField("Content-Type")
	}
	media, params, err := mime.ParseMediaType(types[0])
	if err != nil || media != jsonType {
		return api.Errorf(api.CodeMediaType, "the body is not declared as application/json").WithField("Content-Type")
	}
	for name, v := range params {
		if name == "charset" && !strings.EqualFold(v, "utf-8") && !strings.EqualFold(v, "utf8") {
			return api.Errorf(api.CodeEncoding, "the charset of the body is not UTF-8").WithField("Content-Type")
		}
	}
	return nil
}
