package server

import (
	"compress/flate"
	"compress/gzip"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/onefold-dev/onefold/api"
)

// jsonlType is what results are declared as.
const jsonlType = "application/jsonl"

// jsonlTypes are what a file of lines may be declared as.
var jsonlTypes = map[string]bool{jsonlType: true, "application/x-ndjson": true, "application/x-jsonlines": true, "application/ndjson": true}

// file is a body that is read bit by bit, however long it is.
type file struct {
	reader io.Reader // not compressed
	src    *source
	x      *exchange
}

// source is a body as it comes in. Every read has time of its own, and so has
// the answer that follows the last one.
type source struct {
	x    *exchange
	conn *http.ResponseController
	n    int64
	err  error // that ended it, io.EOF apart
}

func (s *source) Read(p []byte) (int, error) {
	now := time.Now()
	for _, set := range []func(time.Time) error{s.conn.SetReadDeadline, extended(s.conn.SetWriteDeadline)} {
		if err := set(now.Add(bodyTimeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return 0, err
		}
	}
	n, err := s.x.r.Body.Read(p)
	s.n += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// extended gives an answer the time it has after any body.
func extended(set func(time.Time) error) func(time.Time) error {
	return func(t time.Time) error { return set(t.Add(writeTimeout)) }
}

// file opens a body of lines. It has been authenticated before.
func (x *exchange) file() (*file, error) {
	types := x.r.Header.Values("Content-Type")
	media, params, err := "", map[string]string(nil), error(nil)
	if len(types) == 1 {
		media, params, err = mime.ParseMediaType(types[0])
	}
	if err != nil || !jsonlTypes[media] {
		return nil, api.Errorf(api.CodeMediaType, "the body is not declared as %s", jsonlType).WithField("Content-Type").
			WithFix("Send Content-Type: %s.", jsonlType)
	}
	if c := params["charset"]; c != "" && !strings.EqualFold(c, "utf-8") && !strings.EqualFold(c, "utf8") {
		return nil, api.Errorf(api.CodeEncoding, "the charset of the body is not UTF-8").WithField("Content-Type")
	}
	f := &file{x: x, src: &source{x: x, conn: http.NewResponseController(x.w)}}
	f.reader = f.src
	switch encoding := strings.Join(x.r.Header.Values("Content-Encoding"), ","); strings.ToLower(strings.TrimSpace(encoding)) {
	case "", "identity":
	case "gzip", "x-gzip":
		f.reader = &unzipped{src: f.src}
	default:
		return nil, api.Errorf(api.CodeEncoding, "a file may be compressed with gzip only").WithField("Content-Encoding").
			WithFix("Send it with Content-Encoding: gzip, or as it is.")
	}
	return f, nil
}

// unzipped opens the compressed stream at the first read: an empty body is an
// empty file. What comes out of it is bounded by the reader of the lines.
type unzipped struct {
	src *source
	in  *gzip.Reader
}

func (u *unzipped) Read(p []byte) (int, error) {
	if u.in == nil {
		in, err := gzip.NewReader(u.src)
		if err != nil {
			return 0, err
		}
		u.in = in
	}
	return u.in.Read(p)
}

// refusal is the answer to a file that was not taken. What is left of it is read
// for a while, for a caller that is cut off while it sends rarely sees the
// answer.
func (f *file) refusal(err error) error {
	var told *api.Error
	var corrupt flate.CorruptInputError
	switch {
	case errors.As(err, &told):
	case f.src.err != nil:
		return cutShort(f.src.err, bodyTimeout)
	case errors.Is(err, gzip.ErrHeader), errors.Is(err, gzip.ErrChecksum), errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, &corrupt):
		err = api.Errorf(api.CodeEncoding, "the gzip data is damaged or cut off").WithField("Content-Encoding")
	}
	_ = f.src.conn.SetReadDeadline(time.Now().Add(drainTime))
	_, _ = io.Copy(io.Discard, io.LimitReader(f.x.r.Body, maxDrain))
	f.x.w.Header().Set("Connection", "close")
	return err
}

// stream is an answer that is written bit by bit. Its head goes out with the
// first bytes, so that what goes wrong before is answered as usual; what goes
// wrong later breaks the connection, or half an answer would pass for a whole.
type stream struct {
	x     *exchange
	a     *answer
	conn  *http.ResponseController
	begun bool
}

// streamWait is how long a reader of an answer may read nothing.
const streamWait = 60 * time.Second

func (s *stream) Write(p []byte) (int, error) {
	s.begin()
	if err := s.conn.SetWriteDeadline(time.Now().Add(streamWait)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return 0, err
	}
	if s.x.r.Method == http.MethodHead {
		return len(p), nil
	}
	n, err := s.x.w.Write(p)
	if err == nil {
		err = s.conn.Flush()
	}
	return n, err
}

func (s *stream) begin() {
	if s.begun {
		return
	}
	s.begun = true
	h := s.x.w.Header()
	h.Set("Cache-Control", "private, no-cache")
	for name, values := range s.a.header {
		h[name] = values
	}
	s.x.w.WriteHeader(s.a.status)
}

func (s *Server) stream(x *exchange, a *answer) {
	out := &stream{x: x, a: a, conn: http.NewResponseController(x.w)}
	err := a.stream(out)
	switch {
	case err == nil:
		out.begin()
	case !out.begun:
		s.fail(x, err)
	default:
		x.line.Fail(err)
		panic(http.ErrAbortHandler)
	}
}
