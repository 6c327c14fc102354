package gate

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"maps"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
	"github.com/onefold-dev/onefold/internal/telemetry"
)

// Opts set up a Board; Pool and Log are required.
type Opts struct {
	Pool *pgxpool.Pool
	Log  *slog.Logger
	// Connect opens a direct connection to listen on. Nil: changes made elsewhere
	// are seen after a second.
	Connect func(ctx context.Context) (*pgx.Conn, error)
	// Names are the gates this process deals with: rows are made for them.
	Names []Name
	// Credentials give the present credential of those that have one, for
	// comparing fingerprints; the secret itself is kept nowhere.
	Credentials map[Name]func() telemetry.Secret
	// Limits bound what is under way over all processes.
	Limits map[Name]Limit
	// Incarnation is the process's present one, the zero ID while there is none.
	// Required with Limits.
	Incarnation func() task.ID
	// Also is done at each look, before gates are read. Nil: nothing.
	Also func(ctx context.Context) error
	// Random gives numbers in [0,1) for jitter. Nil: math/rand.
	Random func() float64
}

// Board is a process's copy of gates and holds, and its share of what is
// bounded. A nil Board knows none: everything is open. It is safe for
// concurrent use.
type Board struct {
	Opts

	mu    sync.RWMutex
	gates map[Name]store.Gate
	holds []store.Hold
	now   time.Time       // the database's clock when the copy was read,
	read  time.Time       // and this process's
	wait  chan struct{}   // closed when the copy changes
	given map[Name][]byte // the credential's fingerprint at the last look

	limits *limits
}

// New makes a board and reads it for the first time. Run keeps it current.
func New(ctx context.Context, o Opts) (*Board, error) {
	if o.Random == nil {
		o.Random = mathrand.Float64
	}
	b := &Board{Opts: o, gates: map[Name]store.Gate{}, wait: make(chan struct{}), given: map[Name][]byte{}}
	b.limits = newLimits(b)
	if err := b.ensure(ctx, o.Pool, o.Names); err != nil {
		return nil, err
	}
	var rated []Name
	_, rates := b.limits.all()
	for n := range rates {
		rated = append(rated, n)
	}
	if err := store.EnsureRates(ctx, o.Pool, rated); err != nil {
		return nil, err
	}
	if err := b.refresh(ctx, o.Pool); err != nil {
		return nil, err
	}
	b.warnRefused()
	return b, nil
}

func (b *Board) ensure(ctx context.Context, db store.DBTX, names []Name) error {
	if len(names) == 0 {
		return nil
	}
	salts := make([][]byte, len(names))
	for i := range salts {
		salts[i] = make([]byte, 32)
		_, _ = rand.Read(salts[i]) // never fails
	}
	return store.EnsureGates(ctx, db, names, salts)
}

// Refresh reads gates and holds now, and releases what was held for a
// credential that has been changed here.
func (b *Board) Refresh(ctx context.Context) error {
	if err := b.refresh(ctx, b.Pool); err != nil {
		return err
	}
	return b.renewed(ctx)
}

func (b *Board) refresh(ctx context.Context, db store.DBTX) error {
	began := time.Now()
	rows, now, err := store.Gates(ctx, db)
	if err != nil {
		return err
	}
	holds, err := store.Holds(ctx, db, "")
	if err != nil {
		return err
	}
	gates := make(map[Name]store.Gate, len(rows))
	for _, g := range rows {
		gates[g.GateKey] = g
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gates, b.holds = gates, holds
	if !now.IsZero() {
		b.now, b.read = now, began
	}
	b.changed()
	return nil
}

// changed wakes those who wait for a change; the caller holds mu.
func (b *Board) changed() {
	close(b.wait)
	b.wait = make(chan struct{})
}

// clock is the database's time, as far as this process can tell; the caller
// holds mu.
func (b *Board) clock() time.Time {
	if b.read.IsZero() {
		return time.Now()
	}
	return b.now.Add(time.Since(b.read))
}

// State is where a gate stands.
func (b *Board) State(n Name) State {
	if b == nil {
		return State{Gate: store.Gate{GateKey: n, State: api.GateOpen}}
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	g, ok := b.gates[n]
	if !ok {
		g = store.Gate{GateKey: n, State: api.GateOpen}
	}
	return stateOf(g, b.clock())
}

// Open says whether something may be begun at n.
func (b *Board) Open(n Name) bool { return b.State(n).Open() }

// Subject is what a hold may concern.
type Subject struct{ Tenant, Kind, Provider, Destination string }

// Stopped is the hold that keeps s from something, or nil.
func (b *Board) Stopped(what api.Stop, s Subject) *store.Hold {
	if b == nil {
		return nil
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	return stopped(b.holds, what, s)
}

func stopped(holds []store.Hold, what api.Stop, s Subject) *store.Hold {
	for i := range holds {
		if h := &holds[i]; concerns(h, s) && stops(h, what) {
			found := *h
			return &found
		}
	}
	return nil
}

func concerns(h *store.Hold, s Subject) bool {
	is := func(named, have string) bool { return named == "" || named == have }
	return is(h.Tenant, s.Tenant) && is(h.Kind, s.Kind) && is(h.Provider, s.Provider) && is(h.Destination, s.Destination)
}

func stops(h *store.Hold, what api.Stop) bool {
	for _, s := range h.Stops {
		if s == what {
			return true
		}
	}
	return false
}

// Fingerprint is that of the present credential of n, keyed by the gate's salt;
// nil where there is none.
func (b *Board) Fingerprint(n Name) []byte {
	of := b.credential(n)
	if of == nil {
		return nil
	}
	secret := of()
	b.mu.RLock()
	salt := b.gates[n].Salt
	b.mu.RUnlock()
	if secret.Empty() || salt == nil {
		return nil
	}
	m := hmac.New(sha256.New, salt)
	m.Write([]byte(secret.Reveal()))
	return m.Sum(nil)
}

// Barred says that the present credential of n, in this process, is one that
// was turned away: others may have a better one, this process leaves n alone.
func (b *Board) Barred(n Name) bool {
	if b.credential(n) == nil {
		return false
	}
	b.mu.RLock()
	refused := b.gates[n].Refused
	b.mu.RUnlock()
	return len(refused) > 0 && known(refused, b.Fingerprint(n))
}

// credential gives the present credential of n; nil where it has none.
func (b *Board) credential(n Name) func() telemetry.Secret {
	if b == nil {
		return nil
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.Credentials[n]
}

// credentialed are those that have a credential.
func (b *Board) credentialed() []Name {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return slices.Collect(maps.Keys(b.Credentials))
}

func (b *Board) warnRefused() {
	for _, n := range b.credentialed() {
		if b.Barred(n) && b.Open(n) {
			b.Log.Error("credential refused: this process leaves the provider alone", "scope", n.Scope, "name", n.Name,
				"fix", fmt.Sprintf("give it another credential, or try this one again: onefold %ss release %s", n.Scope, n.Name))
		}
	}
}

// Await waits until n is open, at most that long, and says whether it is.
func (b *Board) Await(ctx context.Context, n Name, most time.Duration) bool {
	if b == nil {
		return true
	}
	limit := time.NewTimer(most)
	defer limit.Stop()
	for {
		b.mu.RLock()
		changed := b.wait
		b.mu.RUnlock()
		s := b.State(n)
		if s.Open() {
			return true
		}
		if s.Opens <= 0 || s.Opens > most {
			return false // held, or not in time
		}
		open := time.NewTimer(s.Opens)
		select {
		case <-open.C:
		case <-changed:
		case <-limit.C:
			open.Stop()
			return b.Open(n)
		case <-ctx.Done():
			open.Stop()
			return false
		}
		open.Stop()
	}
}
