package telemetry

import (
	"crypto/rand"
	"encoding/hex"
	"strings"
)

// maxRequestID bounds a request id taken over from a caller, in bytes.
const maxRequestID = 128

// NewRequestID returns a fresh request id: "req_" and 32 hex digits.
func NewRequestID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24
	return "req_" + hex.EncodeToString(b[:])
}

// RequestID returns the caller's own request id when it may be taken over (1-128 of letters, digits, "-", "_", ".",
// ":"), else a fresh one. An id is shown in logs and answers, so nothing else may stand in it.
func RequestID(header string) string {
	if header == "" || len(header) > maxRequestID {
		return NewRequestID()
	}
	for i := 0; i < len(header); i++ {
		c := header[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-_.:", c) >= 0) {
			return NewRequestID()
		}
	}
	return header
}

// TraceID returns the trace id of a W3C traceparent header (https://www.w3.org/TR/trace-context/): 32 lower-case hex
// digits. ok is false when the header is absent or malformed, which the standard says to treat alike.
func TraceID(traceparent string) (id string, ok bool) {
	h := strings.TrimSpace(traceparent)
	if len(h) < 55 || h[2] != '-' || h[35] != '-' || h[52] != '-' {
		return "", false
	}
	version, trace, parent, flags := h[:2], h[3:35], h[36:52], h[53:55]
	for _, part := range []string{version, trace, parent, flags} {
		if !lowerHex(part) {
			return "", false
		}
	}
	switch {
	case version == "ff", version == "00" && len(h) != 55, len(h) > 55 && h[55] != '-':
		return "", false
	case strings.Trim(trace, "0") == "", strings.Trim(parent, "0") == "":
		return "", false
	}
	return trace, true
}

func lowerHex(s string) bool {
	for i := 0; i < len(s); i++ {
		if c := s[i]; !(c >= '0' && c <= '9' || c >= 'a' && c <= 'f') {
			return false
		}
	}
	return true
}
