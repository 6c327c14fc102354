// Package kinds decides which configuration a task runs under: the newest for
// new tasks, the one stored by its hash for those submitted earlier.
package kinds

import (
	"context"
	"fmt"
	"sync"

	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/store"
)

// Book holds the configuration of this process and, by hash, every older
// version it met. It is safe for concurrent use.
type Book struct {
	cfg  *config.Config
	opts config.Opts

	mu     sync.RWMutex
	byHash map[string]*config.Kind
}

// New makes a book of a loaded configuration. opts are those it was loaded with.
func New(cfg *config.Config, opts config.Opts) *Book {
	b := &Book{cfg: cfg, opts: opts, byHash: map[string]*config.Kind{}}
	for _, k := range cfg.Kinds {
		b.byHash[k.Hash()] = k
	}
	return b
}

// Config is the configuration of this process.
func (b *Book) Config() *config.Config { return b.cfg }

// Newest is the kind as this process's configuration has it.
func (b *Book) Newest(name string) (*config.Kind, bool) { return b.cfg.Kind(name) }

// Known is a version met before, without a look at the database.
func (b *Book) Known(hash string) (*config.Kind, bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	k, ok := b.byHash[hash]
	return k, ok
}

// Version is the kind under a hash, from memory or from the database. It is nil
// when the hash is stored nowhere, or when this program cannot run that body:
// then the task is left to others.
func (b *Book) Version(ctx context.Context, db store.DBTX, name, hash string) (*config.Kind, error) {
	if k, ok := b.Known(hash); ok {
		return k, nil
	}
	c, err := store.KindConfigBody(ctx, db, hash)
	if err != nil || c == nil {
		return nil, err
	}
	k, err := config.KindFromBody(name, c.Body, b.opts)
	if err != nil {
		return nil, nil //nolint:nilerr // a body of a newer program: others can run it
	}
	b.mu.Lock()
	b.byHash[hash] = k
	b.mu.Unlock()
	return k, nil
}

// Store writes the bodies of this process's kinds, so that tasks can name them
// by hash. It comes before the first submit.
func (b *Book) Store(ctx context.Context, db store.DBTX) error {
	var all []store.KindConfig
	for name, k := range b.cfg.Kinds {
		all = append(all, store.KindConfig{Hash: k.Hash(), Kind: name, Body: k.Body()})
	}
	if err := store.PutKindConfigs(ctx, db, all); err != nil {
		return fmt.Errorf("store configurations: %w", err)
	}
	return nil
}
