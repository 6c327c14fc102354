// Package fair decides a task's place among those of all tenants: start-time
// fair queueing, written down as a time long past, so that the order of wake-ups
// by that time is the fair one.
//
// Each provider is served on its own. There, each tenant's traffic takes its
// places one after the other, the further apart the less weight the tenant has;
// whoever has nothing waiting starts at the place that is being served now. A
// tenant with 100,000 tasks in the queue has given places far ahead to most of
// them, and another's first task comes before all those.
//
// Places are given out from memory, so that a submit waits for nothing: no
// statement, no lock. Processes exchange how far they got several times a
// second. Until the next exchange two processes may give out the same places to
// one tenant, which doubles its share for those; the exchange adds both up, so
// that over any longer time the shares are exact.
package fair

import (
	"time"

	"github.com/onefold-dev/onefold/internal/store"
)

// DefaultWeight is a tenant's weight where no operator has set one.
const DefaultWeight = 100

const (
	// cost is the virtual time, in nanoseconds, of one task at weight 1.
	cost = int64(10_000_000)
	// batchCost is how much more a task of a batch costs: batches have a tenth of
	// the weight of their tenant's other traffic, beside it.
	batchCost = 10
	// late bounds virtual time: the wake-up of a place after now would not be due.
	late = 20 * 365 * 24 * time.Hour
)

// Origin is where virtual time begins. It stands in the schema, too.
var Origin = store.VirtualOrigin

// Flow is traffic whose places follow one another.
type Flow = store.Flow

// Of is the flow of a new task.
func Of(n *store.New) Flow {
	return Flow{Provider: n.Provider, Tenant: n.Slot.Tenant, Batch: n.Batch != nil || n.Background, Priority: n.Priority}
}

// resumed is the class of tasks that were stopped and go on: it is to them what
// a priority is to others.
const (
	resumed = 10
	classes = 11
	normal  = 4 // the priority of tasks that name none
)

// share is the weight of a class within its tenant: each priority has twice that
// of the one below.
func share(class int16) int64 {
	if class == resumed {
		class = normal
	}
	return 1 << class
}

// lane is one tenant's traffic of one sort at one provider.
type lane struct {
	finish [classes]int64
	width  [classes]int64 // given out since the last exchange,
	from   [classes]int64 // beginning here
}

// step is the distance of two places of a class at virtual time now: the
// tenant's own, divided among those classes of it that have something waiting.
func (l *lane) step(now, own int64, class int16) int64 {
	var all int64
	for c := range int16(classes) {
		if c == class || l.finish[c] > now {
			all += share(c)
		}
	}
	return max(1, own*all/share(class))
}

// next is the place that a class has next, and its width.
func (l *lane) next(now, own int64, class int16) (start, step int64) {
	return max(now, l.finish[class]), l.step(now, own, class)
}

// take gives out the next place of a class.
func (l *lane) take(now, own int64, class int16) (start int64) {
	start, step := l.next(now, own, class)
	if l.width[class] == 0 {
		l.from[class] = start
	}
	l.finish[class] = start + step
	l.width[class] += step
	return start
}

// own is the virtual time of one task of a tenant of that weight.
func own(weight int, batch bool) int64 {
	c := cost / int64(max(1, weight))
	if batch {
		c *= batchCost
	}
	return max(1, c)
}

// at is a place as a time, of the resolution that the database keeps.
func at(place int64) time.Time {
	return Origin.Add(min(time.Duration(place), late)).Truncate(time.Microsecond)
}
