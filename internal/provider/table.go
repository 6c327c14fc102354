package provider

import "slices"

// Rule is one row of the failure table: an observation, and what follows from it.
type Rule struct {
	// Section groups the rows; within a call the sections are asked in the order of Sections.
	Section Section
	// On is the observation in words.
	On string
	// Words are the provider's own code words (lower case) that match; only in SectionCode.
	Words []string
	// Statuses are the HTTP statuses that match, as closed ranges; only in SectionStatus, most narrow row first.
	Statuses [][2]int
	// Class and Code are the verdict. A code may be reached by several observations, always with one class.
	Class Class
	Code  string
	// Permanent is what the task's error says when this ends it.
	Permanent bool
	// Known says in words what is known.
	Known string
	// Billed says whether the provider may charge for it.
	Billed Billed
	// Gate is what the provider's gate does.
	Gate Gate
	// Next says in words what happens next.
	Next string
}

// Section names where in a call an observation is made.
type Section string

// The sections of the table.
const (
	SectionOurs    Section = "Before the call"
	SectionNetwork Section = "Network, by phase"
	SectionCode    Section = "Codes the provider gives (looked at before the status)"
	SectionStatus  Section = "HTTP status (when no code says more)"
	SectionReply   Section = "Inside a reply with status 2xx"
	SectionJob     Section = "Background jobs and status requests"
)

// Sections lists the sections in the order of the documentation.
func Sections() []Section {
	return []Section{SectionOurs, SectionNetwork, SectionCode, SectionStatus, SectionReply, SectionJob}
}

// The codes of failed calls.
const (
	CodeInternal         = "internal"
	CodeBadRequestBody   = "bad_request_body"
	CodeResolveFailed    = "resolve_failed"
	CodeRefusedConn      = "connection_refused"
	CodeConnectFailed    = "connect_failed"
	CodeConnectTimeout   = "connect_timeout"
	CodeTLSFailed        = "tls_failed"
	CodeWriteFailed      = "write_failed"
	CodeWriteTimeout     = "write_timeout"
	CodeNotSentCancelled = "cancelled_before_send"
	CodeCancelled        = "cancelled"
	CodeConnectionLost   = "connection_lost"
	CodeFirstByteTimeout = "first_byte_timeout"
	CodeIdleTimeout      = "idle_timeout"
	CodeTotalTimeout     = "total_timeout"
	CodeBodyCut          = "body_cut"
	CodeStreamCut        = "stream_cut"
	CodeStreamError      = "stream_error"

	CodeQuotaExhausted  = "quota_exhausted"
	CodeRateLimited     = "rate_limited"
	CodeOverloaded      = "overloaded"
	CodeUnauthorized    = "unauthorized"
	CodeContextLength   = "context_length"
	CodeContentFiltered = "content_filtered"
	CodeModelNotFound   = "model_not_found"

	CodeInvalidRequest  = "invalid_request"
	CodeForbidden       = "forbidden"
	CodeNotFound        = "not_found"
	CodeRequestTooLarge = "request_too_large"
	CodeRejected        = "request_rejected"
	CodeTooEarly        = "too_early"
	CodeRequestTimeout  = "request_timeout"
	CodeConflict        = "conflict"
	CodeClientClosed    = "client_closed_request"
	CodeServerError     = "server_error"
	CodeBadGateway      = "bad_gateway"
	CodeUnavailable     = "unavailable"
	CodeGatewayTimeout  = "gateway_timeout"
	CodeOriginFailed    = "origin_unreachable"
	CodeRedirect        = "redirect"
	CodeUnexpected      = "unexpected_status"

	CodeProtocol       = "upstream_protocol"
	CodeEmpty          = "upstream_empty"
	CodeUpstreamError  = "upstream_error"
	CodeNoFinishReason = "no_finish_reason"
	CodeResultTooLarge = "result_too_large"

	CodeJobGone       = "job_gone"
	CodeJobCancelled  = "job_cancelled"
	CodeStatusUnclear = "status_unclear"
)

// What follows, in words that several rows share.
const (
	nextResend    = "sent again after 2, 4, 8, 16, 32 s; no attempt used (after 5 in a row each counts)"
	nextWait      = "sent again after Retry-After, else after a backoff; no attempt used"
	nextFinal     = "final: failed, permanent"
	nextHeld      = "the provider is held and an alert raised; the task waits; no attempt used"
	nextUnknown   = "`on_unknown` decides: retry (uses an attempt) or review"
	nextCut       = "`on_cut` decides: keep, regenerate (uses an attempt) or review; what came is kept"
	nextRetry     = "retried within the attempts; the reply is kept on the attempt"
	nextTerminate = "final: failed, permanent; one call"
)

// Table is the failure table: every observation after which a call has not succeeded. docs/failures.md is generated
// from it. The first row that matches in a section decides.
//
// Sources: RFC 9110 section 15 (statuses), RFC 8470 (425), RFC 6585 (429), the nginx status 499 and the Cloudflare
// statuses 520–530; the code words are those the providers document, compared whole and without case. Message texts
// are never looked at: one provider words every rate limit as an exhausted quota.
var Table = slices.Concat(oursRules, networkRules, codeRules, statusRules, replyRules, jobRules)

var oursRules = []Rule{
	{
		Section: SectionOurs, On: "the request body is not a JSON object", Class: Rejected, Code: CodeBadRequestBody,
		Permanent: true, Known: "nothing was sent", Billed: BilledNo, Next: nextFinal,
	},
	{
		Section: SectionOurs, On: "the caller ended the call before the request was fully written",
		Class: NotSent, Code: CodeNotSentCancelled, Known: "the provider cannot have the whole request", Billed: BilledNo,
		Next: "whoever ended it decides; no attempt used",
	},
	{
		Section: SectionOurs, On: "the caller ended the call after the request was written (stop, cancel, deadline, lost lease)",
		Class: Unknown, Code: CodeCancelled, Known: "the provider may be working on it still", Billed: BilledUnknown,
		Next: nextUnknown,
	},
	{
		Section: SectionOurs, On: "a fault of onefold itself in the call", Class: Unknown, Code: CodeInternal,
		Known: "nothing for certain", Billed: BilledUnknown, Next: nextUnknown,
	},
}

var networkRules = []Rule{
	{
		Section: SectionNetwork, On: "the host name was not resolved", Class: NotSent, Code: CodeResolveFailed,
		Known: "nothing was sent", Billed: BilledNo, Next: nextResend,
	},
	{
		Section: SectionNetwork, On: "the connection was refused", Class: NotSent, Code: CodeRefusedConn,
		Known: "nothing was sent", Billed: BilledNo, Next: nextResend,
	},
	{
		Section: SectionNetwork, On: "dialling failed otherwise (no route, unreachable, not allowed)", Class: NotSent,
		Code: CodeConnectFailed, Known: "nothing was sent", Billed: BilledNo, Next: nextResend,
	},
	{
		Section: SectionNetwork, On: "resolve, dial and TLS together took longer than the connect timeout", Class: NotSent,
		Code: CodeConnectTimeout, Known: "nothing was sent", Billed: BilledNo, Next: nextResend,
	},
	{
		Section: SectionNetwork, On: "the TLS handshake failed (certificate, protocol, cut)", Class: NotSent, Code: CodeTLSFailed,
		Known: "nothing was sent", Billed: BilledNo, Next: nextResend,
	},
	{
		Section: SectionNetwork, On: "the connection broke before the request was fully written", Class: NotSent,
		Code: CodeWriteFailed, Known: "the provider has at most a part of a body whose length it was told", Billed: BilledNo,
		Next: nextResend,
	},
	{
		Section: SectionNetwork, On: "the first-byte or total timeout ran out before the request was fully written", Class: NotSent,
		Code: CodeWriteTimeout, Known: "the provider has at most a part of a body whose length it was told", Billed: BilledNo,
		Next: nextResend,
	},
	{
		Section: SectionNetwork, On: "the connection broke after the request was written, before the reply's headers", Class: Unknown,
		Code: CodeConnectionLost, Known: "the provider may have done the work", Billed: BilledUnknown, Next: nextUnknown,
	},
	{
		Section: SectionNetwork, On: "no first token (not streamed: no first byte) within the first-byte timeout", Class: Unknown,
		Code: CodeFirstByteTimeout, Known: "the provider may be working on it still", Billed: BilledUnknown, Next: nextUnknown,
	},
	{
		Section: SectionNetwork, On: "no progress within the idle timeout; comments and pings are no progress", Class: Unknown,
		Code: CodeIdleTimeout, Known: "tokens came, then none", Billed: BilledYes, Next: nextCut,
	},
	{
		Section: SectionNetwork, On: "the total timeout ran out", Class: Unknown,
		Code: CodeTotalTimeout, Known: "the provider may be working on it still", Billed: BilledUnknown, Next: nextUnknown,
	},
	{
		Section: SectionNetwork, On: "a reply that is not streamed broke off before its end", Class: Unknown, Code: CodeBodyCut,
		Known: "the provider did the work; the reply is lost", Billed: BilledYes, Next: nextUnknown,
	},
	{
		Section: SectionNetwork, On: "a stream ended or broke without a terminal signal", Class: Unknown, Code: CodeStreamCut,
		Known: "what came may be a part", Billed: BilledUnknown, Next: nextCut,
	},
}

var codeRules = []Rule{
	{
		Section: SectionCode, On: "quota or credit is used up", Class: Rejected, Code: CodeQuotaExhausted,
		Words: []string{
			"insufficient_quota", "quota_exhausted", "exceeded_current_quota_error", "billing_hard_limit_reached",
			"billing_not_active", "billing_error", "insufficient_balance", "insufficient_credits", "insufficient_funds",
			"payment_required", "credit_exhausted",
		},
		Known: "turned away at the gate; waiting does not help", Billed: BilledNo, Gate: GateHold,
		Next: "failed, not permanent, a batch's line waits; the provider is held",
	},
	{
		Section: SectionCode, On: "rate limit", Class: Refused, Code: CodeRateLimited,
		Words: []string{
			"rate_limit_exceeded", "rate_limit_error", "rate_limit_reached", "rate_limited", "rate_limit",
			"rate_limit_reached_error", "too_many_requests", "toomanyrequests", "throttled", "throttling",
			"throttlingexception", "throttling_error", "resource_exhausted",
		},
		Known: "turned away at the gate", Billed: BilledNo, Gate: GateCool, Next: nextWait,
	},
	{
		Section: SectionCode, On: "overloaded", Class: Refused, Code: CodeOverloaded,
		Words: []string{
			"overloaded", "overloaded_error", "engine_overloaded", "engine_overloaded_error", "server_overloaded",
			"server_overloaded_error", "model_overloaded", "model_overloaded_error", "slow_down",
		},
		Known: "turned away at the gate", Billed: BilledNo, Gate: GateCool, Next: nextWait,
	},
	{
		Section: SectionCode, On: "the credential is wrong, expired or not allowed", Class: Unauthorized, Code: CodeUnauthorized,
		Words: []string{
			"invalid_api_key", "incorrect_api_key", "missing_api_key", "expired_api_key", "authentication_error",
			"invalid_authentication", "invalid_authentication_error", "incorrect_api_key_error", "unauthenticated",
			"unauthorized", "token_expired", "invalid_token", "permission_error", "permission_denied",
			"insufficient_permissions", "account_deactivated", "organization_deactivated", "access_terminated",
			"access_terminated_error", "ip_not_authorized", "unsupported_country_region_territory",
		},
		Known: "turned away; the task is not at fault", Billed: BilledNo, Gate: GateHold, Next: nextHeld,
	},
	{
		Section: SectionCode, On: "the input is longer than the model's context", Class: Rejected, Code: CodeContextLength,
		Words: []string{
			"context_length_exceeded", "context_window_exceeded", "string_above_max_length", "prompt_too_long",
			"input_too_long", "tokens_limit_reached", "max_tokens_exceeded", "exceed_context_size_error",
		},
		Permanent: true, Known: "refused as too long", Billed: BilledNo, Next: nextTerminate,
	},
	{
		Section: SectionCode, On: "the content is not allowed", Class: Rejected, Code: CodeContentFiltered,
		Words: []string{
			"content_filter", "content_filtered", "content_policy_violation", "responsibleaipolicyviolation",
			"moderation_blocked", "data_inspection_failed", "content_blocked", "prohibited_content", "invalid_prompt",
			"image_content_policy_violation", "sensitive_content",
		},
		Permanent: true, Known: "refused for its content", Billed: BilledUnknown, Next: nextTerminate,
	},
	{
		Section: SectionCode, On: "no such model", Class: Rejected, Code: CodeModelNotFound,
		Words:     []string{"model_not_found", "model_not_available", "unknown_model", "deploymentnotfound"},
		Permanent: true, Known: "refused", Billed: BilledNo, Next: nextTerminate,
	},
}

var statusRules = []Rule{
	{
		Section: SectionStatus, On: "3xx: a redirect; never followed", Statuses: [][2]int{{300, 399}}, Class: Rejected, Code: CodeRedirect,
		Permanent: true, Known: "the address of the provider is wrong", Billed: BilledNo, Next: nextFinal,
	},
	{
		Section: SectionStatus, On: "401", Statuses: [][2]int{{401, 401}}, Class: Unauthorized, Code: CodeUnauthorized,
		Known: "turned away; the task is not at fault", Billed: BilledNo, Gate: GateHold, Next: nextHeld,
	},
	{
		Section: SectionStatus, On: "402: payment required", Statuses: [][2]int{{402, 402}}, Class: Rejected, Code: CodeQuotaExhausted,
		Known: "turned away at the gate; waiting does not help", Billed: BilledNo, Gate: GateHold,
		Next: "failed, not permanent, a batch's line waits; the provider is held",
	},
	{
		Section: SectionStatus, On: "403 without a code of authentication", Statuses: [][2]int{{403, 403}}, Class: Rejected, Code: CodeForbidden,
		Permanent: true, Known: "refused", Billed: BilledNo,
		Next: nextFinal + "; three different tasks in a row count as unauthorized",
	},
	{
		Section: SectionStatus, On: "404", Statuses: [][2]int{{404, 404}}, Class: Rejected, Code: CodeNotFound,
		Permanent: true, Known: "no such model or address", Billed: BilledNo, Next: nextFinal,
	},
	{
		Section: SectionStatus, On: "408: the server gave up on the request", Statuses: [][2]int{{408, 408}}, Class: Unknown, Code: CodeRequestTimeout,
		Known: "whether it was carried out is not known", Billed: BilledUnknown, Next: nextUnknown,
	},
	{
		Section: SectionStatus, On: "409", Statuses: [][2]int{{409, 409}}, Class: Unknown, Code: CodeConflict,
		Known: "another request may be carrying it out", Billed: BilledUnknown, Next: nextUnknown,
	},
	{
		Section: SectionStatus, On: "413: the request is too large", Statuses: [][2]int{{413, 413}}, Class: Rejected, Code: CodeRequestTooLarge,
		Permanent: true, Known: "refused", Billed: BilledNo, Next: nextFinal,
	},
	{
		Section: SectionStatus, On: "425: too early", Statuses: [][2]int{{425, 425}}, Class: Refused, Code: CodeTooEarly,
		Known: "not carried out", Billed: BilledNo, Next: nextWait,
	},
	{
		Section: SectionStatus, On: "429", Statuses: [][2]int{{429, 429}}, Class: Refused, Code: CodeRateLimited,
		Known: "turned away at the gate", Billed: BilledNo, Gate: GateCool, Next: nextWait,
	},
	{
		Section: SectionStatus, On: "499: a proxy says that we went away", Statuses: [][2]int{{499, 499}}, Class: Unknown, Code: CodeClientClosed,
		Known: "whether it was carried out is not known", Billed: BilledUnknown, Next: nextUnknown,
	},
	{
		Section: SectionStatus, On: "400, 422", Statuses: [][2]int{{400, 400}, {422, 422}}, Class: Rejected, Code: CodeInvalidRequest,
		Permanent: true, Known: "refused", Billed: BilledNo, Next: nextFinal,
	},
	{
		Section: SectionStatus, On: "other 4xx", Statuses: [][2]int{{400, 499}}, Class: Rejected, Code: CodeRejected,
		Permanent: true, Known: "refused", Billed: BilledNo, Next: nextFinal,
	},
	{
		Section: SectionStatus, On: "502: a gateway got no good answer", Statuses: [][2]int{{502, 502}}, Class: Unknown, Code: CodeBadGateway,
		Known: "the gateway does not know", Billed: BilledUnknown, Next: nextUnknown,
	},
	{
		Section: SectionStatus, On: "503 (Retry-After is kept to)", Statuses: [][2]int{{503, 503}}, Class: Unknown, Code: CodeUnavailable,
		Known: "whether it was carried out is not known", Billed: BilledUnknown, Next: nextUnknown,
	},
	{
		Section: SectionStatus, On: "504, 524: a gateway did not wait", Statuses: [][2]int{{504, 504}, {524, 524}}, Class: Unknown, Code: CodeGatewayTimeout,
		Known: "the work often finishes behind the gateway", Billed: BilledUnknown, Next: nextUnknown,
	},
	{
		Section: SectionStatus, On: "520–523, 525–528, 530: a gateway and its origin did not understand each other",
		Statuses: [][2]int{{520, 523}, {525, 528}, {530, 530}}, Class: Unknown, Code: CodeOriginFailed,
		Known: "the gateway does not know", Billed: BilledUnknown, Next: nextUnknown,
	},
	{
		Section: SectionStatus, On: "529 without a code: overloaded, but said with a 5xx", Statuses: [][2]int{{529, 529}}, Class: Unknown,
		Code: CodeServerError, Known: "whether it was carried out is not known", Billed: BilledUnknown, Gate: GateCool, Next: nextUnknown,
	},
	{
		Section: SectionStatus, On: "500 and other 5xx", Statuses: [][2]int{{500, 599}}, Class: Unknown, Code: CodeServerError,
		Known: "whether it was carried out is not known", Billed: BilledUnknown, Next: nextUnknown,
	},
	{
		Section: SectionStatus, On: "any other status", Statuses: [][2]int{{0, 999}}, Class: Unknown, Code: CodeUnexpected,
		Known: "nothing for certain", Billed: BilledUnknown, Next: nextUnknown,
	},
}

var replyRules = []Rule{
	{
		Section: SectionReply, On: "the reply is not what the protocol says: HTML, no JSON, cut JSON, a broken event, an unknown encoding",
		Class: BadOutput, Code: CodeProtocol, Known: "something answered", Billed: BilledUnknown, Next: nextRetry,
	},
	{
		Section: SectionReply, On: "no choice, or a choice without content", Class: BadOutput, Code: CodeEmpty,
		Known: "an answer without content", Billed: BilledUnknown, Next: nextRetry,
	},
	{
		Section: SectionReply, On: "an error object without a code we know, or the finish reason \"error\"", Class: BadOutput,
		Code: CodeUpstreamError, Known: "the provider says that it failed", Billed: BilledUnknown, Next: nextRetry,
	},
	{
		Section: SectionReply, On: "the provider says that it is done, and a choice has no finish reason", Class: BadOutput,
		Code: CodeNoFinishReason, Known: "the text may be a part", Billed: BilledYes, Next: nextRetry,
	},
	{
		Section: SectionReply, On: "an error event after the first token", Class: Unknown, Code: CodeStreamError,
		Known: "a part came", Billed: BilledYes, Next: nextCut,
	},
	{
		Section: SectionReply, On: "the finish reason says that the content was filtered", Class: Rejected, Code: CodeContentFiltered,
		Permanent: true, Known: "refused for its content", Billed: BilledUnknown, Next: nextTerminate,
	},
	{
		Section: SectionReply, On: "the reply is larger than 64 MiB", Class: Rejected, Code: CodeResultTooLarge,
		Permanent: true, Known: "the work was done; the reply cannot be stored", Billed: BilledYes, Next: nextTerminate,
	},
}

var jobRules = []Rule{
	{
		Section: SectionJob, On: "the provider no longer knows the background job", Class: Unknown, Code: CodeJobGone,
		Known: "the work may have been done; its result can no longer be had", Billed: BilledUnknown, Next: nextUnknown,
	},
	{
		Section: SectionJob, On: "the background job was cancelled, and not by us", Class: Unknown, Code: CodeJobCancelled,
		Known: "the work was begun and stopped", Billed: BilledUnknown, Next: nextUnknown,
	},
	{
		Section: SectionJob, On: "a status request cannot tell what became of an earlier call", Class: Unknown,
		Code: CodeStatusUnclear, Known: "whether it was carried out is not known", Billed: BilledUnknown, Next: nextUnknown,
	},
}
