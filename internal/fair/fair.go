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
	given  [2][classes]span // not told to the others yet, by turn of the clock
}

// span is places given out one after the other; it has no width where there are none.
type span struct{ from, width, finish int64 }

func (s *span) add(o span) {
	switch {
	case o.width == 0:
	case s.width == 0:
		*s = o
	default:
		*s = span{min(s.from, o.from), s.width + o.width, max(s.finish, o.finish)}
	}
}

// untold is the width of what a class was given and the others do not know of.
func (l *lane) untold(class int16) int64 {
	return l.given[0][class].width + l.given[1][class].width
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
func (l *lane) take(turn int, now, own int64, class int16) (start int64) {
	start, step := l.next(now, own, class)
	l.finish[class] = start + step
	l.given[turn][class].add(span{start, step, start + step})
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
