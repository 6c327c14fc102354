// Package tracing decides what a span may say, and how the spans of one task hang together.
//
// A task carries a traceparent: that of the span it was submitted in, or the caller's where no spans are made here. Each
// attempt continues from it, by parent and by link, and each effect carries the traceparent of the attempt's finish, so
// that caller, submit, attempts, calls, finish and deliveries are one trace under one id, which the task shows.
//
// As with log lines, what a span may say is an allow-list (keys.go): ids, names out of the configuration, numbers and
// codes. No input, no output, no message of anybody's, no URL.
//
// Nothing here sends a span: a [Tracer] is made by package otlp below, and a nil one makes no spans and costs nothing.
// The package needs OpenTelemetry's API only, so that programs that link package enqueue get no SDK.
package tracing
