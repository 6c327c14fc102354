package server

import (
	"net/http"
	"strings"

	"github.com/onefold-dev/onefold/internal/tracing"
)

// trace begins the span of a request whose route is known: of every request that asks for a change, and of one that
// only looks where its caller traces it. Polls and probes outside a trace would bury all else.
func (s *Server) trace(x *exchange, pattern string) {
	if s.Traces == nil || x.traceparent == "" && (x.r.Method == http.MethodGet || x.r.Method == http.MethodHead) {
		return
	}
	_, route, _ := strings.Cut(pattern, " ")
	ctx, span := s.Traces.Serve(x.r.Context(), pattern, x.traceparent,
		tracing.HTTPMethod.String(x.r.Method), tracing.HTTPRoute.String(route), tracing.RequestID.String(x.id))
	x.r, x.span = x.r.WithContext(ctx), span
	x.traced(span.Traceparent())
}

// traced notes the traceparent that what the request makes continues from.
func (x *exchange) traced(traceparent string) {
	x.traceparent, x.traceID = traceparent, tracing.TraceID(traceparent)
}

// endSpan ends the request's span. By the conventions only answers from 500 on are the server's failures.
func (x *exchange) endSpan(status int) {
	if !x.span.Recording() {
		return
	}
	x.span.Set(tracing.HTTPStatus.Int(status), tracing.Tenant.String(x.who.Tenant))
	if status >= http.StatusInternalServerError {
		x.span.Fail(http.StatusText(status))
	}
	x.span.End()
}
