// Package batchfile decides what a batch's file says: which lines it has, what
// the id of each is, and which submit it asks for.
package batchfile

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"hash"
	"io"

	"github.com/onefold-dev/onefold/api"
)

// Line is one line of a file that is not blank.
type Line struct {
	Number int    // in the file, blank lines counted, from 1
	Text   []byte // without its end; valid until the next line is read
	Ended  bool   // a line end followed; only the last line can be without
}

// Reader splits a file into lines. LF ends a line and one CR before it is
// dropped; a byte order mark at the start is dropped; a line of white space is
// no line. It holds one line in memory, and never more than the limits allow.
type Reader struct {
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

// NewReader reads a file that is not compressed.
func NewReader(r io.Reader) *Reader {
	return &Reader{
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

// Next reads the next line; io.EOF when there is none. An *api.Error says that
// the file is beyond a limit.
func (r *Reader) Next() (Line, error) {
	for {
		ended, err := r.read()
		if err != nil && (!errors.Is(err, io.EOF) || len(r.buf) == 0) {
			return Line{}, err
		}
		if r.line++; r.line > blanks*r.maxLines {
			return Line{}, r.tooLarge("the file has more than %d lines, blank ones counted", blanks*r.maxLines)
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
			return Line{}, r.tooLarge("line %d is longer than %d bytes", r.line, r.maxLine)
		}
		if r.lines++; r.lines > r.maxLines {
			return Line{}, r.tooLarge("the file has more than %d lines", r.maxLines)
		}
		return Line{Number: r.line, Text: text, Ended: ended}, nil
	}
}

// read fills buf with the bytes up to the next line end, that included.
func (r *Reader) read() (ended bool, err error) {
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

func (r *Reader) tooLarge(format string, args ...any) error {
	return api.Errorf(api.CodeTooLarge, format, args...).WithLine(r.line).
		WithFix("Split the file. A batch takes up to %d lines, %d bytes in all and %d bytes a line.", r.maxLines, r.maxBytes, r.maxLine)
}

// Prefix is the SHA-256 of all that was read so far.
func (r *Reader) Prefix() []byte { return r.sum.Sum(nil) }

// Bytes is how many bytes were read so far.
func (r *Reader) Bytes() int64 { return r.bytes }

// Lines is how many lines were read so far, blank ones apart.
func (r *Reader) Lines() int { return r.lines }
