package telemetry

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Messages of the canonical lines: one for each request, attempt and delivery, written when it is over.
const (
	MsgRequest  = "request"
	MsgAttempt  = "attempt"
	MsgDelivery = "delivery"
)

// Line gathers what is to be said about one request, attempt or delivery and says it once, in one line. Its methods
// may be called from several goroutines, and on a nil Line, where they do nothing.
type Line struct {
	log   *slog.Logger
	msg   string
	began time.Time

	mu    sync.Mutex
	level slog.Level
	attrs []slog.Attr
	done  bool
}

// NewLine starts a line with message msg at level info. The line's duration_ms counts from now.
func NewLine(l *slog.Logger, msg string, attrs ...slog.Attr) *Line {
	return &Line{log: l, msg: msg, began: time.Now(), attrs: append([]slog.Attr(nil), attrs...)}
}

// Add puts attrs on the line. After Emit it does nothing.
func (l *Line) Add(attrs ...slog.Attr) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.done {
		l.attrs = append(l.attrs, attrs...)
	}
}

// Raise lifts the line's level to at least level.
func (l *Line) Raise(level slog.Level) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.level = max(l.level, level)
}

// Fail notes err on the line and lifts it to level error. A nil err does nothing.
func (l *Line) Fail(err error) {
	if err == nil {
		return
	}
	l.Add(slog.Any(KeyError, err))
	l.Raise(slog.LevelError)
}

// Emit writes the line with the attributes of ctx, the first time it is called.
func (l *Line) Emit(ctx context.Context) {
	if l == nil {
		return
	}
	l.mu.Lock()
	first := !l.done
	l.done = true
	attrs, level := l.attrs, l.level
	l.mu.Unlock()
	if !first {
		return
	}
	took := slog.Float64(KeyDuration, float64(time.Since(l.began).Microseconds())/1e3)
	l.log.LogAttrs(ctx, level, l.msg, append([]slog.Attr{took}, attrs...)...)
}

// WithLine returns a context from which [LineFrom] returns l.
func WithLine(ctx context.Context, l *Line) context.Context {
	return context.WithValue(ctx, lineKey, l)
}

// LineFrom returns the line of ctx, or nil, on which all methods do nothing.
func LineFrom(ctx context.Context) *Line {
	l, _ := ctx.Value(lineKey).(*Line)
	return l
}
