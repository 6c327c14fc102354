package outbox

import (
	"github.com/onefold-dev/onefold/internal/telemetry"
	"github.com/onefold-dev/onefold/internal/tracing"
)

var (
	deliveriesTotal = telemetry.Counter("deliveries_total", "Deliveries that ended and were recorded, by what came of them.", "destination", "type", "outcome")
	deliverySeconds = telemetry.Histogram("delivery_seconds", "How long deliveries took.", telemetry.AnswerSeconds, "destination")
	fencedTotal     = telemetry.Counter("fenced_deliveries_total", "Outcomes of deliveries refused because the effect was another's by then.", "destination")
)

// count counts a delivery whose outcome has committed.
func (e *ending) count(effectType string, status int, span *tracing.Span) {
	deliveriesTotal.WithLabelValues(e.destination, effectType, e.Outcome).Inc()
	span.Observe(deliverySeconds.WithLabelValues(e.destination), e.Took.Seconds())
	if status == 401 || status == 403 {
		telemetry.AuthFailed(telemetry.SideDestination, e.destination)
	}
}
