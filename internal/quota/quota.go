// Package quota decides how much of a tenant's new work is let in: by its rate
// and by how much it has queued.
//
// What operators set stands in the database, and so do the counts, which one
// process makes for all about once a second. Each process keeps a copy of both
// and adds what it let in itself since, so that a submit of a tenant within its
// quotas waits for no statement. Two processes may let in what one alone would
// not have: what the other one let in since the last count.
package quota

import (
	"math"
	"strconv"
	"time"

	"github.com/onefold-dev/onefold/api"
)

// How long a caller is told to wait where nobody can know when there is room.
const queuedWait = 2 * time.Second

// Bounds are the quotas of one tenant; infinite where there is none.
type Bounds struct {
	Requests float64 // new tasks a second
	Queued   float64 // tasks that wait
}

func none() Bounds { return Bounds{math.Inf(1), math.Inf(1)} }

// or is the bound that was set, or another one.
func or(set *float64, otherwise float64) float64 {
	if set == nil {
		return otherwise
	}
	return *set
}

// room is how many more fit below a bound.
func room(bound float64, have int64) int {
	left := math.Floor(bound) - float64(have)
	switch {
	case left <= 0:
		return 0
	case left > math.MaxInt32:
		return math.MaxInt32
	}
	return int(left)
}

func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

func overRequests(bound float64, wait time.Duration) *api.Error {
	e := api.Errorf(api.CodeOverQuota, "the tenant may submit %s new tasks a second", number(bound)).WithRetryAfter(wait).
		WithFix("Send the same request again with the same key after Retry-After; spread submits, or ask the operator for more (onefold tenants set --requests-per-second).")
	e.Quota = api.QuotaRequests
	return e
}

func overQueued(bound float64) *api.Error {
	e := api.Errorf(api.CodeOverQuota, "the tenant may have %s tasks queued, and has", number(math.Floor(bound))).WithRetryAfter(queuedWait).
		WithFix("Wait until some of the tenant's tasks have run, then send the same request again with the same key; or ask the operator for more (onefold tenants set --queued).")
	e.Quota = api.QuotaQueued
	return e
}
