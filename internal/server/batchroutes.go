package server

import (
	"net/http"

	"github.com/onefold-dev/onefold/api"
)

// batchRoutes registers what concerns batches.
func (s *Server) batchRoutes() {
	// Callers with a file: `onefold batch run`, the client's UploadBatch.
	serve(s, route{
		method: http.MethodPost, path: "/v1/batches", id: "uploadBatch", scopes: may(api.ScopeSubmit), resource: "batches",
		summary: "Upload a batch", doc: docUpload, bodyMedia: jsonlType, keyed: true,
		answers: is{
			202: object[api.Batch]("New: the whole file is stored and runs.", "Location", "Retry-After"),
			200: object[api.Batch]("The key already means this file, whose batch stands as shown.", "Idempotent-Replayed", "Retry-After"),
			400: refused, 408: refused, 409: refusedFor, 413: refused, 415: refused, 422: refused,
		},
	}, s.upload)

	// Callers and people: how far is it. `onefold batch status`.
	serve(s, route{
		method: http.MethodGet, path: "/v1/batches/{id}", id: "getBatch", scopes: may(api.ScopeRead), resource: "batches",
		summary: "Read a batch", doc: "Its lines are counted from the rows; of a running batch a count may be some seconds old.",
		answers: is{200: object[api.Batch]("The batch.", "Retry-After"), 404: refused},
	}, s.batch)

	// People: what batches are there; programs: which one has a key.
	serve(s, route{
		method: http.MethodGet, path: "/v1/batches", id: "listBatches", scopes: may(api.ScopeRead), resource: "batches",
		summary: "List batches", answers: is{200: object[api.List[api.Batch]]("One page, newest first."), 400: refused},
	}, s.batches)

	// Callers: the results, also while the batch runs.
	serve(s, route{
		method: http.MethodGet, path: "/v1/batches/{id}/results", id: "getBatchResults", scopes: may(api.ScopeRead), resource: "batches",
		summary: "Read a batch's results", doc: docResults,
		answers: is{200: other("One result a line.", jsonlType), 400: refused, 404: refused, 409: refusedFor},
	}, s.results)

	// Callers and operators: stop a batch that is not wanted any more.
	serve(s, route{
		method: http.MethodPost, path: "/v1/batches/{id}/cancel", id: "cancelBatch", scopes: may(api.ScopeSubmit, api.ScopeOperate), resource: "batches",
		summary: "Cancel a batch", doc: docCancelBatch, body: cancelBody{}, bodyOptional: true,
		answers: is{200: object[api.Batch]("The batch as it then stands.", "Retry-After"), 400: refused, 404: refused, 408: refused, 409: refused, 413: refused, 415: refused},
	}, s.cancelBatch)

	// Operators: run what failed again.
	serve(s, route{
		method: http.MethodPost, path: "/v1/batches/{id}/retry", id: "retryBatch", scopes: may(api.ScopeOperate), resource: "batches",
		summary: "Run a batch's failed lines again", doc: docRetryBatch, body: api.BatchRetry{},
		answers: is{200: object[api.Batch]("It runs again.", "Retry-After"), 400: refused, 404: refused, 408: refused, 409: refused, 413: refused, 415: refused},
	}, s.retryBatch)
}

const (
	docUpload = "The body is JSONL, up to 1,000,000 lines, 1 GiB and 8 MiB a line, gzip allowed: each line a task in our form " +
		"(`{\"key\",\"kind\",\"input\", ...}`, the key is the task's) or each in the form of OpenAI's Batch API " +
		"(`{\"custom_id\",\"method\",\"url\",\"body\"}`, the task's key is `batch:<key of the batch>:<custom_id>`). Nothing runs " +
		"before the whole file is stored. A line without an id, an id that comes twice, a cut last line and an empty file refuse " +
		"the file; any other line that is no valid request fails alone. The same file under the same key is the same batch; one " +
		"whose upload broke off goes on where it stopped."
	docResults = "In the form of the file's lines. While the batch runs they are those there are so far; `after` goes on behind the " +
		"last one had. A body that ends early was cut: go on with `after`."
	docCancelBatch = "What waits is cancelled, calls under way are asked to end. Tasks that a line only met, because another submit " +
		"had made them, go their way."
	docRetryBatch = "For a batch that has ended: its failed and expired lines run again, no others, with a fresh deadline. `run` is " +
		"the one of the batch as you saw it; 409 when it has moved since."
)
