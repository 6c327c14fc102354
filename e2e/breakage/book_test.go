package breakage

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/client"
	"github.com/onefold-dev/onefold/e2e/promises"
)

// book is what the callers were told, by key, and their mistakes' finder.
type book struct {
	secret string
	apis   []*victim
	stop   context.CancelFunc // of the storm; the first mistake calls it

	next     atomic.Int64 // number of the newest key
	submits  atomic.Int64
	answered atomic.Int64
	polls    atomic.Int64

	mu       sync.Mutex
	clients  map[string]*client.Client
	pages    map[string]*page // by key
	known    []*page          // those with an acknowledged submit
	mistakes []promises.Mistake
}

// page is what is known of one key.
type page struct {
	kind, key string
	last      promises.Sight
	created   int // answers that it is new
	lines     []string
}

const pageLines = 60

func newBook(secret string, apis []*victim) *book {
	return &book{secret: secret, apis: apis, clients: map[string]*client.Client{}, pages: map[string]*page{}}
}

func (b *book) counts() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return fmt.Sprintf("%d submits (%d answered) of %d keys, %d acknowledged; %d polls",
		b.submits.Load(), b.answered.Load(), b.next.Load()+1, len(b.known), b.polls.Load())
}

func (b *book) mistake(key, format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mistakes = append(b.mistakes, promises.Mistake{Key: key, What: fmt.Sprintf(format, args...)})
	b.stop()
}

// client is one for an api's present address, without tries of its own: every
// answer counts.
func (b *book) client(rnd *rand.Rand) (*client.Client, string) {
	v := b.apis[rnd.IntN(len(b.apis))]
	url := v.URL()
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.clients[url]
	if c == nil {
		var err error
		if c, err = client.New(url, b.secret, &client.Opts{MaxRetries: -1, Timeout: 15 * time.Second}); err != nil {
			panic(err) // an address that we made ourselves
		}
		b.clients[url] = c
	}
	return c, v.name
}

func (b *book) page(n int) *page {
	kind, key := name(n)
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.pages[key]
	if p == nil {
		p = &page{kind: kind, key: key}
		b.pages[key] = p
	}
	return p
}

// any is a page with an acknowledged submit, mostly one of the newest; nil when
// there is none yet.
func (b *book) any(rnd *rand.Rand) *page {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := len(b.known)
	if n == 0 {
		return nil
	}
	if rnd.IntN(4) > 0 {
		return b.known[n-1-rnd.IntN(min(n, 100))]
	}
	return b.known[rnd.IntN(n)]
}

// before is what was known of a page when a request began.
func (b *book) before(p *page) promises.Sight {
	b.mu.Lock()
	defer b.mu.Unlock()
	return p.last
}

// saw enters an answer and finds the mistake in it.
func (b *book) saw(p *page, before promises.Sight, t *api.Task, how string) {
	now := promises.See(t)
	b.mu.Lock()
	if len(p.lines) < pageLines {
		p.lines = append(p.lines, fmt.Sprintf("%s: %s", how, now))
	}
	first := p.last.ID == ""
	if promises.Later(p.last, now) {
		p.last = now
	}
	if first {
		b.known = append(b.known, p)
	}
	if t.Created != nil && *t.Created {
		p.created++
	}
	created := p.created
	b.mu.Unlock()
	if what := promises.Wrong(before, now); what != "" {
		b.mistake(p.key, "%s: %s was told of %s, after %s had been told", what, how, now, before)
	}
	if created > 1 {
		b.mistake(p.key, "two submits were told that they made the task")
	}
	if t.State == api.Succeeded && t.Result == nil {
		b.mistake(p.key, "%s was told of %s without a result", how, now)
	}
}

// refused judges an error: only that something is away is no mistake.
func (b *book) refused(p *page, how string, err error) {
	if errors.Is(err, api.ErrUnavailable) {
		return
	}
	b.mistake(p.key, "%s was refused: %v", how, err)
}

// call submits new keys, and old ones again, until ctx ends.
func (b *book) call(ctx context.Context, rnd *rand.Rand) {
	pace := time.NewTicker(25 * time.Millisecond)
	defer pace.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-pace.C:
		}
		switch what := rnd.IntN(100); {
		case what < 14:
			b.submit(ctx, rnd, b.page(int(b.next.Add(1))))
		case what < 84:
			n := int(b.next.Load())
			b.submit(ctx, rnd, b.page(n-rnd.IntN(min(n+1, 30))))
		case what < 95:
			b.submit(ctx, rnd, b.page(rnd.IntN(int(b.next.Load())+1)))
		case what < 98:
			b.reuse(ctx, rnd)
		default:
			b.cancel(ctx, rnd)
		}
	}
}

func (b *book) submit(ctx context.Context, rnd *rand.Rand, p *page) {
	c, at := b.client(rnd)
	var o *client.SubmitOpts
	if rnd.IntN(10) == 0 {
		o = &client.SubmitOpts{Wait: time.Second}
	}
	before := b.before(p)
	b.submits.Add(1)
	t, err := c.Submit(ctx, p.key, submit(p.kind, p.key, false), o)
	if err != nil {
		b.refused(p, "a submit at "+at, err)
		return
	}
	b.answered.Add(1)
	b.saw(p, before, t, "a submit at "+at)
}

// reuse submits a key with a changed body: that is refused and changes nothing.
func (b *book) reuse(ctx context.Context, rnd *rand.Rand) {
	p := b.any(rnd)
	if p == nil {
		return
	}
	c, at := b.client(rnd)
	t, err := c.Submit(ctx, p.key, submit(p.kind, p.key, true), nil)
	switch {
	case err == nil:
		b.mistake(p.key, "a submit with a changed body at %s was accepted as %s", at, promises.See(t))
	case !errors.Is(err, api.ErrKeyReused):
		b.refused(p, "a submit with a changed body at "+at, err)
	}
}

// cancel cancels some tasks, but none that needs care: those are for a person.
func (b *book) cancel(ctx context.Context, rnd *rand.Rand) {
	p := b.any(rnd)
	if p == nil || p.kind == "careful" || pick("cancel"+p.key, 5) > 0 {
		return
	}
	c, at := b.client(rnd)
	before := b.before(p)
	t, err := c.Cancel(ctx, before.ID)
	if err == nil {
		b.saw(p, before, t, "a cancel at "+at)
	} else if !errors.Is(err, api.ErrConflict) {
		b.refused(p, "a cancel at "+at, err)
	}
}

// poll reads tasks until ctx ends.
func (b *book) poll(ctx context.Context, rnd *rand.Rand) {
	pace := time.NewTicker(20 * time.Millisecond)
	defer pace.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-pace.C:
		}
		p := b.any(rnd)
		if p == nil {
			continue
		}
		c, at := b.client(rnd)
		o, how := &client.GetOpts{}, "a poll at "+at
		if rnd.IntN(3) == 0 {
			o.Wait, how = time.Second, "a waiting poll at "+at
		}
		before := b.before(p)
		t, err := c.Get(ctx, before.ID, o)
		b.polls.Add(1)
		if err != nil {
			b.refused(p, how, err)
			continue
		}
		b.saw(p, before, t, how)
	}
}
