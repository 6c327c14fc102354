package client

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// uploadIdle is how long an upload may make no progress: the server, too, waits
// for a while where another upload of the same file is under way.
const uploadIdle = 2 * time.Minute

// upload is a file that is sent as a body, from its start at every try.
type upload struct {
	file io.ReadSeeker
	sent func(int64)
}

var errIdle = errors.New("the upload made no progress")

// open begins a try: a compressed body, and a context that ends when nothing is
// read of it for too long. stop waits until the file is let go of.
func (u *upload) open(ctx context.Context) (limited context.Context, body io.ReadCloser, stop func(), err error) {
	if _, err := u.file.Seek(0, io.SeekStart); err != nil {
		return nil, nil, nil, fmt.Errorf("rewind the file: %w", err)
	}
	limited, cancel := context.WithCancelCause(ctx)
	idle := time.AfterFunc(uploadIdle, func() { cancel(errIdle) })
	out, in := io.Pipe()
	var packing sync.WaitGroup
	packing.Go(func() {
		z, _ := gzip.NewWriterLevel(in, gzip.BestSpeed) // the level is one there is
		_, err := io.Copy(z, &counted{u: u, moved: func() { idle.Reset(uploadIdle) }})
		if err == nil {
			err = z.Close()
		}
		_ = in.CloseWithError(err) // nil ends the body; nobody reads on after a failure
	})
	stop = func() {
		idle.Stop()
		_ = out.CloseWithError(io.ErrClosedPipe)
		packing.Wait()
		cancel(nil)
	}
	return limited, out, stop, nil
}

// counted reads the file and tells how far it is.
type counted struct {
	u     *upload
	n     int64
	moved func()
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.u.file.Read(p)
	c.n += int64(n)
	c.moved()
	if c.u.sent != nil && n > 0 {
		c.u.sent(c.n)
	}
	return n, err
}
