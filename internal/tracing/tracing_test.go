package tracing

import (
	"testing"

	"go.opentelemetry.io/otel/attribute"
	genai "go.opentelemetry.io/otel/semconv/v1.41.0"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// TestConventions: the names are those that were published.
func TestConventions(t *testing.T) {
	t.Parallel()
	for ours, theirs := range map[attribute.Key]attribute.Key{
		ErrorType: semconv.ErrorTypeKey, HTTPMethod: semconv.HTTPRequestMethodKey, HTTPStatus: semconv.HTTPResponseStatusCodeKey, HTTPRoute: semconv.HTTPRouteKey,
		MessagingSystem: semconv.MessagingSystemKey, MessagingDestination: semconv.MessagingDestinationNameKey, MessagingOperation: semconv.MessagingOperationNameKey,
		MessagingOperationOf: semconv.MessagingOperationTypeKey, MessagingMessageID: semconv.MessagingMessageIDKey, MessagingBatchCount: semconv.MessagingBatchMessageCountKey,
		GenAIOperation: genai.GenAIOperationNameKey, GenAIProvider: genai.GenAIProviderNameKey, GenAIRequestModel: genai.GenAIRequestModelKey,
		GenAIStream: genai.GenAIRequestStreamKey, GenAIResponseModel: genai.GenAIResponseModelKey, GenAIFinishReasons: genai.GenAIResponseFinishReasonsKey,
		GenAIFirstChunk: genai.GenAIResponseTimeToFirstChunkKey, GenAIInput: genai.GenAIUsageInputTokensKey, GenAIOutput: genai.GenAIUsageOutputTokensKey,
		GenAICached: genai.GenAIUsageCacheReadInputTokensKey, GenAIReasoning: genai.GenAIUsageReasoningOutputTokensKey,
	} {
		if ours != theirs {
			t.Errorf("got %s, the convention is %s", ours, theirs)
		}
	}
}

// A span carries what is listed, scrubbed, and nothing else.
func TestClean(t *testing.T) {
	t.Parallel()
	got := clean([]attribute.KeyValue{
		attribute.String("prompt", "x"), Kind.String(""), Kind.String("work"), GenAIRequestModel.String("sk-CANARY-0123456789abcdef0123"),
	})
	if len(got) != 2 || got[0] != Kind.String("work") || got[1].Value.AsString() == "sk-CANARY-0123456789abcdef0123" {
		t.Errorf("got %v", got)
	}
}

func TestTraceparent(t *testing.T) {
	t.Parallel()
	const id, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	for in, want := range map[string]string{
		"":                                                    "",
		"00-" + id + "-" + span + "-01":                       "00-" + id + "-" + span + "-01",
		" 00-" + id + "-" + span + "-00 ":                     "00-" + id + "-" + span + "-00",
		"00-" + id + "-" + span + "-03":                       "00-" + id + "-" + span + "-01",
		"01-" + id + "-" + span + "-01-new":                   "00-" + id + "-" + span + "-01",
		"00-" + id + "-" + span + "-01-new":                   "",
		"ff-" + id + "-" + span + "-01":                       "",
		"00-00000000000000000000000000000000-" + span + "-01": "",
		"00-" + id + "-0000000000000000-01":                   "",
		"00-0AF7651916CD43DD8448EB211C80319C-" + span + "-01": "",
	} {
		if got := Traceparent(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
	var off *Tracer
	ctx, s := off.Start(t.Context(), Internal, "x")
	s.Set(Kind.String("x"))
	s.Fail("x")
	s.End()
	if ctx != t.Context() || s != nil || s.Traceparent() != "" || s.TraceID() != "" || s.Recording() {
		t.Error("a nil tracer makes a span")
	}
}
