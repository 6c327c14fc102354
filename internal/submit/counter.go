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
	// maxKept bounds the tasks of which it is known here how many of their duplicates were kept.
	maxKept = 50_000
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
	// kept is how many duplicates and refusals of a task were kept by this process: once they are as many as are
	// kept at all, the next need not even be offered to the database. It may forget.
	kept map[task.ID][2]int8
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
		db: db, log: log, counts: map[task.ID]*store.Tally{}, kept: map[task.ID][2]int8{}, conflicts: map[store.ConflictKey]store.Conflict{}, stop: make(chan struct{}), done: make(chan struct{}),
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
	n, sort := &t.Folded, 0
	if what == whatRefused {
		n, sort = &t.Refused, 1
	}
	*n++
	kept := c.kept[id]
	if kept[sort] >= store.FirstSubmits || len(c.firsts) >= maxFirsts {
		return
	}
	if len(c.kept) >= maxKept {
		clear(c.kept)
	}
	kept[sort]++
	c.kept[id] = kept
	c.firsts = append(c.firsts, first{at: now, Submitted: store.Submitted{
		TaskID: id, What: what, Nth: *n, RequestID: r.RequestID, Client: r.client(), UserAgent: agent(r.UserAgent), Actor: r.Actor, TraceID: r.TraceID,
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
	}{r.RequestID, r.client(), agent(r.UserAgent), r.Actor})
	return string(b)
}

// folded is r with what folds its caller's address; who reads the address is
// told by client, and only where it is kept.
func (s *Service) folded(r Request) Request {
	r.blind, r.salt = s.Blind, s.Salt
	return r
}

// client is the caller's address, folded: equal ones stay equal, and who reads
// them learns no more. Most duplicates keep none, so it is folded when asked for.
func (r *Request) client() string {
	if r.Client == "" || len(r.salt) == 0 {
		return ""
	}
	host, _, err := net.SplitHostPort(r.Client)
	if err != nil {
		host = r.Client
	}
	mac := hmac.New(sha256.New, r.salt)
	mac.Write([]byte(host))
	return hex.EncodeToString(mac.Sum(nil)[:6])
}
