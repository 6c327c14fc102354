package api

//go:generate go test . -run TestErrorsDoc -update

// CodeRow says what a code means: its HTTP status, its class for errors.Is, a
// sentence of meaning, and what to do next. docs/errors.md is made from Codes.
type CodeRow struct {
	Status  int
	Class   error
	Meaning string
	Fix     string
}

// The codes a request can be answered with.
const (
	CodeKeyMissing       Code = "key_missing"
	CodeKeyBlank         Code = "key_blank"
	CodeKeyMalformed     Code = "key_malformed"
	CodeKeyTooLong       Code = "key_too_long"
	CodeKeyReserved      Code = "key_reserved_form"
	CodeKeyRepeated      Code = "key_repeated"
	CodeKeyConflict      Code = "key_conflict"
	CodeKeyReused        Code = "key_reused"
	CodeInvalidJSON      Code = "invalid_json"
	CodeDuplicateMember  Code = "duplicate_member"
	CodeInvalidUnicode   Code = "invalid_unicode"
	CodeNULCharacter     Code = "nul_character"
	CodeByteOrderMark    Code = "byte_order_mark"
	CodeTrailingData     Code = "trailing_data"
	CodeTooDeep          Code = "too_deep"
	CodeNumberRange      Code = "number_out_of_range"
	CodeInvalidField     Code = "invalid_field"
	CodeUnknownField     Code = "unknown_field"
	CodeUnknownKind      Code = "unknown_kind"
	CodeInvalidInput     Code = "invalid_input"
	CodeInvalidParam     Code = "invalid_parameter"
	CodeTooLarge         Code = "too_large"
	CodeEncoding         Code = "unsupported_encoding"
	CodeMediaType        Code = "unsupported_media_type"
	CodeUnauthorized     Code = "unauthorized"
	CodeForbidden        Code = "forbidden"
	CodeNotFound         Code = "not_found"
	CodeMethod           Code = "method_not_allowed"
	CodeExpired          Code = "expired"
	CodeResultExpired    Code = "result_expired"
	CodeConflict         Code = "conflict"
	CodeSuperseded       Code = "superseded"
	CodeNotFinished      Code = "not_finished"
	CodeRateLimited      Code = "rate_limited"
	CodeOverQuota        Code = "over_quota"
	CodeHeld             Code = "held"
	CodeUnavailable      Code = "unavailable"
	CodeInternal         Code = "internal"
	CodeTimeout          Code = "timeout"
	CodeConnection       Code = "connection"
	CodeOutcomeUnknown   Code = "outcome_unknown"
	CodeWorkerLost       Code = "worker_lost"
	CodeFinishFailed     Code = "finish_failed"
	CodeCut              Code = "cut"
	CodeAttemptsExhaust  Code = "attempts_exhausted"
	CodeDeadline         Code = "deadline"
	CodeRejected         Code = "rejected"
	CodeQuotaExhausted   Code = "quota_exhausted"
	CodeBudgetExhausted  Code = "budget_exhausted"
	CodeResultTooLarge   Code = "result_too_large"
	CodeOutputTruncated  Code = "output_truncated"
	CodeBadOutput        Code = "bad_output"
	CodeRefusedByPerson  Code = "resolved_failed"
	CodeConfigRetired    Code = "config_retired"
	CodeRequestTimeout   Code = "request_timeout"
	CodeRenderFailed     Code = "render_failed"
	CodeNotSent          Code = "not_sent"
	CodeCancelled        Code = "cancelled"
	CodeDedupeMismatch   Code = "dedupe_mismatch"
	CodeEmptyBatch       Code = "empty_batch"
	CodeMissingID        Code = "missing_custom_id"
	CodeDuplicateID      Code = "duplicate_custom_id"
	CodeCutLine          Code = "cut_line"
	CodeBatchExpired     Code = "batch_expired"
	CodeOccurredRequired Code = "occurred_at_required"
	CodeContextLength    Code = "context_length"
	CodeContentFiltered  Code = "content_filtered"
	CodeModelNotFound    Code = "model_not_found"
	CodeBadRequestBody   Code = "bad_request_body"
	CodeUpstreamProtocol Code = "upstream_protocol"
	CodeUpstreamEmpty    Code = "upstream_empty"
	CodeUpstreamError    Code = "upstream_error"
	CodeNoFinishReason   Code = "no_finish_reason"
	CodeBadSignature     Code = "invalid_signature"
	CodeNoSourceKey      Code = "source_key_missing"
)

const retryLater = "Send the same request again with the same key after Retry-After; it is safe."

// Codes is the one table of error codes.
var Codes = map[Code]CodeRow{
	CodeKeyMissing:       {400, ErrInvalid, "The request has no Idempotency-Key, and the kind needs one.", "Send an Idempotency-Key header: 1 to 255 visible ASCII characters, made once before the first try and the same on every retry."},
	CodeKeyBlank:         {400, ErrInvalid, "The key header has nothing in it.", "Send 1 to 255 visible ASCII characters; look for an unset variable."},
	CodeKeyMalformed:     {400, ErrInvalid, "The key holds a character that is not visible ASCII, or is a broken quoted string.", "Use characters from 0x21 to 0x7E, without spaces; hash or percent-encode the rest."},
	CodeKeyTooLong:       {400, ErrInvalid, "The key is longer than 255 bytes.", "Send at most 255; hash longer ones."},
	CodeKeyReserved:      {400, ErrInvalid, "The key has the form that is kept for follow-up tasks.", "Choose another beginning."},
	CodeKeyRepeated:      {400, ErrInvalid, "The key header came more than once.", "Send exactly one Idempotency-Key header line; look for a proxy or a client layer that adds a second one."},
	CodeKeyConflict:      {400, ErrInvalid, "Idempotency-Key and X-Idempotency-Key are both present and differ.", "Send one of the two headers."},
	CodeKeyReused:        {422, ErrKeyReused, "The key was used before with another payload. Nothing was changed.", "Use a new key for a new intent, or send the payload of the first request; mismatch names the fields that differ."},
	CodeInvalidJSON:      {400, ErrInvalid, "The body is not one well-formed JSON value of the form asked.", "Send one JSON object in UTF-8, without duplicate members, and nothing after it."},
	CodeDuplicateMember:  {400, ErrInvalid, "An object in the body has one name twice.", "Send each name once; parsers disagree on which one counts."},
	CodeInvalidUnicode:   {400, ErrInvalid, "The body holds ill-formed UTF-8 or half a surrogate pair.", "Send well-formed UTF-8."},
	CodeNULCharacter:     {400, ErrInvalid, "The body holds the character U+0000, which cannot be stored as text.", "Remove it."},
	CodeByteOrderMark:    {400, ErrInvalid, "The body starts with a byte order mark.", "Send UTF-8 without one."},
	CodeTrailingData:     {400, ErrInvalid, "Something follows the JSON value.", "Send exactly one value."},
	CodeTooDeep:          {400, ErrInvalid, "The body is nested deeper than 200.", "Send a flatter value."},
	CodeNumberRange:      {400, ErrInvalid, "A number has too many digits or too large an exponent.", "Send it as a string."},
	CodeInvalidField:     {400, ErrInvalid, "A field has a value that is not allowed.", "Correct the field named in field."},
	CodeUnknownField:     {400, ErrInvalid, "The body has a field that does not exist.", "Remove it or correct its spelling; names are case-sensitive."},
	CodeUnknownKind:      {400, ErrInvalid, "No kind of that name is configured.", "Use one of the configured kinds, or add it to onefold.yaml and restart."},
	CodeInvalidInput:     {400, ErrInvalid, "The input does not fit its kind.", "Correct the input as the message says."},
	CodeInvalidParam:     {400, ErrInvalid, "A query parameter or header has a value that is not allowed.", "Correct the parameter named in field."},
	CodeTooLarge:         {413, ErrInvalid, "The request is larger than the limit.", "Send at most 8 MiB; put large documents elsewhere and send a reference."},
	CodeEncoding:         {415, ErrInvalid, "The body has a Content-Encoding or charset that is not supported.", "Send plain UTF-8 JSON without Content-Encoding."},
	CodeMediaType:        {415, ErrInvalid, "The body is not declared as JSON.", "Send Content-Type: application/json."},
	CodeUnauthorized:     {401, ErrUnauthorized, "The API key is missing, wrong, expired or revoked.", "Send Authorization: Bearer of_..., a key made by `onefold keys create`."},
	CodeForbidden:        {403, ErrForbidden, "The API key lacks the scope this needs.", "Use a key with the scope named in the message."},
	CodeNotFound:         {404, ErrNotFound, "There is no such thing, or it belongs to another tenant.", "Check the id, and that the API key is of the tenant that submitted it."},
	CodeMethod:           {405, ErrInvalid, "The path exists, but not with this method.", "See /openapi.yaml for the methods of this path."},
	CodeExpired:          {410, ErrExpired, "The task is past its retention and was purged; its outcome stands in the tombstone.", "Keep results on your side within the retention, or raise it in onefold.yaml."},
	CodeResultExpired:    {410, ErrExpired, "The payload was purged before the key; the outcome and the result's hash are kept.", "Raise payload_retention, or keep results on your side."},
	CodeConflict:         {409, ErrConflict, "The task is not in a state, or no longer at the epoch, that this act needs.", "Read the task again and decide anew."},
	CodeSuperseded:       {409, ErrConflict, "Another unfinished task holds the same key.", "Work with that task, or wait until it has finished."},
	CodeNotFinished:      {409, ErrConflict, "The task has no result yet.", "Poll until it is final; ?wait=30s holds the answer."},
	CodeRateLimited:      {429, ErrRateLimited, "Requests come faster than this source may send them. Nothing was stored.", retryLater},
	CodeOverQuota:        {429, ErrRateLimited, "The tenant is over one of its quotas, which quota names. Nothing was stored; a duplicate would have been answered.", retryLater},
	CodeHeld:             {503, ErrUnavailable, "An operator holds new submits of this kind or tenant. Nothing was stored.", retryLater},
	CodeUnavailable:      {503, ErrUnavailable, "The database cannot be reached or is overloaded. Whether this request was stored will show when it is sent again.", retryLater},
	CodeInternal:         {500, ErrInternal, "Something went wrong that is not the caller's fault.", "Report the request_id; sending the same request again with the same key is safe."},
	CodeTimeout:          {0, ErrUnavailable, "The client gave up waiting. The task goes on.", "Poll the task by id or send the same request with the same key."},
	CodeConnection:       {0, ErrUnavailable, "The client could not reach the server.", "Check the URL and that the server runs; sending the same request with the same key is safe."},
	CodeOutcomeUnknown:   {0, ErrUnknown, "A call was sent and its outcome is not known.", "Check on the provider's side, then resolve the task: succeeded, failed or retry."},
	CodeWorkerLost:       {0, ErrUnknown, "The worker was lost three times in a row while running this task.", "Look at the workers' logs (memory, crashes) before `retry`."},
	CodeFinishFailed:     {0, ErrUnknown, "The call succeeded but its result and effects could not be stored together; the reply is kept.", "Mend the effect named in the message, then resolve with action finish: no new call is made."},
	CodeCut:              {0, ErrUnknown, "The reply was cut off; what came is kept.", "Look at the partial text, then resolve: succeeded, failed or retry."},
	CodeAttemptsExhaust:  {0, ErrFailed, "All attempts were used without a result.", "See the attempts for the reason; submit the same key again to reopen where the kind allows it."},
	CodeDeadline:         {0, ErrFailed, "The deadline passed before a result was there.", "Submit the same key again to reopen, with a later deadline."},
	CodeRejected:         {0, ErrFailed, "The provider rejected the request as it stands.", "Correct the request and submit it under a new key."},
	CodeQuotaExhausted:   {0, ErrFailed, "The provider's quota or credit is used up.", "Raise the quota, release the provider, and submit the same key again."},
	CodeBudgetExhausted:  {0, ErrFailed, "The send budget of this task or of its named budget is used up.", "Raise the budget and submit the same key again."},
	CodeResultTooLarge:   {0, ErrFailed, "The provider's reply is larger than 64 MiB.", "Ask for less in one task."},
	CodeOutputTruncated:  {0, ErrFailed, "The model's output was cut by its length limit, so that it is no whole JSON.", "Raise max_tokens or ask for less."},
	CodeBadOutput:        {0, ErrFailed, "The provider answered 200, but not with what the kind's output asks for.", "See the attempts for what was wrong with it."},
	CodeRefusedByPerson:  {0, ErrFailed, "A person resolved the task as failed.", "See the audit of the task."},
	CodeConfigRetired:    {0, ErrFailed, "The configuration this task was submitted under is no longer known.", "Submit the same key again to reopen under the newest configuration."},
	CodeRequestTimeout:   {408, ErrUnavailable, "The request body did not arrive in time. Nothing was stored.", "Send the same request again with the same key."},
	CodeRenderFailed:     {0, ErrFailed, "The kind's request template could not be rendered with this input.", "Correct the input: the message names the missing field."},
	CodeNotSent:          {0, ErrFailed, "The provider could not be reached; nothing was sent.", "Check the provider's URL and network."},
	CodeCancelled:        {0, ErrFailed, "The task was cancelled.", "Submit under a new key to run it after all."},
	CodeDedupeMismatch:   {400, ErrInvalid, "The request's dedupe mode is not the one the kind fixes.", "Leave dedupe out, or send the kind's own mode."},
	CodeEmptyBatch:       {400, ErrInvalid, "The file holds no line. Nothing was stored.", "Send one request a line (JSONL)."},
	CodeMissingID:        {400, ErrInvalid, "A line has no custom_id (in our own form: no key), so that its result could not be told from others. The whole file was refused.", "Give every line an id of its own; the same on every try."},
	CodeDuplicateID:      {400, ErrInvalid, "Two lines have the same custom_id (in our own form: the same key and kind). The whole file was refused.", "Give every line an id of its own, or remove the second one."},
	CodeCutLine:          {400, ErrInvalid, "The last line has no line end and is no whole JSON value: the file was cut off. Nothing of it was stored.", "Send the whole file again."},
	CodeBatchExpired:     {0, ErrFailed, "The batch's deadline passed before this line could be run.", "Retry the batch: only such and failed lines run again."},
	CodeOccurredRequired: {400, ErrInvalid, "The kind dedupes by a time window and needs occurred_at, the event's own time.", "Send occurred_at as RFC 3339."},
	CodeContextLength:    {0, ErrFailed, "The input is longer than the model's context.", "Shorten the input or use a model with a larger context, under a new key."},
	CodeContentFiltered:  {0, ErrFailed, "The provider refused the content, or filtered the reply.", "Change the input; sending it again as it is brings the same."},
	CodeModelNotFound:    {0, ErrFailed, "The provider has no model of that name, or the credential may not use it.", "Correct the model's name, under a new key."},
	CodeBadRequestBody:   {0, ErrFailed, "The request made of the input is not a JSON object; nothing was sent.", "Correct the input, or the kind's request template."},
	CodeUpstreamProtocol: {0, ErrFailed, "What answered does not speak the provider's protocol: HTML, no JSON, a broken stream.", "Check the provider's base_url and what stands between; the attempts keep what came."},
	CodeUpstreamEmpty:    {0, ErrFailed, "The provider answered 200 without any content.", "See the attempts; submit the same key again to reopen where the kind allows it."},
	CodeUpstreamError:    {0, ErrFailed, "The provider answered 200 and said inside the reply that it failed.", "See the attempts; submit the same key again to reopen where the kind allows it."},
	CodeNoFinishReason:   {0, ErrFailed, "The provider said that it was done, but not how the reply ended: it may be a part.", "See the attempts; submit the same key again to reopen where the kind allows it."},
	CodeBadSignature:     {401, ErrUnauthorized, "The webhook is not signed by its source, or its time is too far off. Nothing was stored.", "Compare the secrets of both sides, and the clocks; the body must arrive byte for byte as it was signed."},
	CodeNoSourceKey:      {400, ErrInvalid, "The webhook is signed, but no idempotency key can be made of it. Nothing was stored.", "Correct the source's key template in onefold.yaml: it needs fields that every event has."},
}
