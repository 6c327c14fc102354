package telemetry

// Keys that every part of the program uses for the same thing. Spelled out as constants so that a typing error is a
// compile error.
const (
	KeyTenant    = "tenant"
	KeyKind      = "kind"
	KeyKey       = "key"
	KeyTaskID    = "task_id"
	KeyRun       = "run"
	KeyAttempt   = "attempt"
	KeyRequestID = "request_id"
	KeyTraceID   = "trace_id"
	KeyInputHash = "input_hash"
	KeyInstance  = "instance"
	KeyError     = "error"
	KeyURL       = "url"
	KeyDuration  = "duration_ms"
)

// allowed lists the attribute keys a log line may carry. A key belongs here only when its values come from us, from
// the operator, or are identifiers, numbers and codes: never text written by a caller or a model.
var allowed = setOf(
	// The fixed fields.
	KeyTenant, KeyKind, KeyKey, KeyTaskID, KeyRun, KeyAttempt, KeyRequestID, KeyTraceID, KeyInputHash, KeyInstance,
	// The process and its parts.
	"component", "version", "commit", "go_version", "pid", "addr", "admin_addr", "incarnation", "signal", "config",
	"config_hash", "database", "role", "schema", "migration", "setting", "want", "got", "name", "source", "file", "line",
	// An HTTP request served.
	"method", "route", "status", "bytes_in", "bytes_out", "remote", "user_agent", "api_key_id", "scope", "created", "replayed",
	"reopened", "waited_ms", "request", "items", "tasks", "refused", "lines", "ingested",
	// A task, an attempt, a call.
	"state", "from", "to", "outcome", "epoch", "token", "owner", "slot", "priority", "provider", "model", "class", "code",
	"permanent", "finish_reason", "truncated", "phase", "first_byte_ms", "total_ms", "queue_ms", "run_at", "deadline",
	"retry_after_ms", "wait_ms", "input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens", "billed", "cost",
	"call_id", "provider_request_id", "result_hash", "result_bytes", "fenced", "stream", "known",
	// An effect, a delivery.
	"effect", "effect_id", "effect_name", "effect_type", "destination", "delivery", "delivery_id", "repeat", "gate", "answer",
	// Queues, groups, upkeep.
	"queue", "job_id", "count", "size", "batch", "batch_id", "limit", "oldest_ms", "lease_ms", "age_ms", "expires_at", "purged",
	"reaped", "woken", "lost", "held", "hold", "review", "round", "gap_ms", "waiters", "dropped_attrs",
	// Failures.
	KeyError, "reason", "fix", "sqlstate", "constraint", "table", "panic", "stack", KeyURL, "host", KeyDuration,
	// The operator's actions.
	"actor", "action", "target",
)

// freeText lists the keys whose values are sentences or come from outside, and so are searched for credentials.
var freeText = setOf(KeyError, "reason", "fix", "panic", "stack", "setting", "want", "got", "config", "database", "source", "user_agent", "remote", "addr", "host")

func setOf(keys ...string) map[string]bool {
	m := make(map[string]bool, len(keys))
	for _, k := range keys {
		m[k] = true
	}
	return m
}
