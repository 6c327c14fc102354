package worker

import (
	"strconv"

	"github.com/onefold-dev/onefold/internal/telemetry"
)

// What attempts come to, counted when their end is committed.
var (
	queueWait     = telemetry.Histogram("queue_wait_seconds", "From when a task was due to when a worker claimed it.", telemetry.WaitSeconds, "kind")
	attemptsTotal = telemetry.Counter("attempts_total", "Attempts that ended, by what came of their call.", "kind", "provider", "outcome")
	firstByte     = telemetry.Histogram("call_first_byte_seconds", "From the send to the first byte of the reply, or its first token.", telemetry.CallSeconds, "kind", "provider")
	callTotal     = telemetry.Histogram("call_seconds", "From the send to the end of the call, however it ended.", telemetry.CallSeconds, "kind", "provider", "outcome")
	tokensTotal   = telemetry.Counter("tokens_total", "Tokens the providers counted.", "kind", "provider", "direction")
	costTotal     = telemetry.Counter("cost_total", "What calls cost by the prices in the configuration.", "kind", "provider")
	unknownBilled = telemetry.Counter("calls_billed_unknown_total", "Calls of which nobody knows whether they were billed.", "kind", "provider")
	fencedTotal   = telemetry.Counter("fenced_writes_total", "Writes refused because what they were about was another's by then.", "what")
	leasesLost    = telemetry.Counter("leases_lost_total", "Times that this process lost its lease, and with it all local work.")
)

func init() { leasesLost.WithLabelValues() } // a series that begins at 0, so that the first loss is a rise

// count counts an attempt whose end has committed.
func (e *ending) count() {
	kind, provider := e.a.row.Kind, e.a.row.Provider
	attemptsTotal.WithLabelValues(kind, provider, e.at.Outcome).Inc()
	if e.at.FirstByte > 0 {
		e.a.span.Observe(firstByte.WithLabelValues(kind, provider), e.at.FirstByte.Seconds())
	}
	if e.at.Sent != nil {
		e.a.span.Observe(callTotal.WithLabelValues(kind, provider, e.at.Outcome), e.at.Total.Seconds())
	}
	for direction, n := range map[string]int64{
		"input": e.at.Usage.InputTokens, "cached": e.at.Usage.CachedTokens, "output": e.at.Usage.OutputTokens, "reasoning": e.at.Usage.ReasoningTokens,
	} {
		tokensTotal.WithLabelValues(kind, provider, direction).Add(float64(n))
	}
	if cost, err := strconv.ParseFloat(e.at.Usage.Cost, 64); err == nil && cost > 0 {
		costTotal.WithLabelValues(kind, provider).Add(cost)
	}
	if e.at.Billed == "unknown" {
		unknownBilled.WithLabelValues(kind, provider).Inc()
	}
	if e.at.Outcome == "unauthorized" {
		telemetry.AuthFailed(telemetry.SideProvider, provider)
	}
}
