package wire

import (
	"bytes"
	"errors"
	"io"
)

// Event is one event of an event stream.
type Event struct {
	// Name is the event field, empty when there was none.
	Name string
	// Data is the data fields joined by line feeds. It is valid until the next call of Next.
	Data []byte
	// Bare says that Data was a line of its own that looks like JSON without a field name, as some servers send
	// their errors.
	Bare bool
	// Open says that the stream ended before the blank line that ends an event.
	Open bool
}

// Events splits an event stream (WHATWG HTML, section 9.2.6) into events. Lines end in CR, LF or CRLF, also across
// reads; an event is given out as soon as its last byte is there. A line may be as long as max.
type Events struct {
	r      io.Reader
	max    int
	buf    []byte // bytes read and not yet consumed are buf[at:]
	at     int
	data   []byte
	name   string
	some   bool // a data field was seen in this event
	begun  bool // the byte order mark was looked for
	skipLF bool // the last line ended in CR: a line feed right after it belongs to it
	err    error
}

// NewEvents reads events from r; a line or the data of an event longer than limit is an error.
func NewEvents(r io.Reader, limit int64) *Events {
	return &Events{r: r, max: int(limit), buf: make([]byte, 0, 4<<10)}
}

// keep is the capacity above which a buffer is not kept for the next event: 5,000 slow streams must not each hold on
// to the largest event they ever saw.
const keep = 16 << 10

// Next returns the next event that has data. At the end it returns io.EOF, or the error of the reader, after an event
// that was still open.
func (e *Events) Next() (Event, error) {
	if cap(e.data) > keep {
		e.data = nil
	}
	e.data, e.name, e.some = e.data[:0], "", false
	for {
		line, err := e.line()
		if err != nil {
			return e.last(line, err)
		}
		switch {
		case len(line) == 0 && len(e.data) > 0:
			return Event{Name: e.name, Data: e.data}, nil
		case len(line) == 0:
			e.name, e.some = "", false
		case line[0] == '{':
			if len(e.data) > 0 { // never drop what is there: the joined data is broken and will be seen as such
				e.data = append(append(e.data, '\n'), line...)
				continue
			}
			e.data = append(e.data, line...)
			return Event{Data: e.data, Bare: true}, nil
		default:
			e.field(line)
		}
		if len(e.data) > e.max {
			return Event{}, errTooLarge
		}
	}
}

// last gives out what the end of the stream left open.
func (e *Events) last(line []byte, err error) (Event, error) {
	if errors.Is(err, errTooLarge) {
		return Event{}, err
	}
	if len(line) > 0 {
		if line[0] == '{' && len(e.data) == 0 {
			e.data = append(e.data, line...)
		} else {
			e.field(line)
		}
	}
	if len(e.data) > 0 {
		return Event{Name: e.name, Data: e.data, Open: true}, nil
	}
	return Event{}, err
}

func (e *Events) field(line []byte) {
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(name) {
	case "data":
		if e.some {
			e.data = append(e.data, '\n')
		}
		e.data, e.some = append(e.data, value...), true
	case "event":
		e.name = string(value)
	}
}

// line returns the next line without its end. With an error it returns what is there of an unfinished line.
func (e *Events) line() ([]byte, error) {
	searched := e.at
	for {
		if e.skipLF && e.at < len(e.buf) {
			if e.buf[e.at] == '\n' {
				e.at++
			}
			e.skipLF = false
			searched = max(searched, e.at)
		}
		if !e.begun && len(e.buf)-e.at >= 3 {
			e.begun = true
			if bytes.HasPrefix(e.buf[e.at:], []byte("\xEF\xBB\xBF")) {
				e.at += 3
				searched = e.at
			}
		}
		if i := bytes.IndexAny(e.buf[searched:], "\r\n"); i >= 0 {
			line := e.buf[e.at : searched+i]
			e.skipLF = e.buf[searched+i] == '\r'
			e.at, e.begun = searched+i+1, true
			return line, nil
		}
		searched = len(e.buf)
		if e.err != nil {
			rest := e.buf[e.at:]
			e.at = len(e.buf)
			return rest, e.err
		}
		if len(e.buf)-e.at > e.max {
			return nil, errTooLarge
		}
		searched -= e.fill()
	}
}

// fill reads more and returns by how much it moved the bytes that are waiting.
func (e *Events) fill() (moved int) {
	if e.at > 0 {
		moved = e.at
		rest := e.buf[e.at:]
		if cap(e.buf) > keep && len(rest) < 2<<10 {
			e.buf = append(make([]byte, 0, 4<<10), rest...)
		} else {
			e.buf = e.buf[:copy(e.buf, rest)]
		}
		e.at = 0
	}
	if len(e.buf) == cap(e.buf) {
		bigger := make([]byte, len(e.buf), 2*cap(e.buf))
		copy(bigger, e.buf)
		e.buf = bigger
	}
	n, err := e.r.Read(e.buf[len(e.buf):cap(e.buf)])
	e.buf = e.buf[:len(e.buf)+n]
	e.err = err
	return moved
}
