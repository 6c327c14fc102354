package telemetry

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"time"
)

// Opts sets up [New]. The zero value works.
type Opts struct {
	// Level is the lowest level written. Default info.
	Level slog.Leveler
	// Instance names this process in every line. Left out when empty.
	Instance string
	// Keys are further attribute keys this logger admits.
	Keys []string
	// OnDropped is called with the key of every attribute that was dropped. Tests fail here; production leaves it nil
	// and reads [Dropped].
	OnDropped func(key string)
}

// dropped counts attributes that were not on the list, over all loggers of the process.
var dropped atomic.Int64

// Dropped returns how many attributes were dropped by all loggers since the process began.
func Dropped() int64 { return dropped.Load() }

// New returns a logger that writes one JSON object a line to w, with the allowed attributes only.
func New(w io.Writer, o *Opts) *slog.Logger {
	if o == nil {
		o = &Opts{}
	}
	level := o.Level
	if level == nil {
		level = slog.LevelInfo
	}
	h := &handler{
		next:      slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: utcTime}),
		onDropped: o.OnDropped,
	}
	if len(o.Keys) > 0 {
		h.extra = setOf(o.Keys...)
	}
	if o.Instance != "" {
		h.attrs = []slog.Attr{slog.String(KeyInstance, o.Instance)}
	}
	return slog.New(h)
}

// utcTime writes the time of a line in UTC, so that lines of several machines sort as text.
func utcTime(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey && a.Value.Kind() == slog.KindTime {
		return slog.Time(a.Key, a.Value.Time().UTC())
	}
	return a
}

// handler holds back what is not allowed, adds the attributes of the context, and writes each key once (the most
// particular value wins). Groups are flattened: the fixed fields stand at the top of every line, whoever logs.
type handler struct {
	next      slog.Handler
	attrs     []slog.Attr
	extra     map[string]bool
	onDropped func(string)
	lenient   bool
}

func (h *handler) Enabled(ctx context.Context, l slog.Level) bool { return h.next.Enabled(ctx, l) }

func (h *handler) WithAttrs(as []slog.Attr) slog.Handler {
	c := *h
	c.attrs = append(append([]slog.Attr(nil), h.attrs...), as...)
	return &c
}

func (h *handler) WithGroup(string) slog.Handler { return h }

func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	out := make([]slog.Attr, 0, len(h.attrs)+r.NumAttrs()+4)
	for _, a := range h.attrs {
		out = h.admit(out, a)
	}
	for _, a := range Attrs(ctx) {
		out = h.admit(out, a)
	}
	r.Attrs(func(a slog.Attr) bool {
		out = h.admit(out, a)
		return true
	})
	clean := slog.NewRecord(r.Time, r.Level, cut(printable(r.Message)), 0)
	clean.AddAttrs(out...)
	if err := h.next.Handle(ctx, clean); err != nil {
		return fmt.Errorf("write log line: %w", err)
	}
	return nil
}

// admit appends a to out when its key and value may be logged, in place of an earlier one of the same key.
func (h *handler) admit(out []slog.Attr, a slog.Attr) []slog.Attr {
	v := a.Value.Resolve()
	if v.Kind() == slog.KindGroup {
		for _, b := range v.Group() {
			out = h.admit(out, b)
		}
		return out
	}
	if a.Key == "" && v.Equal(slog.Value{}) {
		return out
	}
	clean, ok := cleanValue(a.Key, v)
	if !ok || !allowed[a.Key] && !h.extra[a.Key] {
		h.drop(a.Key)
		return out
	}
	a = slog.Attr{Key: a.Key, Value: clean}
	for i := range out {
		if out[i].Key == a.Key {
			out[i] = a
			return out
		}
	}
	return append(out, a)
}

func (h *handler) drop(key string) {
	dropped.Add(1)
	if h.onDropped != nil && !h.lenient {
		h.onDropped(key)
	}
}

// cleanValue turns v into something that can be printed, or says that it cannot. Structs, maps and byte slices are
// refused whatever their key: they are how inputs and configurations slip into logs.
func cleanValue(key string, v slog.Value) (slog.Value, bool) {
	switch v.Kind() {
	case slog.KindString:
		return slog.StringValue(cleanText(key, v.String())), true
	case slog.KindAny:
		return cleanAny(key, v.Any())
	case slog.KindTime:
		return slog.TimeValue(v.Time().UTC().Round(0)), true
	case slog.KindDuration:
		if key == KeyDuration || len(key) > 3 && key[len(key)-3:] == "_ms" {
			return slog.Float64Value(float64(v.Duration().Microseconds()) / 1e3), true
		}
		return slog.StringValue(v.Duration().Round(time.Microsecond).String()), true
	}
	return v, true
}

// cleanText scrubs what may be free text. Ids, states and numbers are only kept from breaking the line: the patterns
// cost more than the rest of a log line together.
func cleanText(key, s string) string {
	switch {
	case key == KeyURL:
		return ScrubURL(s)
	case freeText[key] || !allowed[key]:
		return ScrubText(s)
	}
	return cut(printable(s))
}

func cleanAny(key string, x any) (slog.Value, bool) {
	switch x := x.(type) {
	case nil:
		return slog.AnyValue(nil), true
	case error:
		return slog.StringValue(ScrubError(x)), true
	case fmt.Stringer:
		return slog.StringValue(cleanText(key, x.String())), true
	case []string:
		clean := make([]string, len(x))
		for i, s := range x {
			clean[i] = cleanText(key, s)
		}
		return slog.AnyValue(clean), true
	}
	return slog.Value{}, false
}

// Foreign returns l for use by a library that logs with keys of its own: they are dropped and counted without failing
// a test, and every line names the library under "component". A library's error texts are scrubbed like ours.
func Foreign(l *slog.Logger, component string) *slog.Logger {
	if h, ok := l.Handler().(*handler); ok {
		c := *h
		c.lenient = true
		l = slog.New(&c)
	}
	return l.With(slog.String("component", component))
}

// TB is the part of *testing.T that [ForTest] needs.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
}

// ForTest is [New] at level debug, failing t at every attribute that would be dropped.
func ForTest(t TB, w io.Writer) *slog.Logger {
	return New(w, &Opts{Level: slog.LevelDebug, OnDropped: func(key string) {
		t.Helper()
		t.Errorf("a log line carries the attribute %q, which is not on the allow-list or has a value that cannot be logged", key)
	}})
}
