package telemetry_test

import (
	"io"
	"log/slog"
	"testing"

	"github.com/onefold-dev/onefold/internal/telemetry"
)

func BenchmarkLine(b *testing.B) {
	l := telemetry.New(io.Discard, &telemetry.Opts{Instance: "w1"})
	ctx := telemetry.With(b.Context(), slog.String("tenant", "acme"), slog.String("kind", "llm.chat"), slog.String("key", "order-1"),
		slog.String("task_id", "0190a0b0-0000-7000-8000-000000000000"), slog.Int("run", 1), slog.String("request_id", "req_0123456789abcdef"))
	for b.Loop() {
		line := telemetry.NewLine(l, telemetry.MsgAttempt, slog.Int("attempt", 1))
		line.Add(slog.String("state", "succeeded"), slog.String("provider", "openai"), slog.Int("output_tokens", 42), slog.Duration("total_ms", 1e9))
		line.Emit(ctx)
	}
}
