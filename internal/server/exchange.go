package server

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"runtime/debug"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/auth"
	"github.com/onefold-dev/onefold/internal/telemetry"
	"github.com/onefold-dev/onefold/internal/tracing"
)

// headerRequestID carries the request's id in both directions.
const headerRequestID = "Request-Id"

// exchange is one request with its answer on the way.
type exchange struct {
	r           *http.Request
	w           *recorder
	line        *telemetry.Line
	id          string // request id
	route       string // the mux's pattern, "" before it is found
	began       time.Time
	traceID     string
	traceparent string        // the caller's, or that of the request's own span
	span        *tracing.Span // nil: the request has none
	who         auth.Identity // after authentication
	bodyRead    bool          // the body, as far as it is wanted
	quiet       bool          // what was refused is told in another, bounded way
}

type exchangeKey struct{}

func exchangeFrom(ctx context.Context) *exchange {
	x, _ := ctx.Value(exchangeKey{}).(*exchange)
	return x
}

// recorder notes what is answered, for the request's line in the log.
type recorder struct {
	http.ResponseWriter
	status int
	bytes  int64
	before func() // the headers
}

func (w *recorder) begin(status int) {
	if w.status == 0 {
		w.status = status
		w.before()
	}
}

func (w *recorder) WriteHeader(status int) {
	w.begin(status)
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) Write(b []byte) (int, error) {
	w.begin(http.StatusOK)
	n, err := w.ResponseWriter.Write(b)
	w.bytes += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController reach the connection.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// ServeHTTP serves one request and logs one line about it.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := &exchange{w: &recorder{ResponseWriter: w}, r: r, id: requestID(r), began: time.Now()}
	x.w.before = x.answering
	x.traced(tracing.Traceparent(r.Header.Get("traceparent")))
	x.line = telemetry.NewLine(s.Log, telemetry.MsgRequest, slog.String("method", clip(r.Method, 16)))
	attrs := []slog.Attr{slog.String(telemetry.KeyRequestID, x.id)}
	if x.traceID != "" {
		attrs = append(attrs, slog.String(telemetry.KeyTraceID, x.traceID))
	}
	ctx := telemetry.With(context.WithValue(r.Context(), exchangeKey{}, x), attrs...)
	x.r = r.WithContext(ctx)
	x.w.Header().Set(headerRequestID, x.id)
	defer s.finish(ctx, x)
	s.dispatch(x)
}

// requestID is the caller's own where it may be taken over, else a fresh one.
func requestID(r *http.Request) string {
	if lines := r.Header.Values(headerRequestID); len(lines) == 1 {
		return telemetry.RequestID(lines[0])
	}
	return telemetry.NewRequestID()
}

// dispatch finds the route. What the mux would answer by itself, in plain text
// or by a redirect that turns a POST into a GET, is a problem document here.
func (s *Server) dispatch(x *exchange) {
	if p := x.r.URL.Path; p != path.Clean("/"+p) {
		s.fail(x, notThere())
		return
	}
	h, pattern := s.mux.Handler(x.r)
	if pattern == "" {
		probe := &prober{header: http.Header{}}
		h.ServeHTTP(probe, x.r)
		if probe.status == http.StatusMethodNotAllowed {
			x.w.Header().Set("Allow", probe.header.Get("Allow"))
			s.fail(x, api.Errorf(api.CodeMethod, "this path does not take the method; it takes %s", probe.header.Get("Allow")))
			return
		}
		s.fail(x, notThere())
		return
	}
	x.route = pattern
	x.line.Add(slog.String("route", pattern))
	s.trace(x, pattern)
	s.mux.ServeHTTP(x.w, x.r)
}

func notThere() error {
	return api.Errorf(api.CodeNotFound, "there is no such path").WithFix("See /openapi.yaml for the paths there are.")
}

// prober learns what the mux would answer.
type prober struct {
	header http.Header
	status int
}

func (p *prober) Header() http.Header         { return p.header }
func (p *prober) WriteHeader(status int)      { p.status = status }
func (p *prober) Write(b []byte) (int, error) { return len(b), nil }

// finish answers for a handler that panicked, and writes the request's line.
func (s *Server) finish(ctx context.Context, x *exchange) {
	p := recover()
	if p != nil && p != http.ErrAbortHandler {
		x.line.Add(slog.String("panic", fmt.Sprint(p)), slog.String("stack", string(debug.Stack())))
		x.line.Raise(slog.LevelError)
		if x.w.status == 0 {
			s.fail(x, fmt.Errorf("handler panicked: %v", p))
			p = nil
		}
	}
	x.emit(ctx, s.Log.Enabled(ctx, slog.LevelDebug))
	if p != nil {
		// Half an answer is out, or nobody is there to take one: the connection
		// must break, or the caller would take it for a whole one.
		panic(http.ErrAbortHandler)
	}
}

// emit writes the line. Probes that find all well are worth one only to those
// who look at everything.
func (x *exchange) emit(ctx context.Context, everything bool) {
	status := x.w.status
	if status == 0 {
		status = 499 // the caller went away before there was an answer
	}
	x.observe(status)
	x.endSpan(status)
	x.line.Add(slog.Int("status", status), slog.Int64("bytes_out", x.w.bytes),
		slog.String("remote", x.r.RemoteAddr), slog.String("user_agent", clip(x.r.UserAgent(), 128)))
	if x.span != nil {
		x.line.Add(slog.String(telemetry.KeyTraceID, x.traceID))
	}
	if x.who.KeyID != "" {
		x.line.Add(slog.String(telemetry.KeyTenant, x.who.Tenant), slog.String("api_key_id", x.who.KeyID))
	}
	if status >= 500 {
		x.line.Raise(slog.LevelWarn)
	}
	if p := x.r.URL.Path; status < 400 && (p == "/healthz" || p == "/readyz") && !everything {
		return
	}
	if x.quiet && !everything {
		return
	}
	x.line.Emit(ctx)
}

// unreadTime is how long a caller whose body was not read may go on sending before it is answered.
const unreadTime = 500 * time.Millisecond

// answering comes before an answer's headers. net/http reads what is left of a small body before it sends them, and
// would wait for ever for one that does not come; but a caller that is cut off while it sends rarely sees its answer.
func (x *exchange) answering() {
	if x.bodyRead || x.r.Body == nil || x.r.Body == http.NoBody {
		return
	}
	_ = http.NewResponseController(x.w).SetReadDeadline(time.Now().Add(unreadTime))
}

func clip(s string, n int) string {
	if len(s) > n {
		return s[:n]
	}
	return s
}
