package server

import (
	"net/http"

	"github.com/onefold-dev/onefold/api"
)

// destinationRoutes are for operators of the instance: where effects go.
func (s *Server) destinationRoutes() {
	admin := may(api.ScopeAdmin)
	const one = "/v1/destinations/{name}"
	serve(s, route{
		method: http.MethodGet, path: "/v1/destinations", id: "listDestinations", scopes: admin, resource: "destinations",
		summary: "List destinations", doc: "Their gates, what waits behind them, and which secrets sign.",
		answers: is{200: listOf[api.Destination]("All of them, by name.")},
	}, s.destinations)
	serve(s, route{
		method: http.MethodGet, path: one, id: "getDestination", scopes: admin, resource: "destinations",
		summary: "Read a destination", doc: "As it stands in the list.",
		answers: is{200: object[api.Destination]("The destination."), 404: refused},
	}, s.destination)
	serve(s, route{
		method: http.MethodPut, path: one, id: "putDestination", scopes: admin, resource: "destinations",
		summary: "Make or change a destination", doc: docPutDestination, body: api.PutDestination{},
		answers: is{
			201: object[api.DestinationPut]("Made. `secret` signs from now on, and is shown this once."), 200: object[api.DestinationPut]("Changed."),
			400: refused, 408: refused, 409: refused, 413: refused, 415: refused,
		},
	}, s.putDestination)
	serve(s, route{
		method: http.MethodDelete, path: one, id: "deleteDestination", scopes: admin, resource: "destinations",
		summary: "Delete a destination", doc: "One that was made through the API, and to which no effect is to go any more.",
		answers: is{204: empty("Deleted."), 404: refused, 409: refused},
	}, s.deleteDestination)
	gated := is{200: object[api.Gate]("The gate as it stands."), 400: refused, 404: refused, 408: refused, 413: refused, 415: refused}
	serve(s, route{
		method: http.MethodPost, path: one + "/hold", id: "holdDestination", scopes: admin, resource: "destinations",
		summary: "Hold a destination", doc: "What is to go there waits until it is released. A reason is required.", body: api.GateAct{}, answers: gated,
	}, s.holdDestination)
	serve(s, route{
		method: http.MethodPost, path: one + "/release", id: "releaseDestination", scopes: admin, resource: "destinations",
		summary: "Release a destination", doc: "Whatever closed it, a person or what it answered; what waited leaves.", body: api.GateAct{}, answers: gated,
	}, s.releaseDestination)
	serve(s, route{
		method: http.MethodPost, path: one + "/rotate", id: "rotateDestination", scopes: admin, resource: "destinations",
		summary: "Rotate a signing secret", doc: docRotate, body: api.RotateSecret{},
		answers: is{200: object[api.SecretRotated]("The new secret, where it was made here. It is shown this once."), 400: refused, 404: refused, 408: refused, 409: refused, 413: refused, 415: refused},
	}, s.rotateDestination)
	serve(s, route{
		method: http.MethodPost, path: one + "/test", id: "testDestination", scopes: admin, resource: "destinations",
		summary: "Test a destination", doc: docTestDestination, body: api.TestDestination{},
		answers: is{200: object[api.DestinationTest]("What came of it."), 400: refused, 404: refused, 408: refused, 413: refused, 415: refused},
	}, s.testDestination)
}

const (
	docPutDestination = "The fields are those of `destinations` in onefold.yaml, with secrets in place of their sources. They are sealed " +
		"and never shown again. An address that leads to a private or loopback range is refused unless `allow_private`. All processes know within a second."
	docRotate = "For `overlap`, 7 days unless said otherwise, the former secrets sign, too: a receiver that knows either accepts. " +
		"Only for a destination made through the API; one of onefold.yaml is rotated there."
	docTestDestination = "A worker sends one signed event of type `onefold.test`, once, from where effects leave. No effect, gate or breaker counts it, " +
		"and a held destination is tested all the same. 503: no worker took it, and nothing was sent."
)
