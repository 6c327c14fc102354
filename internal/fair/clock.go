package fair

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onefold-dev/onefold/internal/store"
)

// How often processes exchange: while places are given out, and to see what is
// being served.
const (
	exchangeBusy    = 100 * time.Millisecond
	exchangeEvery   = time.Second
	exchangeTimeout = 5 * time.Second
	mostCharges     = 1000
)

// Opts set up a Clock; DB and Log are required.
type Opts struct {
	DB  store.DBTX
	Log *slog.Logger
	// Weight is that of a tenant; nil: as operators set it, DefaultWeight where they
	// did not.
	Weight func(tenant string) int
}

// Clock gives out places in one process. A nil Clock gives all the first place:
// then tasks are served in the order of their wake-ups. It is safe for
// concurrent use.
type Clock struct {
	Opts

	mu     sync.Mutex
	queues map[string]*queue // by provider
	// Places are given out in turns, so that they are told to others only when
	// their tasks are there to be seen: those of the other turn, once none of its
	// insertions is under way.
	turn      int
	inserting [2]int

	weights atomic.Pointer[map[string]int]
}

type queue struct {
	now   int64 // the place being served, as far as is known; it never goes back
	lanes map[laneKey]*lane
}

type laneKey struct {
	tenant string
	batch  bool
}

// New makes a clock and reads how far places have been given out. Run keeps it
// current.
func New(ctx context.Context, o Opts) (*Clock, error) {
	c := newClock(o)
	flows, err := store.Flows(ctx, o.DB)
	if err != nil {
		return nil, err
	}
	c.reached(flows)
	if err := c.weigh(ctx); err != nil {
		return nil, err
	}
	_, err = c.serve(ctx)
	return c, err
}

func newClock(o Opts) *Clock { return &Clock{Opts: o, queues: map[string]*queue{}} }

func (c *Clock) lane(f Flow) (*queue, *lane) {
	q := c.queue(f.Provider)
	k := laneKey{f.Tenant, f.Batch}
	l := q.lanes[k]
	if l == nil {
		l = &lane{}
		q.lanes[k] = l
	}
	return q, l
}

func (c *Clock) queue(provider string) *queue {
	q := c.queues[provider]
	if q == nil {
		q = &queue{lanes: map[laneKey]*lane{}}
		c.queues[provider] = q
	}
	return q
}

func (c *Clock) own(f Flow) int64 {
	return own(c.weight(f.Tenant), f.Batch)
}

func (c *Clock) weight(tenant string) int {
	if c.Weight != nil {
		return c.Weight(tenant)
	}
	set := c.weights.Load()
	if set == nil {
		return DefaultWeight
	}
	if w := (*set)[tenant]; w > 0 {
		return w
	}
	if w := (*set)[store.AnyTenant]; w > 0 {
		return w
	}
	return DefaultWeight
}

// weigh reads the weights that operators set.
func (c *Clock) weigh(ctx context.Context) error {
	if c.Weight != nil {
		return nil
	}
	set, err := store.Weights(ctx, c.DB)
	if err == nil {
		c.weights.Store(&set)
	}
	return err
}

// Place gives out the next place of a flow.
func (c *Clock) Place(f Flow) time.Time {
	if c == nil {
		return Origin
	}
	each := c.own(f)
	c.mu.Lock()
	defer c.mu.Unlock()
	q, l := c.lane(f)
	return at(l.take(c.turn, q.now, each, f.Priority))
}

// PlaceAll gives each new task that has none its place, in their order. One that
// is not inserted in the end leaves a gap, which does no harm.
func (c *Clock) PlaceAll(news []*store.New) {
	for _, n := range news {
		if n.Virtual.IsZero() {
			n.Virtual = c.Place(Of(n))
		}
	}
}

// Insert is PlaceAll for whoever can say when the insertion has ended, one way or
// another. Until then nobody takes the places for ones that were served, however
// empty the queue looks: whoever came next would be put behind all of them.
func (c *Clock) Insert(news []*store.New) (ended func()) {
	if c == nil {
		return func() {}
	}
	c.mu.Lock()
	turn := c.turn
	c.inserting[turn]++
	c.mu.Unlock()
	c.PlaceAll(news)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.inserting[turn]--
	}
}

// Resume says where tasks of a tenant that were stopped go on: those whose place
// has been passed meanwhile get one at from and further ones every step, so that
// a thousand of them do not come before everybody else at once. Resumed says how
// many did.
func (c *Clock) Resume(provider, tenant string) (from time.Time, step time.Duration) {
	if c == nil {
		return Origin, 0
	}
	f := Flow{Provider: provider, Tenant: tenant}
	each := c.own(f)
	c.mu.Lock()
	defer c.mu.Unlock()
	q, l := c.lane(f)
	start, width := l.next(q.now, each, resumed)
	return at(start), time.Duration(width)
}

// Resumed notes that n tasks of a tenant went on after Resume.
func (c *Clock) Resumed(provider, tenant string, n int) {
	if c == nil {
		return
	}
	f := Flow{Provider: provider, Tenant: tenant}
	each := c.own(f)
	c.mu.Lock()
	defer c.mu.Unlock()
	q, l := c.lane(f)
	for range n {
		l.take(c.turn, q.now, each, resumed)
	}
}

// Run exchanges with the other processes until ctx ends.
func (c *Clock) Run(ctx context.Context) {
	var last time.Time
	tick := time.NewTicker(exchangeBusy)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !c.busy() && time.Since(last) < exchangeEvery {
			continue
		}
		last = time.Now()
		limit, cancel := context.WithTimeout(ctx, exchangeTimeout)
		if err := c.Exchange(limit); err != nil && ctx.Err() == nil {
			c.Log.Debug("places not exchanged", "error", err)
		}
		cancel()
	}
}

func (c *Clock) busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, q := range c.queues {
		for _, l := range q.lanes {
			if l.given != [2][classes]span{} {
				return true
			}
		}
	}
	return false
}

// Exchange tells the others how far this process has given out places, learns
// how far all have, and where each provider is. A process that dies before it
// has left some of its places to be given out again, once.
func (c *Clock) Exchange(ctx context.Context) error {
	if err := c.weigh(ctx); err != nil {
		return err
	}
	if err := store.FoldCharges(ctx, c.DB, mostCharges); err != nil {
		return err
	}
	if told := c.told(); len(told) > 0 {
		all, err := store.AdvanceFlows(ctx, c.DB, told)
		if err != nil {
			c.untold(told)
			return err
		}
		c.reached(all)
	}
	served, err := c.serve(ctx)
	if err != nil {
		return err
	}
	ahead, err := store.FlowsAhead(ctx, c.DB, served)
	c.reached(ahead)
	return err
}

// told takes what this process has to tell: what was given out before the last
// exchange and is inserted, and, if nothing is being inserted, all.
func (c *Clock) told() (all []store.Advance) {
	c.mu.Lock()
	defer c.mu.Unlock()
	sum := map[Flow]*span{}
	for range 2 {
		before := 1 - c.turn
		if c.inserting[before] > 0 {
			break
		}
		c.collect(before, sum)
		c.turn = before
	}
	for f, s := range sum {
		all = append(all, store.Advance{Flow: f, From: s.from, Width: s.width, Finish: s.finish})
	}
	return all
}

// collect moves what was given out in a turn to sum.
func (c *Clock) collect(turn int, sum map[Flow]*span) {
	for provider, q := range c.queues {
		for k, l := range q.lanes {
			given := &l.given[turn]
			for class := range int16(resumed) { // that one is of concern to this process alone
				if given[class].width == 0 {
					continue
				}
				f := Flow{Provider: provider, Tenant: k.tenant, Batch: k.batch, Priority: class}
				if sum[f] == nil {
					sum[f] = &span{}
				}
				sum[f].add(given[class])
			}
			*given = [classes]span{}
		}
	}
}

func (c *Clock) untold(all []store.Advance) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range all {
		_, l := c.lane(a.Flow)
		l.given[1-c.turn][a.Priority].add(span{a.From, a.Width, a.Finish})
	}
}

// reached learns how far all processes have given out places; what this one gave
// out meanwhile comes on top.
func (c *Clock) reached(flows []store.Reached) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range flows {
		_, l := c.lane(r.Flow)
		l.finish[r.Priority] = max(l.finish[r.Priority], r.Finish+l.untold(r.Priority))
	}
}

// serve learns where each provider is: at the first place that waits, or, where
// nothing waits, behind all that were given out.
func (c *Clock) serve(ctx context.Context) (map[string]int64, error) {
	c.mu.Lock()
	providers := []string{}
	for p := range c.queues {
		providers = append(providers, p)
	}
	c.mu.Unlock()
	heads, err := store.Served(ctx, c.DB, providers)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for p, head := range heads {
		q := c.queue(p)
		q.now = max(q.now, head)
	}
	return heads, nil
}
