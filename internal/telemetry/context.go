package telemetry

import (
	"context"
	"log/slog"
)

type ctxKey int

const (
	attrsKey ctxKey = iota
	loggerKey
	lineKey
)

// With returns a context whose log lines carry attrs besides those it had. A later value of the same key wins.
func With(ctx context.Context, attrs ...slog.Attr) context.Context {
	old := Attrs(ctx)
	all := make([]slog.Attr, 0, len(old)+len(attrs))
	return context.WithValue(ctx, attrsKey, append(append(all, old...), attrs...))
}

// Attrs returns the attributes [With] put into ctx. The caller must not change the slice.
func Attrs(ctx context.Context) []slog.Attr {
	a, _ := ctx.Value(attrsKey).([]slog.Attr)
	return a
}

// WithLogger returns a context from which [From] returns l.
func WithLogger(ctx context.Context, l *slog.Logger) context.Context {
	return context.WithValue(ctx, loggerKey, l)
}

// From returns the logger of ctx with the attributes of ctx bound to it, or one that writes nothing.
func From(ctx context.Context) *slog.Logger {
	l, ok := ctx.Value(loggerKey).(*slog.Logger)
	if !ok {
		return slog.New(slog.DiscardHandler)
	}
	attrs := Attrs(ctx)
	if len(attrs) == 0 {
		return l
	}
	return slog.New(l.Handler().WithAttrs(attrs))
}
