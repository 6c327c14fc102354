package submit

import (
	"context"
	"regexp"
	"strings"
	"time"

	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
)

// mostConflicts bounds the patterns that are gathered between two flushes: what
// comes on top of them is counted under no prefix.
const mostConflicts = 1000

// conflict notes that a key was used with another payload. It is counted by the
// pattern of the key, in batches, as duplicates are.
func (c *counter) conflict(n *store.New, holder task.ID) {
	if c.blind {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	k := store.ConflictKey{Tenant: n.Slot.Tenant, Kind: n.Slot.Kind, Prefix: prefix(n.Slot.Key)}
	if _, known := c.conflicts[k]; !known && len(c.conflicts) >= mostConflicts {
		k.Prefix = ""
	}
	c.conflicts[k] = store.Conflict{Count: c.conflicts[k].Count + 1, LastTask: holder}
}

func (c *counter) flushConflicts() {
	c.mu.Lock()
	all := c.conflicts
	c.conflicts = map[store.ConflictKey]store.Conflict{}
	c.mu.Unlock()
	if len(all) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := store.AddConflicts(ctx, c.db, all); err != nil {
		c.log.Debug("reused keys not counted yet", "error", err)
		c.mu.Lock()
		for k, n := range all {
			n.Count += c.conflicts[k].Count
			c.conflicts[k] = n
		}
		c.mu.Unlock()
	}
}

// random is a key, or the rest of one, that is made of nothing but an id.
var random = regexp.MustCompile(`^[0-9a-fA-F-]{16,}$`)

// maxPrefix is the longest prefix that is told apart, in bytes.
const maxPrefix = 32

// prefix is what keys of one sort have in common: the part before the first
// digit, "uuid" for a key that is an id and nothing else.
func prefix(key string) string {
	if random.MatchString(key) {
		return "uuid"
	}
	if i := strings.IndexAny(key, "0123456789"); i >= 0 {
		key = key[:i]
	}
	return key[:min(len(key), maxPrefix)]
}
