package canon

import (
	"cmp"
	"hash"
	"slices"
)

// Check verifies that raw is exactly one strict JSON value: no member name
// twice in one object (names compared after unescaping), well-formed UTF-8 and
// well-formed escapes (a lone surrogate is refused), no U+0000 in strings or
// names, no byte order mark, nothing but white space after the value, nested
// at most [MaxDepth] deep, numbers within [MaxExponent] and [MaxNumberBytes].
// The error is an [*Error].
func Check(raw []byte) error {
	s := newScanner()
	defer s.release()
	if err := s.scan(raw, false, MaxDepth); err != nil {
		return err.finish("")
	}
	return nil
}

// Canonical returns the canonical form of raw, as the package comment
// describes it. Two values are the same if and only if their canonical forms
// are. Raw must pass [Check]; the error is an [*Error].
func Canonical(raw []byte) ([]byte, error) { return canonical(raw, MaxDepth) }

func canonical(raw []byte, maxDepth int) ([]byte, error) {
	s := newScanner()
	defer s.release()
	if err := s.scan(raw, true, maxDepth); err != nil {
		return nil, err.finish("")
	}
	out := sink{buf: make([]byte, 0, len(s.text))}
	s.emit(&out, 0, uint32(len(s.text)))
	return out.buf, nil
}

// emit writes the canonical text between lo and hi with the members of every
// shuffled object in order. It recurses once per level of shuffled objects.
func (s *scanner) emit(out *sink, lo, hi uint32) {
	for {
		i, _ := slices.BinarySearchFunc(s.shuffles, lo, func(o shuffle, at uint32) int { return cmp.Compare(o.start, at) })
		if i == len(s.shuffles) || s.shuffles[i].start >= hi {
			out.write(s.text[lo:hi])
			return
		}
		o := s.shuffles[i]
		out.write(s.text[lo : o.start+1])
		for k, m := range s.order[o.lo:o.hi] {
			if k > 0 {
				out.writeByte(',')
			}
			s.emit(out, m.start, m.end)
		}
		lo = o.end
	}
}

// A sink collects canonical text: all of it when sum is nil, otherwise a few
// kilobytes at a time on their way into sum.
type sink struct {
	buf []byte
	sum hash.Hash
}

func (k *sink) write(b []byte) {
	if k.sum != nil && len(k.buf)+len(b) > cap(k.buf) {
		k.flush()
		if len(b) >= cap(k.buf) {
			k.sum.Write(b)
			return
		}
	}
	k.buf = append(k.buf, b...)
}

func (k *sink) writeString(text string) {
	for i := range len(text) {
		k.writeByte(text[i])
	}
}

func (k *sink) writeByte(c byte) {
	if k.sum != nil && len(k.buf) == cap(k.buf) {
		k.flush()
	}
	k.buf = append(k.buf, c)
}

func (k *sink) flush() {
	k.sum.Write(k.buf)
	k.buf = k.buf[:0]
}
