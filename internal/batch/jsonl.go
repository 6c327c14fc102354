package batch

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"hash"
	"io"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/store"
)

// line is one line of a file that is not blank.
type line struct {
	number int    // in the file, blank lines counted, from 1
	text   []byte // without its end; valid until the next line is read
	ended  bool   // a line end followed; only the last line can be without
}

// reader splits a file into lines. LF ends a line and one CR before it is
// dropped; a byte order mark at the start is dropped; a line of white space is
// no line. It holds one line in memory, and never more than the limits allow.
type reader struct {
	limits
	in    *bufio.Reader
	sum   hash.Hash // over the bytes read so far, ends of lines included
	buf   []byte
	bytes int64
	line  int // lines read, blank ones counted
	lines int // those that are not blank
}

// limits of a file; those of the API but in tests.
type limits struct {
	maxLines, maxLine int
	maxBytes          int64
}

func newReader(r io.Reader) *reader {
	return &reader{
		limits: limits{maxLines: api.MaxBatchLines, maxLine: api.MaxBatchLine, maxBytes: api.MaxBatchBytes},
		in:     bufio.NewReaderSize(r, 64<<10), sum: sha256.New(),
	}
}

// blanks bounds the lines of a file, blank ones counted, as a multiple of those
// that are not: a small compressed file can hold a thousand million of them.
const blanks = 10

var (
	mark  = []byte("\xef\xbb\xbf")
	blank = " \t\r\v\f"
)

// next reads the next line; io.EOF when there is none. An *api.Error says that
// the file is beyond a limit.
func (r *reader) next() (line, error) {
	for {
		ended, err := r.read()
		if err != nil && (!errors.Is(err, io.EOF) || len(r.buf) == 0) {
			return line{}, err
		}
		if r.line++; r.line > blanks*r.maxLines {
			return line{}, r.tooLarge("the file has more than %d lines, blank ones counted", blanks*r.maxLines)
		}
		text := r.buf
		if r.line == 1 {
			text = bytes.TrimPrefix(text, mark)
		}
		text = bytes.TrimSuffix(bytes.TrimSuffix(text, []byte("\n")), []byte("\r"))
		if len(bytes.Trim(text, blank)) == 0 {
			continue
		}
		if len(text) > r.maxLine {
			return line{}, r.tooLarge("line %d is longer than %d bytes", r.line, r.maxLine)
		}
		if r.lines++; r.lines > r.maxLines {
			return line{}, r.tooLarge("the file has more than %d lines", r.maxLines)
		}
		return line{number: r.line, text: text, ended: ended}, nil
	}
}

// read fills buf with the bytes up to the next line end, that included.
func (r *reader) read() (ended bool, err error) {
	r.buf = r.buf[:0]
	for {
		part, err := r.in.ReadSlice('\n')
		r.buf = append(r.buf, part...)
		r.bytes += int64(len(part))
		_, _ = r.sum.Write(part) // a hash takes everything
		switch {
		case r.bytes > r.maxBytes:
			r.line++
			return false, r.tooLarge("the file is larger than %d bytes", r.maxBytes)
		case len(r.buf) > r.maxLine+len(mark)+2:
			r.line++
			return false, r.tooLarge("line %d is longer than %d bytes", r.line, r.maxLine)
		case errors.Is(err, bufio.ErrBufferFull):
		default:
			return err == nil, err
		}
	}
}

func (r *reader) tooLarge(format string, args ...any) error {
	return api.Errorf(api.CodeTooLarge, format, args...).WithLine(r.line).
		WithFix("Split the file. A batch takes up to %d lines, %d bytes in all and %d bytes a line.", r.maxLines, r.maxBytes, r.maxLine)
}

// prefix is the hash of all that was read so far.
func (r *reader) prefix() []byte { return r.sum.Sum(nil) }

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
