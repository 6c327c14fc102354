package tracing

import "github.com/prometheus/client_golang/prometheus"

// Observe adds a value to a histogram, with the trace that it comes from as its exemplar where there is one to look at.
func (s *Span) Observe(h prometheus.Observer, v float64) {
	if s == nil || !s.of.SpanContext().IsSampled() {
		h.Observe(v)
		return
	}
	e, ok := h.(prometheus.ExemplarObserver)
	if !ok {
		h.Observe(v)
		return
	}
	e.ObserveWithExemplar(v, prometheus.Labels{"trace_id": s.TraceID(), "span_id": s.of.SpanContext().SpanID().String()})
}
