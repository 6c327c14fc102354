package server

import (
	"encoding/json"
	"net/http"

	"github.com/onefold-dev/onefold/api"
)

// routes registers everything the API serves. The statuses of a route are those
// its handler gives; those that come before any handler (401, 403, and 503, 500
// for all that read) are added by describe.
func (s *Server) routes() {
	// Callers: hand over a task, once.
	serve(s, route{
		method: http.MethodPost, path: "/v1/tasks", id: "submitTask", scopes: may(api.ScopeSubmit), resource: "tasks",
		summary: "Submit a task", doc: docSubmit, body: api.Submit{}, keyed: true,
		answers: is{
			202: aTask("New. `created` is true; 202 also when a wait saw it finish.", "Location", "Retry-After", "Preference-Applied"),
			200: aTask("The key already means this task, which stands as shown; or it was reopened.", "Idempotent-Replayed", "Retry-After", "Preference-Applied"),
			400: refused, 408: refused, 413: refused, 415: refused, 422: refused,
		},
	}, s.submit)

	// Callers with many: the client's SubmitMany.
	serve(s, route{
		method: http.MethodPost, path: "/v1/tasks/bulk", id: "submitTasks", scopes: may(api.ScopeSubmit), resource: "tasks",
		summary: "Submit many tasks", doc: docBulk, body: bulkBody{},
		answers: is{200: object[api.BulkAnswer]("One answer for each task, in their order."), 400: refused, 408: refused, 413: refused, 415: refused},
	}, s.bulk)

	// Callers who wait for whichever of many comes first: the client's WaitAny.
	serve(s, route{
		method: http.MethodPost, path: "/v1/tasks/wait", id: "waitAny", scopes: may(api.ScopeRead), resource: "tasks",
		summary: "Wait for the first of many tasks", doc: docWaitAny, body: api.WaitAny{},
		answers: is{200: object[api.Settled]("The first that has settled; no task where none did in time.", "Retry-After"), 400: refused, 404: refused, 408: refused, 410: refused, 413: refused, 415: refused},
	}, s.waitAny)

	// Callers: poll, with or without holding the answer. The client's Wait.
	serve(s, route{
		method: http.MethodGet, path: "/v1/tasks/{id}", id: "getTask", scopes: may(api.ScopeRead), resource: "tasks",
		summary: "Read a task", doc: docGet,
		answers: is{200: aTask("The task.", "ETag", "Retry-After"), 304: empty("Unchanged since the ETag.", "ETag", "Retry-After"), 400: refused, 404: refused, 410: refused},
	}, s.get)

	// Callers and operators: what was submitted, byte for byte.
	serve(s, route{
		method: http.MethodGet, path: "/v1/tasks/{id}/input", id: "getTaskInput", scopes: may(api.ScopeRead), resource: "tasks",
		summary: "Read a task's input", doc: "The bytes of `input` as they were submitted.",
		answers: is{200: raw("The input.", "ETag"), 304: empty("Unchanged since the ETag.", "ETag"), 404: refused, 410: refused},
	}, s.input)

	// Callers: the result, byte for byte.
	serve(s, route{
		method: http.MethodGet, path: "/v1/tasks/{id}/result", id: "getTaskResult", scopes: may(api.ScopeRead), resource: "tasks",
		summary: "Read a task's result", doc: "The bytes of the result as they were stored. 409 `not_finished` while there is none.",
		answers: is{200: raw("The result.", "ETag"), 304: empty("Unchanged since the ETag.", "ETag"), 404: refused, 409: refused, 410: refused},
	}, s.result)

	// Operators and callers: look for tasks. The client's List and Find.
	serve(s, route{
		method: http.MethodGet, path: "/v1/tasks", id: "listTasks", scopes: may(api.ScopeRead), resource: "tasks",
		summary: "List tasks", doc: docList,
		answers: is{200: listOf[api.Task]("One page, newest first."), 400: refused},
	}, s.list)

	// Callers and operators: stop a task that is not wanted any more.
	serve(s, route{
		method: http.MethodPost, path: "/v1/tasks/{id}/cancel", id: "cancelTask", scopes: may(api.ScopeSubmit, api.ScopeOperate), resource: "tasks",
		summary: "Cancel a task", doc: docCancel, body: cancelBody{}, bodyOptional: true,
		answers: is{200: aTask("Cancelled."), 202: aTask("It runs: cancelling is asked for.", "Retry-After"), 400: refused, 404: refused, 408: refused, 409: refused, 410: refused, 413: refused, 415: refused},
	}, s.cancel)

	// Operators: run a failed or unknown task again.
	serve(s, route{
		method: http.MethodPost, path: "/v1/tasks/{id}/retry", id: "retryTask", scopes: may(api.ScopeOperate), resource: "tasks",
		summary: "Run a task again", doc: docRetry, body: api.Retry{},
		answers: is{200: aTask("It is pending again.", "Retry-After"), 400: refused, 404: refused, 408: refused, 409: refused, 410: refused, 413: refused, 415: refused},
	}, s.retry)

	// Operators: say what became of a task whose outcome is unknown.
	serve(s, route{
		method: http.MethodPost, path: "/v1/tasks/{id}/resolve", id: "resolveTask", scopes: may(api.ScopeOperate), resource: "tasks",
		summary: "Decide an unknown outcome", doc: docResolve, body: resolveBody{},
		answers: is{200: aTask("The task as decided.", "Retry-After"), 400: refused, 404: refused, 408: refused, 409: refused, 410: refused, 413: refused, 415: refused},
	}, s.resolve)

	// Operators: erase on request what a task was given and what it brought.
	serve(s, route{
		method: http.MethodDelete, path: "/v1/tasks/{id}/payload", id: "eraseTaskPayload", scopes: may(api.ScopeOperate), resource: "tasks",
		summary: "Erase a task's payload", doc: docErase,
		answers: is{200: aTask("The task without its payload."), 400: refused, 404: refused, 409: refused, 410: refused},
	}, s.erase)

	// Operators and callers: the calls that were made for a task, and what is known of each.
	serve(s, route{
		method: http.MethodGet, path: "/v1/tasks/{id}/attempts", id: "listTaskAttempts", scopes: may(api.ScopeRead), resource: "tasks",
		summary: "List a task's attempts", doc: docAttempts,
		answers: is{200: listOf[api.Attempt]("The attempts."), 404: refused, 410: refused},
	}, s.attempts)

	// Operators: what a provider sent, before they resolve.
	serve(s, route{
		method: http.MethodGet, path: "/v1/tasks/{id}/attempts/{epoch}/{part}", id: "getTaskAttemptPart", scopes: may(api.ScopeOperate), resource: "tasks",
		summary: "Read what is kept of an attempt", doc: "The bytes of the part named, as they came.",
		answers: is{200: other("The part.", bytesType), 404: refused, 410: refused},
	}, s.attemptPart)

	// People on call: what happened to one intent, from its submit to what left the building.
	serve(s, route{
		method: http.MethodGet, path: "/v1/tasks/{id}/timeline", id: "taskTimeline", scopes: may(api.ScopeRead), resource: "tasks",
		summary: "Tell a task's story", doc: docTimeline,
		answers: is{200: object[api.Timeline]("The timeline."), 404: refused, 410: refused},
	}, s.timeline)
	serve(s, route{
		method: http.MethodGet, path: "/v1/tasks/{id}/diagnosis", id: "taskDiagnosis", scopes: may(api.ScopeRead), resource: "tasks",
		summary: "Say what a task looks like", doc: docDiagnosis,
		answers: is{200: object[api.Diagnosis]("What it looks like."), 404: refused, 410: refused},
	}, s.diagnosis)

	// Callers and operators: what became of a task's side effects.
	serve(s, route{
		method: http.MethodGet, path: "/v1/tasks/{id}/effects", id: "listTaskEffects", scopes: may(api.ScopeRead), resource: "tasks",
		summary: "List a task's side effects", doc: "The side effects of all its runs, oldest first, each with its deliveries; what a delivery reported too late stands beside it and changed nothing.",
		answers: is{200: listOf[api.Effect]("The effects."), 404: refused, 410: refused},
	}, s.effects)

	// Operators and callers: what calls were made and what they cost.
	serve(s, route{
		method: http.MethodGet, path: "/v1/usage", id: "usage", scopes: may(api.ScopeRead), resource: "usage",
		summary: "Report calls, tokens and cost", doc: docUsage,
		answers: is{200: listOf[api.UsageRow]("The report."), 400: refused},
	}, s.usage)

	// Senders of webhooks: hand over an event, as often as they like.
	serve(s, route{
		method: http.MethodPost, path: "/v1/ingest/{source}", id: "ingest", open: true, reads: true, resource: "ingest",
		summary: "Deliver a webhook", doc: docIngest, body: json.RawMessage(nil),
		answers: is{
			202: object[delivered]("A new task, or a failed one that runs again."),
			200: object[delivered]("It had come before; `duplicate_status` of the source may set another status."),
			401: refused, 404: refused, 408: refused, 413: refused, 415: refused, 429: refused, 500: refused,
		},
	}, s.ingest)

	s.batchRoutes()
	s.reviewRoutes()

	// Operators: stop submits, claims or retries of a tenant, kind, provider or destination.
	serve(s, route{
		method: http.MethodGet, path: "/v1/holds", id: "listHolds", scopes: may(api.ScopeOperate, api.ScopeRead), resource: "holds",
		summary: "List holds", doc: "Those of the key's tenant; an instance key sees all.",
		answers: is{200: listOf[api.Hold]("All of them, oldest first.")},
	}, s.holds)
	serve(s, route{
		method: http.MethodPost, path: "/v1/holds", id: "hold", scopes: may(api.ScopeOperate), resource: "holds",
		summary: "Set a hold", doc: docHold, body: api.NewHold{},
		answers: is{201: object[api.Hold]("The hold; one for the same names is added to."), 400: refused, 408: refused, 413: refused, 415: refused},
	}, s.hold)
	serve(s, route{
		method: http.MethodDelete, path: "/v1/holds/{id}", id: "takeHold", scopes: may(api.ScopeOperate), resource: "holds",
		summary: "Take a hold away", doc: "What waits is begun within seconds.",
		answers: is{200: object[api.Hold]("The hold that was there."), 404: refused},
	}, s.takeHold)

	// Operators of the instance: where providers stand, and closing or opening one.
	serve(s, route{
		method: http.MethodGet, path: "/v1/providers", id: "listProviders", scopes: may(api.ScopeAdmin), resource: "providers",
		summary: "List providers", doc: "Their gates, and what waits behind them.",
		answers: is{200: listOf[api.Provider]("All of them.")},
	}, s.providers)
	gated := is{200: object[api.Gate]("The gate as it stands."), 400: refused, 404: refused, 408: refused, 413: refused, 415: refused}
	serve(s, route{
		method: http.MethodPost, path: "/v1/providers/{name}/hold", id: "holdProvider", scopes: may(api.ScopeAdmin), resource: "providers",
		summary: "Hold a provider", doc: "Its tasks wait until it is released. A reason is required.", body: api.GateAct{}, answers: gated,
	}, s.holdProvider)
	serve(s, route{
		method: http.MethodPost, path: "/v1/providers/{name}/release", id: "releaseProvider", scopes: may(api.ScopeAdmin), resource: "providers",
		summary: "Release a provider", doc: "Whatever closed it, a person or what it answered; the tasks that waited go on.", body: api.GateAct{}, answers: gated,
	}, s.releaseProvider)

	s.destinationRoutes()

	// Probes: is the process alive. Never asks the database.
	serve(s, route{
		method: http.MethodGet, path: "/healthz", id: "health", open: true, resource: "service",
		summary: "Is the process alive", answers: is{200: object[health]("Alive.")},
	}, s.health)

	// Load balancers: can requests be served, database and schema included.
	serve(s, route{
		method: http.MethodGet, path: "/readyz", id: "ready", open: true, reads: true, resource: "service",
		summary: "Can requests be served", answers: is{200: object[health]("Ready.")},
	}, s.readyz)

	// Developers and generators of clients: this description.
	serve(s, route{
		method: http.MethodGet, path: "/openapi.yaml", id: "openapi", open: true, resource: "service",
		summary: "This description", answers: is{200: other("OpenAPI 3.1.", specType)},
	}, s.openapi)
	serve(s, route{
		method: http.MethodGet, path: "/openapi.json", id: "openapiJSON", open: true, resource: "service",
		summary: "This description as JSON", answers: is{200: other("OpenAPI 3.1.", specJSONType)},
	}, s.openapiJSON)

	// People with a browser: the same, to read. Loads nothing from elsewhere.
	serve(s, route{
		method: http.MethodGet, path: "/docs", id: "docs", open: true, resource: "service",
		summary: "This description, to read", answers: is{200: other("A page.", htmlType)},
	}, s.docsPage)
}

const (
	docBulk = "Up to 1,000 tasks, each with its key in the body. Each is answered as if it had been submitted alone: what is " +
		"refused or fails does not touch the others. A status of 503 in an item means that this one is to be sent again."
	docWaitAny = "`wait` holds the answer until one of the tasks has settled, at most 60 s."
	docSubmit  = "Makes one task, or finds the one the key already means. A 2xx means that the task is committed. " +
		"Send the same request again after a timeout, a broken connection or a 503: it folds onto the same task."
	docGet = "`wait` holds the answer until the task has settled. Without it ask again after Retry-After, which is " +
		"taken from what the tenant's own tasks of the kind took lately."
	docList = "Results are left out; read them by id. A page may hold fewer tasks than `limit`, even none, while `next` " +
		"says that there are more."
	docCancel = "A pending or unknown task is cancelled at once (200). For a running one cancelling is asked for (202): a call " +
		"that is out cannot be called back; what it brings is kept with its attempt and never shown as the result. A task " +
		"that has ended answers 409. `cancel` says whether the provider may still bill."
	docErase = "Takes away input, result, metadata, replies and what effects carried, of a task that has ended and whose effects " +
		"are done. Key, outcome and the hashes of input and result stay: a duplicate is still answered, with `result_expired`. " +
		"The task cannot run again."
	docAttempts = "Every try at the task, oldest first: how far its call came, what came of it, what it cost, and whether " +
		"the provider may have billed it. For a task whose outcome is unknown this is the evidence."
	docTimeline = "Every submit (the first twenty duplicates one by one, then counted), every attempt with its phases, gates that " +
		"moved, effects and their deliveries, operators' acts; oldest first. Duplicates appear within a second."
	docDiagnosis = "Reads the timeline and the tasks of the kind within an hour that have the same input or trace, and says which " +
		"rows of the diagnosis table they look like, with the evidence, or that it cannot tell."
	docRetry = "A new run with fresh attempts and a fresh deadline, for a failed or unknown task. `epoch` is the one " +
		"of the task as you saw it; 409 when it has moved since."
	docUsage = "Calls by the day they were made, whatever became of their tasks since; what the purge took is kept a row a day. " +
		"`saved` is what folded duplicates would have cost had they been calls; it counts where their task's first call does."
	docIngest = "The body is taken as it was signed, byte for byte; its scheme is the source's. A delivery that came before, " +
		"under whatever request id, folds onto its task. Nothing is read of the body before the source's rate lets it in."
	docHold = "It concerns what has all the names given, and at least one is. Without `stops` it stops claims. Duplicates are " +
		"answered whatever is held. A tenant's key holds its own tenant only."
	docResolve = "For a task whose outcome is unknown: `succeeded` with its result, `failed`, `retry`, or `finish` " +
		"(store the reply that is already there, without another call)."
)
