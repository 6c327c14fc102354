package auth

import (
	"context"
	"crypto/subtle"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/store"
)

// How long an answer of the database counts. A revoked key is refused
// everywhere CacheFor later at the latest.
const (
	CacheFor   = 4 * time.Second
	unknownFor = 2 * time.Second
	lookupFor  = 5 * time.Second // one lookup may take
	// Entries kept of each sort, so that made-up ids fill no memory.
	maxKnown   = 10_000
	maxUnknown = 1_000
	// Lookups at once, so that made-up ids take no more connections.
	maxLookups = 4
)

// Auth checks keys against the database, with a small cache.
type Auth struct {
	db      store.DBTX
	now     func() time.Time
	group   singleflight.Group
	lookups chan struct{}

	mu      sync.Mutex
	known   map[string]entry
	unknown map[string]time.Time // until when
}

// entry is a key as the database had it, and until when that counts.
type entry struct {
	key     *store.APIKey
	until   time.Time
	expires time.Time // zero = never
}

// New makes an Auth that reads from db.
func New(db store.DBTX) *Auth {
	return &Auth{
		db: db, now: time.Now, lookups: make(chan struct{}, maxLookups),
		known: map[string]entry{}, unknown: map[string]time.Time{},
	}
}

// Authenticate reads the value of an Authorization header. Errors: an
// *api.Error with CodeUnauthorized; any other means that the key could not be
// looked up.
func (a *Auth) Authenticate(ctx context.Context, header string) (Identity, error) {
	if header == "" {
		return Identity{}, api.Errorf(api.CodeUnauthorized, "there is no API key").WithField("Authorization")
	}
	scheme, text, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return Identity{}, refuse("the Authorization header is not of the scheme Bearer")
	}
	id, secret, ok := parse(strings.Trim(text, " \t"))
	if !ok {
		return Identity{}, refuse("the API key does not have the form of_<id>_<secret>")
	}
	e, err := a.find(ctx, id)
	if err != nil {
		return Identity{}, err
	}
	if e.key == nil || subtle.ConstantTimeCompare(hash(secret), e.key.SecretHash) != 1 {
		return Identity{}, refuse("the API key is not valid")
	}
	// From here on the caller has shown the secret and may know why.
	if e.key.RevokedAt != nil {
		return Identity{}, refuse("the API key was revoked")
	}
	if !e.key.Live || !e.expires.IsZero() && !a.now().Before(e.expires) {
		return Identity{}, refuse("the API key has expired")
	}
	return Identity{Tenant: e.key.Tenant, KeyID: e.key.ID, Scopes: e.key.Scopes, Instance: e.key.Tenant == ""}, nil
}

func refuse(message string) error {
	return api.Errorf(api.CodeUnauthorized, "%s", message).WithField("Authorization")
}

// find returns the key of that id from the cache or the database, with a nil
// key when there is none.
func (a *Auth) find(ctx context.Context, id string) (entry, error) {
	if e, ok := a.cached(id); ok {
		return e, nil
	}
	// One lookup serves all who ask for one key at a time, so it must not end
	// with any one of them.
	ch := a.group.DoChan(id, func() (any, error) { return a.lookup(id) })
	select {
	case <-ctx.Done():
		return entry{}, ctx.Err()
	case r := <-ch:
		if r.Err != nil {
			return entry{}, r.Err
		}
		return r.Val.(entry), nil
	}
}

func (a *Auth) cached(id string) (entry, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	if e, ok := a.known[id]; ok && now.Before(e.until) {
		return e, true
	}
	if until, ok := a.unknown[id]; ok && now.Before(until) {
		return entry{}, true
	}
	return entry{}, false
}

func (a *Auth) lookup(id string) (entry, error) {
	ctx, cancel := context.WithTimeout(context.Background(), lookupFor)
	defer cancel()
	select {
	case a.lookups <- struct{}{}:
		defer func() { <-a.lookups }()
	case <-ctx.Done():
		return entry{}, ctx.Err()
	}
	// Counted from before the question, so that no revocation in between is
	// missed for longer than CacheFor.
	asked := a.now()
	key, err := store.APIKeyByID(ctx, a.db, id)
	if err != nil {
		return entry{}, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if key == nil {
		makeRoom(a.unknown, maxUnknown, func(until time.Time) bool { return !asked.Before(until) })
		a.unknown[id] = asked.Add(unknownFor)
		return entry{}, nil
	}
	e := entry{key: key, until: asked.Add(CacheFor)}
	if key.Left != nil {
		e.expires = asked.Add(*key.Left) // by the database's clock: only the time left is taken over
	}
	makeRoom(a.known, maxKnown, func(e entry) bool { return !asked.Before(e.until) })
	delete(a.unknown, id)
	a.known[id] = e
	return e, nil
}

// makeRoom keeps a map below its limit: first what is stale goes, then anything.
func makeRoom[V any](m map[string]V, limit int, stale func(V) bool) {
	if len(m) < limit {
		return
	}
	for id, v := range m {
		if stale(v) {
			delete(m, id)
		}
	}
	for id := range m {
		if len(m) < limit {
			return
		}
		delete(m, id)
	}
}
