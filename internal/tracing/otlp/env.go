package otlp

import (
	"cmp"
	"fmt"
	"strings"
)

// The ways to send.
const (
	http = "http/protobuf"
	grpc = "grpc"
)

// wanted is the way in which spans are to be sent, "" for none. They are sent where an exporter or an endpoint is named:
// the conventions' own default, a receiver on this machine, is a thing to ask for.
func wanted(getenv func(string) string) (way string, err error) {
	get := func(name string) string { return strings.ToLower(strings.TrimSpace(getenv(name))) }
	exporter := get("OTEL_TRACES_EXPORTER")
	endpoint := cmp.Or(get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), get("OTEL_EXPORTER_OTLP_ENDPOINT"))
	switch {
	case get("OTEL_SDK_DISABLED") == "true", exporter == "none", exporter == "" && endpoint == "":
		return "", nil
	case exporter != "" && exporter != "otlp":
		return "", fmt.Errorf("OTEL_TRACES_EXPORTER is %q: use otlp or none", exporter)
	}
	switch way = cmp.Or(get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), get("OTEL_EXPORTER_OTLP_PROTOCOL"), http); way {
	case http, grpc:
		return way, nil
	}
	return "", fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL is %q: use %s or %s", way, http, grpc)
}
