package server

import (
	"strconv"
	"time"

	"github.com/onefold-dev/onefold/internal/telemetry"
)

var (
	requestSeconds = telemetry.Histogram("http_request_seconds", "From a request's headers to the end of its answer, waits that were asked for included.", telemetry.AnswerSeconds, "route", "status")
	pollWait       = telemetry.Histogram("poll_wait_seconds", "How long answers were held for callers who asked to wait.", telemetry.AnswerSeconds)
)

// observe counts a request by its route as it stands in the code, never by its path.
func (x *exchange) observe(status int) {
	route := x.route
	if route == "" {
		route = "none"
	}
	x.span.Observe(requestSeconds.WithLabelValues(route, strconv.Itoa(status)), time.Since(x.began).Seconds())
}
