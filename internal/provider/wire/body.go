package wire

import (
	"errors"
	"io"
	"sync"
)

// requestBody is a body that knows whether it was read to its end. Once sealed it gives out nothing more, so "sealed
// before the end" is proof that the whole request was never written, whatever the transport's goroutines still do.
//
// It has neither GetBody nor any interface by which net/http could rewind it: a request with it is never replayed.
type requestBody struct {
	mu     sync.Mutex
	data   []byte
	off    int
	sealed bool
}

var errSealed = errors.New("the call has ended")

func (b *requestBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sealed {
		return 0, errSealed
	}
	n := copy(p, b.data[b.off:])
	b.off += n
	if b.off == len(b.data) {
		return n, io.EOF
	}
	return n, nil
}

func (b *requestBody) Close() error { return nil }

// seal ends the body and says whether all of it had been read.
func (b *requestBody) seal() (complete bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sealed = true
	return b.off == len(b.data)
}
