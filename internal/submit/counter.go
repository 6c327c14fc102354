package submit

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
)

const (
	// countEvery bounds how far the shown number of duplicates may lag behind.
	countEvery = 500 * time.Millisecond
	// maxFirsts bounds the duplicates held here to be kept one by one; beyond it they are only counted.
	maxFirsts = 10_000
	maxAgent  = 128
)

// What a submit that met a task came to.
const (
	whatFolded   = "folded"
	whatReopened = "reopened"
	whatRefused  = "refused"
)

// counter gathers duplicates and writes them in batches, off the path of the
// answers. A process that dies loses those of its last half second; they are for
// people to read, no promise rests on them.
type counter struct {
	db    *pgxpool.Pool
	log   *slog.Logger
	blind bool

	mu     sync.Mutex
	counts map[task.ID]*store.Tally
	firsts []first
	// refused submits, by the pattern of their key
	conflicts map[store.ConflictKey]store.Conflict
	stop      chan struct{}
	done      chan struct{}
}

// first is one of the first duplicates of a task.
type first struct {
	store.Submitted
	at time.Time
}

func newCounter(db *pgxpool.Pool, log *slog.Logger) *counter {
	c := &counter{
		db: db, log: log, counts: map[task.ID]*store.Tally{}, conflicts: map[store.ConflictKey]store.Conflict{}, stop: make(chan struct{}), done: make(chan struct{}),
	}
	go c.run()
	return c
}

func (c *counter) add(id task.ID, what string, r *Request) {
	if c.blind {
		return
	}
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.tally(id)
	n := &t.Folded
	if what == whatRefused {
		n = &t.Refused
	}
	*n++
	if *n > store.FirstSubmits || len(c.firsts) >= maxFirsts {
		return
	}
	c.firsts = append(c.firsts, first{at: now, Submitted: store.Submitted{
		TaskID: id, What: what, Nth: *n, RequestID: r.RequestID, Client: r.Client, UserAgent: agent(r.UserAgent), Actor: r.Actor, TraceID: r.TraceID,
	}})
}

func (c *counter) tally(id task.ID) *store.Tally {
	t := c.counts[id]
	if t == nil {
		t = &store.Tally{ID: id}
		c.counts[id] = t
	}
	return t
}

func (c *counter) close() {
	close(c.stop)
	<-c.done
}

func (c *counter) run() {
	defer close(c.done)
	tick := time.NewTicker(countEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			c.flush()
			c.flushConflicts()
		case <-c.stop:
			c.flush()
			c.flushConflicts()
			return
		}
	}
}

// flush writes what was gathered in one transaction: if it fails or the process
// dies before its commit nothing is counted, and what is still here is written
// with the next.
func (c *counter) flush() {
	c.mu.Lock()
	counts, firsts := c.counts, c.firsts
	c.counts, c.firsts = map[task.ID]*store.Tally{}, nil
	c.mu.Unlock()
	if len(counts) == 0 {
		return
	}
	tallies := make([]store.Tally, 0, len(counts))
	for _, t := range counts {
		tallies = append(tallies, *t)
	}
	slices.SortFunc(tallies, func(a, b store.Tally) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	rows := make([]store.Submitted, len(firsts))
	for i, f := range firsts {
		rows[i] = f.Submitted
		rows[i].Age = time.Since(f.at)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err := pgx.BeginTxFunc(ctx, c.db, store.ReadCommitted, func(tx pgx.Tx) error { return store.AddDuplicates(ctx, tx, tallies, rows) })
	if err == nil {
		return
	}
	c.log.Debug("duplicates not counted yet", "error", err)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, old := range tallies {
		t := c.tally(old.ID)
		t.Folded, t.Refused = t.Folded+old.Folded, t.Refused+old.Refused
	}
	if len(c.firsts) < maxFirsts {
		c.firsts = append(firsts, c.firsts...)
	}
}

// agent is what a caller says it is, short enough to keep and fit to be stored.
func agent(s string) string {
	if len(s) > maxAgent {
		s = s[:maxAgent]
	}
	return strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", ""), "?")
}

// origin is who made a task, as its row keeps it.
func (r *Request) origin() string {
	if r.blind {
		return ""
	}
	b, _ := json.Marshal(struct { // strings always encode
		RequestID string `json:"request_id,omitempty"`
		Client    string `json:"client,omitempty"`
		UserAgent string `json:"user_agent,omitempty"`
		Actor     string `json:"actor,omitempty"`
	}{r.RequestID, r.Client, agent(r.UserAgent), r.Actor})
	return string(b)
}

// folded is r with its caller's address folded: equal ones stay equal, and who
// reads them learns no more.
func (s *Service) folded(r Request) Request {
	r.blind = s.Blind
	if r.blind || r.Client == "" || len(s.Salt) == 0 {
		r.Client = ""
		return r
	}
	host, _, err := net.SplitHostPort(r.Client)
	if err != nil {
		host = r.Client
	}
	mac := hmac.New(sha256.New, s.Salt)
	mac.Write([]byte(host))
	r.Client = hex.EncodeToString(mac.Sum(nil)[:6])
	return r
}
