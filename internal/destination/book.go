// Package destination decides where effects may go: to the destinations of onefold.yaml, and to those made through the
// API, whose address and secrets rest sealed in the database.
package destination

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/egress"
	"github.com/onefold-dev/onefold/internal/seal"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/telemetry"
)

// Opts set up a Book.
type Opts struct {
	// Config names the destinations of the file. Required.
	Config *config.Config
	// Pool is where the stored ones are. Nil: there are none.
	Pool *pgxpool.Pool
	// Keys is the ring that opens and seals (see package seal), read again at every look. Nil: nothing opens.
	Keys *telemetry.SecretSource
	Log  *slog.Logger
	// Guard judges addresses when a destination is made. Nil: by the system's resolver.
	Guard func(allowPrivate bool) *egress.Guard
	// Changed is told of what is stored now, after each change, and again where it failed.
	Changed func(ctx context.Context, all []*config.Destination) error
}

// Book knows the destinations of a process. Of one name in both places the file's counts. It is safe for concurrent use.
type Book struct {
	Opts

	mu      sync.RWMutex
	stored  map[string]*entry
	version string
	ring    *seal.Ring
	keys    telemetry.Secret
	told    map[string]string // what was logged of a destination
}

// unread is the version of what has to be read again whatever is stored.
const unread = "unread"

// entry is a stored destination as this process can use it.
type entry struct {
	row     store.Destination
	to      *config.Destination
	signers []Signer
	problem string // why nothing can be sent there from here; "" = it can
}

// Signer is one secret that signs.
type Signer struct {
	ID     string
	Source *telemetry.SecretSource
	// Present marks the newest: without it nothing can be sent.
	Present bool

	until time.Time // by this process's clock; zero: it does not retire
}

// New makes a book that knows the file's destinations; Refresh reads the stored ones.
func New(o Opts) *Book {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Guard == nil {
		o.Guard = func(allowPrivate bool) *egress.Guard { return egress.New(allowPrivate, nil) }
	}
	return &Book{Opts: o, stored: map[string]*entry{}, told: map[string]string{}}
}

// Usable is the destination of that name, or nil where this process cannot send to it.
func (b *Book) Usable(name string) *config.Destination {
	if to := b.Config.Destinations[name]; to != nil {
		return to
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	if e := b.stored[name]; e != nil && e.problem == "" {
		return e.to
	}
	return nil
}

// All are the destinations that this process knows the rules of, by name. Those it cannot open are among them.
func (b *Book) All() map[string]*config.Destination {
	b.mu.RLock()
	defer b.mu.RUnlock()
	all := make(map[string]*config.Destination, len(b.stored)+len(b.Config.Destinations))
	for name, e := range b.stored {
		all[name] = e.to
	}
	maps.Copy(all, b.Config.Destinations)
	return all
}

// Known is the destination of that name for whoever asks what may go there: nothing is sent with it. One that this
// process has not heard of is looked up with db, or with the book's own pool where db is nil.
func (b *Book) Known(ctx context.Context, db store.DBTX, name string) (*config.Destination, error) {
	if to := b.Config.Destinations[name]; to != nil || name == "" {
		return to, nil
	}
	b.mu.RLock()
	e := b.stored[name]
	b.mu.RUnlock()
	if e != nil {
		return e.to, nil
	}
	if db == nil && b.Pool != nil {
		db = b.Pool
	}
	if db == nil {
		return nil, nil
	}
	rows, err := store.Destinations(ctx, db, name)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return b.open(rows[0], time.Now()).to, nil
}

// Signers are the secrets that sign for a destination, the newest first. Those of the file are known by the beginning of
// a hash, so that a receiver's operator can tell which one a delivery was signed with.
func (b *Book) Signers(to *config.Destination) (all []Signer) {
	b.mu.RLock()
	e := b.stored[to.Name]
	b.mu.RUnlock()
	if e != nil && e.to == to {
		now := time.Now()
		return slices.DeleteFunc(slices.Clone(e.signers), func(s Signer) bool { return !s.until.IsZero() && !now.Before(s.until) })
	}
	if to.Secret != nil {
		all = append(all, Signer{ID: fileID(to.Secret), Source: to.Secret, Present: true})
	}
	if to.Previous != nil {
		all = append(all, Signer{ID: fileID(to.Previous), Source: to.Previous})
	}
	return all
}

// Refresh reads the stored destinations where anything of them, or the key ring, has changed.
func (b *Book) Refresh(ctx context.Context) error {
	if b.Pool == nil {
		return nil
	}
	newKeys, err := b.readKeys()
	if err != nil {
		b.tell("", err.Error())
	}
	version, err := store.DestinationsVersion(ctx, b.Pool)
	if err != nil {
		return err
	}
	b.mu.RLock()
	same := version == b.version && !newKeys
	b.mu.RUnlock()
	if same {
		return nil
	}
	began := time.Now()
	var rows []store.Destination
	if version != "" {
		if rows, err = store.Destinations(ctx, b.Pool); err != nil {
			return err
		}
	}
	stored := make(map[string]*entry, len(rows))
	var all []*config.Destination
	for _, row := range rows {
		e := b.open(row, began)
		if b.Config.Destinations[row.Name] != nil {
			e.problem = "onefold.yaml has a destination of that name, which counts"
		}
		b.tell(row.Name, e.problem)
		stored[row.Name] = e
		if b.Config.Destinations[row.Name] == nil {
			all = append(all, e.to)
		}
	}
	b.mu.Lock()
	b.stored, b.version = stored, unread
	b.mu.Unlock()
	if b.Changed != nil {
		if err := b.Changed(ctx, all); err != nil {
			return err
		}
	}
	b.mu.Lock()
	b.version = version
	b.mu.Unlock()
	return nil
}

// tell logs what keeps a destination from being used: once, and again when it changes.
func (b *Book) tell(name, problem string) {
	b.mu.Lock()
	before := b.told[name]
	b.told[name] = problem
	b.mu.Unlock()
	if problem != "" && problem != before {
		b.Log.Error("destination cannot be used by this process", "destination", name, "reason", problem)
	}
}

// readKeys reads the key ring and says whether it is another one than before. A ring that cannot be read leaves the one
// there was.
func (b *Book) readKeys() (changed bool, err error) {
	keys, err := b.Keys.Get()
	if err != nil {
		return false, fmt.Errorf("the key ring cannot be read: %w", err)
	}
	b.mu.RLock()
	same := b.keys.Equal(keys)
	b.mu.RUnlock()
	if same {
		return false, nil
	}
	ring, err := seal.Parse(keys)
	if err != nil {
		return false, fmt.Errorf("the key ring cannot be used: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.keys, b.ring = keys, ring
	return true, nil
}

// The places secrets are sealed for.
func placeURL(name string) string { return "destination/" + name + "/url" }

func placeSecret(name, purpose, id string) string {
	return "destination/" + name + "/" + purpose + "/" + id
}

// The purposes of stored secrets.
const (
	forSigning = "sign"
	forAuth    = "auth"
)

// open makes a stored destination usable. What does not open is a problem of it, and its rules are known all the same.
func (b *Book) open(row store.Destination, now time.Time) *entry {
	b.mu.RLock()
	ring := b.ring
	b.mu.RUnlock()
	e := &entry{row: row}
	fail := func(err error) {
		if e.problem == "" {
			e.problem = err.Error()
		}
	}
	url, err := ring.Open(placeURL(row.Name), row.URL)
	if err != nil {
		fail(err)
		url = telemetry.NewSecret(row.URLShown)
	}
	if e.to, err = parse(row.Name, row.Body, url); err != nil {
		fail(fmt.Errorf("this version of onefold cannot read it: %w", err))
		e.to = &config.Destination{Name: row.Name, URL: config.NewURL(row.URLShown), Repeat: config.RepeatUnsafe}
		return e
	}
	for _, s := range row.Secrets {
		text, err := ring.Open(placeSecret(row.Name, s.Purpose, s.ID), s.Sealed)
		if err != nil {
			fail(err)
			continue
		}
		source := telemetry.SecretFromValue(text)
		if s.Purpose == forAuth {
			if e.to.Auth == nil {
				e.to.Auth = source
			}
			continue
		}
		signer := Signer{ID: s.ID, Source: source, Present: len(e.signers) == 0}
		if s.Left != nil {
			signer.until = now.Add(*s.Left)
		}
		if signer.Present {
			e.to.Secret = source
		}
		e.signers = append(e.signers, signer)
	}
	return e
}

// parse rebuilds a destination from its stored fields and its address.
func parse(name string, body []byte, url telemetry.Secret) (*config.Destination, error) {
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(body, &fields); err != nil {
		return nil, fmt.Errorf("read the stored fields: %w", err)
	}
	raw, err := json.Marshal(url.Reveal())
	if err != nil {
		return nil, err
	}
	fields["url"] = raw
	whole, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	return config.DestinationFromBody(name, whole, config.Opts{})
}
