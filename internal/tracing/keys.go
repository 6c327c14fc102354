package tracing

import "go.opentelemetry.io/otel/attribute"

// Attributes of OpenTelemetry's conventions (general, HTTP and messaging as of 1.43, GenAI as of 1.41, where that part
// was last published with them). TestConventions compares them with the published lists.
const (
	ErrorType     = attribute.Key("error.type")
	ServerAddress = attribute.Key("server.address")
	ServerPort    = attribute.Key("server.port")

	HTTPMethod = attribute.Key("http.request.method")
	HTTPStatus = attribute.Key("http.response.status_code")
	HTTPRoute  = attribute.Key("http.route")

	MessagingSystem       = attribute.Key("messaging.system")
	MessagingDestination  = attribute.Key("messaging.destination.name")
	MessagingOperation    = attribute.Key("messaging.operation.name")
	MessagingOperationOf  = attribute.Key("messaging.operation.type")
	MessagingMessageID    = attribute.Key("messaging.message.id")
	MessagingBatchCount   = attribute.Key("messaging.batch.message_count")
	MessagingConversation = attribute.Key("messaging.message.conversation_id")

	GenAIOperation     = attribute.Key("gen_ai.operation.name")
	GenAIProvider      = attribute.Key("gen_ai.provider.name")
	GenAIRequestModel  = attribute.Key("gen_ai.request.model")
	GenAIStream        = attribute.Key("gen_ai.request.stream")
	GenAIResponseModel = attribute.Key("gen_ai.response.model")
	GenAIFinishReasons = attribute.Key("gen_ai.response.finish_reasons")
	GenAIFirstChunk    = attribute.Key("gen_ai.response.time_to_first_chunk") // seconds
	GenAIInput         = attribute.Key("gen_ai.usage.input_tokens")
	GenAIOutput        = attribute.Key("gen_ai.usage.output_tokens")
	GenAICached        = attribute.Key("gen_ai.usage.cache_read.input_tokens")
	GenAIReasoning     = attribute.Key("gen_ai.usage.reasoning.output_tokens")
)

// Attributes of our own, for which there is no convention.
const (
	Tenant    = attribute.Key("onefold.tenant")
	Kind      = attribute.Key("onefold.kind")
	TaskKey   = attribute.Key("onefold.key") // the caller's idempotency key
	TaskID    = attribute.Key("onefold.task.id")
	Run       = attribute.Key("onefold.run")
	Attempt   = attribute.Key("onefold.attempt")
	QueueWait = attribute.Key("onefold.queue.wait") // seconds from due to claimed
	State     = attribute.Key("onefold.state")      // where the task or effect went
	Outcome   = attribute.Key("onefold.outcome")    // the class of what came of it
	Provider  = attribute.Key("onefold.provider")   // its name in the configuration
	Phase     = attribute.Key("onefold.phase")      // how far the call came
	Billed    = attribute.Key("onefold.billed")
	RequestID = attribute.Key("onefold.request.id")
	BatchID   = attribute.Key("onefold.batch.id")
	Created   = attribute.Key("onefold.created")
	Reopened  = attribute.Key("onefold.reopened")
	Fenced    = attribute.Key("onefold.fenced")
	EffectID  = attribute.Key("onefold.effect.id")
	Effect    = attribute.Key("onefold.effect.name")
	EffectOf  = attribute.Key("onefold.effect.type")
)

// allowed are the attributes that a span may carry; all others are dropped.
var allowed = setOf(
	ErrorType, ServerAddress, ServerPort, HTTPMethod, HTTPStatus, HTTPRoute,
	MessagingSystem, MessagingDestination, MessagingOperation, MessagingOperationOf, MessagingMessageID, MessagingBatchCount, MessagingConversation,
	GenAIOperation, GenAIProvider, GenAIRequestModel, GenAIStream, GenAIResponseModel, GenAIFinishReasons, GenAIFirstChunk,
	GenAIInput, GenAIOutput, GenAICached, GenAIReasoning,
	Tenant, Kind, TaskKey, TaskID, Run, Attempt, QueueWait, State, Outcome, Provider, Phase, Billed, RequestID, BatchID, Created, Reopened,
	Fenced, EffectID, Effect, EffectOf,
)

func setOf(keys ...attribute.Key) map[attribute.Key]bool {
	m := make(map[attribute.Key]bool, len(keys))
	for _, k := range keys {
		m[k] = true
	}
	return m
}

// System is the value of messaging.system: the queue is our own.
const System = "onefold"
