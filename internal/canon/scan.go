package canon

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"hash"
	"slices"
	"sync"
)

const (
	// MaxDepth is how deep arrays and objects may nest in one value. Postgres
	// and Go give up between 10,000 and 20,000; no honest request comes near
	// either, and a small limit bounds everybody's recursion.
	MaxDepth = 200
	// MaxBytes is the longest text this package reads, 1 GiB; callers set far
	// lower limits of their own. It keeps offsets within 32 bits.
	MaxBytes = 1 << 30
)

// A member is one member of an object that is still open, or that was closed
// with its members out of order. Offsets point into scanner.text, except those
// of a name that needed unescaping, which stands in scanner.names.
type member struct {
	span                  // "name":value in its canonical form
	nameLo, nameHi uint32 // the name, without quotes, unescaped
	word           uint64 // part of the name, while sorting
	at             uint32 // offset of the name in the source
	unescaped      bool   // the name stands in scanner.names
}

// A span is a range of scanner.text.
type span struct{ start, end uint32 }

// A shuffle is an object whose members were out of order: where its braces
// stand in text, and the range of scanner.order that holds its members.
type shuffle struct {
	span
	lo, hi uint32
}

// A scanner checks one JSON text and writes its canonical form, as yet with
// the members of every object in the order of the source; objects that need
// another order are listed in shuffles and put right by emit. Writing in two
// steps moves each byte once, however deep it stands; sorting each object in
// place would move the innermost value once for every level around it.
type scanner struct {
	raw      []byte
	pos      int
	maxDepth int
	keep     bool // write values too; otherwise only names, to find duplicates

	text     []byte
	names    []byte    // unescaped names of the open objects
	members  []member  // members of the open objects, a stack
	order    []span    // members of the shuffled objects, in order
	shuffles []shuffle // in closing order while scanning, then by start

	split bool                                // fill parts
	parts []Member                            // members or elements of the outermost value
	visit func(depth int, name []byte) *Error // called with every member name, may be nil

	out sink
	sum [sha256.Size]byte
	one hash.Hash
}

// scanners recycles buffers between calls; it holds no state.
var scanners = sync.Pool{New: func() any { return &scanner{one: sha256.New()} }}

// The largest buffers put back for reuse: larger ones are left to the garbage
// collector, so that one huge request does not hold its memory for ever.
const (
	keptBytes   = 1 << 20
	keptMembers = 1 << 14
)

func newScanner() *scanner { return scanners.Get().(*scanner) }

// release hands the scanner back. Nothing may refer to its buffers any more.
func (s *scanner) release() {
	s.raw, s.parts, s.split, s.visit = nil, nil, false, nil
	if cap(s.text) > keptBytes || cap(s.names) > keptBytes || cap(s.members) > keptMembers || cap(s.order) > keptMembers ||
		cap(s.shuffles) > keptMembers || cap(s.out.buf) > keptBytes {
		return
	}
	scanners.Put(s)
}

// scan reads raw, which must be exactly one value nested at most maxDepth
// deep. Its canonical form is left in text and shuffles when keep is set.
func (s *scanner) scan(raw []byte, keep bool, maxDepth int) *Error {
	s.raw, s.pos, s.keep, s.maxDepth = raw, 0, keep, maxDepth
	s.text, s.names = s.text[:0], s.names[:0]
	s.members, s.order, s.shuffles = s.members[:0], s.order[:0], s.shuffles[:0]
	if len(raw) > MaxBytes {
		return failure(CodeTooLarge, -1, "the JSON text is too long", "Send less than 1 GiB.")
	}
	if bytes.HasPrefix(raw, []byte("\xef\xbb\xbf")) || bytes.HasPrefix(raw, []byte("\xff\xfe")) || bytes.HasPrefix(raw, []byte("\xfe\xff")) {
		return failure(CodeByteOrderMark, 0, "the JSON text starts with a byte order mark", "Send UTF-8 without a byte order mark.")
	}
	if keep { // the canonical form is hardly ever longer than the source
		s.text = slices.Grow(s.text, len(raw))
	}
	s.space()
	if err := s.value(0); err != nil {
		return err
	}
	s.space()
	if s.pos < len(raw) {
		return failure(CodeTrailingData, s.pos, "something follows the JSON value", "Send exactly one JSON value.")
	}
	slices.SortFunc(s.shuffles, func(a, b shuffle) int { return cmp.Compare(a.start, b.start) })
	return nil
}

// space skips white space.
func (s *scanner) space() {
	for s.pos < len(s.raw) {
		switch s.raw[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

// put appends canonical text, unless only names are wanted.
func (s *scanner) put(c byte) {
	if s.keep {
		s.text = append(s.text, c)
	}
}

// value reads one value that stands inside depth arrays and objects.
func (s *scanner) value(depth int) *Error {
	if s.pos >= len(s.raw) {
		return s.cut()
	}
	switch c := s.raw[s.pos]; c {
	case '{', '[':
		if depth >= s.maxDepth {
			return failure(CodeTooDeep, s.pos, "arrays and objects are nested too deep", "Nest at most 200 levels.")
		}
		if c == '{' {
			return s.object(depth + 1)
		}
		return s.array(depth + 1)
	case '"':
		return s.stringValue()
	case 't':
		return s.literal("true")
	case 'f':
		return s.literal("false")
	case 'n':
		return s.literal("null")
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return s.number()
	default:
		return s.unexpected("a value")
	}
}

func (s *scanner) literal(word string) *Error {
	rest := s.raw[s.pos:]
	if len(rest) < len(word) || string(rest[:len(word)]) != word {
		if len(rest) < len(word) && word[:len(rest)] == string(rest) {
			s.pos = len(s.raw)
			return s.cut()
		}
		return s.unexpected("true, false or null")
	}
	s.pos += len(word)
	if s.keep {
		s.text = append(s.text, word...)
	}
	return nil
}

func (s *scanner) array(depth int) *Error {
	s.pos++
	s.put('[')
	s.space()
	if s.pos < len(s.raw) && s.raw[s.pos] == ']' {
		s.pos++
		s.put(']')
		return nil
	}
	for i := 0; ; i++ {
		start := s.pos
		if err := s.value(depth); err != nil {
			return err.within(indexSegment(i))
		}
		if s.split && depth == 1 {
			s.parts = append(s.parts, Member{Value: s.raw[start:s.pos:s.pos]})
		}
		more, err := s.separator(']')
		if err != nil {
			return err.within(indexSegment(i))
		}
		if !more {
			return nil
		}
	}
}

// separator reads what follows an element or a member: a comma and the space
// behind it, or the closing bracket.
func (s *scanner) separator(closing byte) (more bool, err *Error) {
	s.space()
	if s.pos >= len(s.raw) {
		return false, s.cut()
	}
	c := s.raw[s.pos]
	if c != ',' && c != closing {
		return false, s.unexpected("a comma or the closing bracket")
	}
	s.pos++
	s.put(c)
	if c == closing {
		return false, nil
	}
	s.space()
	return true, nil
}

func (s *scanner) object(depth int) *Error {
	base := object{text: len(s.text), names: len(s.names), members: len(s.members)}
	s.pos++
	s.put('{')
	s.space()
	if s.pos < len(s.raw) && s.raw[s.pos] == '}' {
		s.pos++
		s.put('}')
		return nil
	}
	for {
		m, err := s.name()
		if err != nil {
			return err
		}
		if s.visit != nil {
			if err := s.visit(depth, s.nameOf(m)); err != nil {
				return err.within(memberSegment(s.nameOf(m)))
			}
		}
		start := s.pos
		if err := s.value(depth); err != nil {
			return err.within(memberSegment(s.nameOf(m)))
		}
		m.end = uint32(len(s.text))
		s.push(m)
		if s.split && depth == 1 {
			s.parts = append(s.parts, Member{Name: string(s.nameOf(m)), Value: s.raw[start:s.pos:s.pos]})
		}
		more, err := s.separator('}')
		if err != nil {
			return err.within(memberSegment(s.nameOf(m)))
		}
		if !more {
			return s.closeObject(base)
		}
	}
}

// push adds a member to the stack. It doubles where append would grow by a
// quarter, so that an object of many members leaves less garbage.
func (s *scanner) push(m member) {
	if len(s.members) == cap(s.members) {
		s.members = slices.Grow(s.members, max(64, len(s.members)))
	}
	s.members = append(s.members, m)
}

// An object notes how full the buffers were when an object was opened.
type object struct{ text, names, members int }

// name reads a member's name and the colon behind it.
func (s *scanner) name() (member, *Error) {
	if s.pos >= len(s.raw) {
		return member{}, s.cut()
	}
	if s.raw[s.pos] != '"' {
		return member{}, s.unexpected("a member name in quotes")
	}
	at := s.pos
	escaped, err := s.skipString()
	if err != nil {
		return member{}, err
	}
	m := member{at: uint32(at), span: span{start: uint32(len(s.text))}}
	s.text = appendString(s.text, s.raw[at:s.pos], escaped)
	m.nameLo, m.nameHi = m.start+1, uint32(len(s.text)-1)
	if escaped && bytes.IndexByte(s.text[m.nameLo:m.nameHi], '\\') >= 0 {
		m.unescaped, m.nameLo = true, uint32(len(s.names))
		s.names = appendUnescaped(s.names, s.raw[at+1:s.pos-1])
		m.nameHi = uint32(len(s.names))
	}
	s.space()
	if s.pos >= len(s.raw) {
		return member{}, s.cut()
	}
	if s.raw[s.pos] != ':' {
		return member{}, s.unexpected("a colon")
	}
	s.pos++
	s.put(':')
	s.space()
	return m, nil
}

// nameOf returns the unescaped name of m: UTF-8, so that comparing bytes
// compares code points.
func (s *scanner) nameOf(m member) []byte {
	if m.unescaped {
		return s.names[m.nameLo:m.nameHi]
	}
	return s.text[m.nameLo:m.nameHi]
}

// closeObject looks for duplicates among the members read since base, notes
// the object in shuffles when they are out of order, and drops what is no
// longer needed.
func (s *scanner) closeObject(base object) *Error {
	members := s.members[base.members:]
	sorted := true
	for i := 1; i < len(members) && sorted; i++ {
		sorted = bytes.Compare(s.nameOf(members[i-1]), s.nameOf(members[i])) < 0
	}
	if !sorted {
		s.sortMembers(members, wordSorted)
		for i := 1; i < len(members); i++ {
			if name := s.nameOf(members[i]); bytes.Equal(s.nameOf(members[i-1]), name) {
				return failure(CodeDuplicateMember, int(members[i].at), "a member name appears twice in one object",
					"Send each member once; readers disagree about which of two counts.").within(memberSegment(name))
			}
		}
	}
	if s.keep && !sorted {
		lo := uint32(len(s.order))
		s.order = slices.Grow(s.order, len(members))
		for _, m := range members {
			s.order = append(s.order, m.span)
		}
		whole := span{uint32(base.text), uint32(len(s.text) - 1)}
		s.shuffles = append(s.shuffles, shuffle{span: whole, lo: lo, hi: uint32(len(s.order))})
	}
	if !s.keep {
		s.text = s.text[:base.text]
	}
	s.names, s.members = s.names[:base.names], s.members[:base.members]
	return nil
}

// cut is the error for a text that ends inside a value.
func (s *scanner) cut() *Error {
	if len(bytes.TrimLeft(s.raw, " \t\r\n")) == 0 {
		return failure(CodeInvalidJSON, s.pos, "the JSON text is empty", "Send one JSON value.")
	}
	return failure(CodeInvalidJSON, s.pos, "the JSON text ends too early", "Send the whole value; check that it was not cut off on its way.")
}

// unexpected is the error for a byte that cannot stand where it does. It does
// not show that byte.
func (s *scanner) unexpected(want string) *Error {
	return failure(CodeInvalidJSON, s.pos, "the JSON text is malformed: expected "+want, "Send strict JSON (RFC 8259).")
}
