package server

import (
	"net/http"

	"github.com/onefold-dev/onefold/api"
)

// reviewRoutes registers what concerns the review queue and acts on effects.
func (s *Server) reviewRoutes() {
	// Operators: what waits for a person. `onefold review list`.
	serve(s, route{
		method: http.MethodGet, path: "/v1/review", id: "listReview", scopes: may(api.ScopeRead, api.ScopeOperate), resource: "review",
		summary: "List what waits for a person", doc: docReview,
		answers: is{200: object[api.ReviewPage]("One page, the longest in the queue first."), 400: refused},
	}, s.review)

	// Operators: all that is known of one item. `onefold review show`.
	serve(s, route{
		method: http.MethodGet, path: "/v1/review/{id}", id: "getReview", scopes: may(api.ScopeRead, api.ScopeOperate), resource: "review",
		summary: "Read an item of the review queue", doc: "With every attempt or delivery, and what people did about it. 404 once it is not in the queue any more.",
		answers: is{200: object[api.ReviewDetail]("The item."), 404: refused},
	}, s.reviewItem)

	// Operators: one decision about many. `onefold review ... --all`.
	serve(s, route{
		method: http.MethodPost, path: "/v1/review/acts", id: "actOnReview", scopes: may(api.ScopeOperate), resource: "review",
		summary: "Decide about many items", doc: docReviewActs, body: api.ReviewActs{},
		answers: is{200: listOf[api.ReviewActed]("One answer for each item, in their order."), 400: refused, 408: refused, 413: refused, 415: refused},
	}, s.reviewActs)

	// Operators: after duplicates were found. `onefold mark-duplicate`.
	serve(s, route{
		method: http.MethodPost, path: "/v1/tasks/{id}/mark-duplicate", id: "markDuplicate", scopes: may(api.ScopeOperate), resource: "tasks",
		summary: "Say that a task repeats another", doc: docMarkDuplicate, body: markBody{},
		answers: is{200: aTask("The task, with `duplicate_of`.", "Retry-After"), 400: refused, 404: refused, 408: refused, 409: refused, 410: refused, 413: refused, 415: refused},
	}, s.markDuplicate)

	// Operators: what becomes of one effect.
	for _, e := range []struct {
		action      api.ReviewAction
		id, summary string
		doc         string
		body        any
	}{
		{api.ReviewRedeliver, "redeliverEffect", "Send an effect again", docRedeliver, effectBody{}},
		{api.ReviewDiscard, "discardEffect", "Never send an effect", docDiscard, effectBody{}},
		{"", "resolveEffect", "Say that an effect arrived", docResolveEffect, resolveEffectBody{}},
	} {
		path := "resolve"
		if e.action != "" {
			path = string(e.action)
		}
		serve(s, route{
			method: http.MethodPost, path: "/v1/effects/{id}/" + path, id: e.id, scopes: may(api.ScopeOperate), resource: "effects",
			summary: e.summary, doc: e.doc, body: e.body,
			answers: is{200: object[api.Effect]("The effect as it then stands."), 400: refused, 404: refused, 408: refused, 409: refused, 413: refused, 415: refused},
		}, s.effectAct(e.action))
	}
}

const (
	docReview = "Tasks and effects whose outcome is unknown, that no receiver takes, that used up their tries, or that are due and " +
		"do not move. `age` is how long they have been in the queue. `count=true` adds how many the filters find, by reason and age. " +
		"A page may hold fewer than `limit`, even none, while `next` says that there are more."
	docReviewActs = "Up to 1,000 items, each with the epoch as it was seen. Each is an act of its own: what is refused does not touch the " +
		"others, and the same act for the same epoch changes nothing the second time and is answered the same."
	docRedeliver = "For an effect that is dead, unknown, or waits for its next try: it is sent again under the same id, signed anew, with " +
		"fresh attempts. Where an earlier delivery may have arrived and the destination can be asked, it is asked first."
	docMarkDuplicate = "It changes nothing of either task: `duplicate_of` says so, and `onefold audit` counts the task no more. The same " +
		"word again is answered the same; another one with 409."
	docDiscard       = "For an effect that is not being delivered and has not been. It never leaves; others of its order go on."
	docResolveEffect = "For an effect whose outcome is unknown: `delivered` says that it arrived."
)
