package batch

import "github.com/onefold-dev/onefold/internal/store"

// Limits of a chunk. They follow from the file alone, so that two uploads of one
// file cut it in the same places.
const (
	chunkLines = 1000
	chunkBytes = 4 << 20
)

// chunk is what is staged in one transaction.
type chunk struct {
	index  int32
	lines  []store.Line
	size   int
	bytes  int64  // of the file up to the end of its last line
	prefix []byte // hash of these
}

// full says whether a line of n bytes goes into the next chunk.
func (c *chunk) full(n int) bool {
	return len(c.lines) == chunkLines || len(c.lines) > 0 && c.size+n > chunkBytes
}

func (c *chunk) add(l store.Line, n int) {
	c.lines, c.size = append(c.lines, l), c.size+n
}

func (c *chunk) reset() {
	clear(c.lines)
	c.lines, c.size = c.lines[:0], 0
}
