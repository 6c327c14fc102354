// Package telemetry decides what may leave the process as a log line.
//
// Redaction is by allow-list: a logger made by [New] writes only attributes whose key is listed in keys.go and whose
// value is a plain scalar, an error (scrubbed) or a [Secret] (never printed). Anything else is dropped and counted, so
// a prompt or a credential cannot reach a log because somebody forgot to hide it. Messages are constants.
//
// The package imports nothing of this module and may be imported by all of it.
package telemetry
