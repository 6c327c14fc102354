package canon

import (
	"crypto/sha256"
	"unicode/utf8"
)

// FingerprintVersion is the version of the fingerprint's definition. It is
// stored beside the hash and is its first hashed byte, so that fingerprints of
// two versions are never taken for equal. A change to the canonical form is a
// new version.
const FingerprintVersion = 1

// Sums holds the two hashes of a payload.
type Sums struct {
	Fingerprint [sha256.Size]byte // see the function Fingerprint
	Input       [sha256.Size]byte // see the function InputHash
}

// Fingerprint returns the SHA-256 of one byte, [FingerprintVersion], and the
// canonical form of {"kind": kind, "input": input, "effects": effects}.
// Effects nil means that the member is absent, which is not the same as null
// or []. Input and effects must each pass [Check]; the error is an [*Error]
// whose Path starts with input or effects.
func Fingerprint(kind string, input, effects []byte) ([sha256.Size]byte, error) {
	sums, err := sum(kind, input, effects, false)
	return sums.Fingerprint, err
}

// InputHash returns the SHA-256 of the canonical form of input, with nothing
// before it: the hash that stands in logs and answers in place of the input.
func InputHash(input []byte) ([sha256.Size]byte, error) {
	s := newScanner()
	defer s.release()
	if err := s.scan(input, true, MaxDepth); err != nil {
		return [sha256.Size]byte{}, err.finish("input")
	}
	s.open()
	s.emit(&s.out, 0, uint32(len(s.text)))
	return s.close(), nil
}

// Sum returns [Fingerprint] and [InputHash] in one reading of the input.
func Sum(kind string, input, effects []byte) (Sums, error) { return sum(kind, input, effects, true) }

func sum(kind string, input, effects []byte, withInput bool) (Sums, error) {
	var sums Sums
	if !utf8.ValidString(kind) {
		return sums, failure(CodeInvalidUnicode, -1, "the kind is not valid UTF-8", "Send a kind of the configuration.").finish("kind")
	}
	s := newScanner()
	defer s.release()
	s.open()
	s.out.writeByte(FingerprintVersion)
	// The three names in canonical order: effects, input, kind.
	s.out.writeByte('{')
	if effects != nil {
		if err := s.scan(effects, true, MaxDepth); err != nil {
			return sums, err.finish("effects")
		}
		s.out.writeString(`"effects":`)
		s.emit(&s.out, 0, uint32(len(s.text)))
		s.out.writeByte(',')
	}
	if err := s.scan(input, true, MaxDepth); err != nil {
		return sums, err.finish("input")
	}
	s.out.writeString(`"input":`)
	s.emit(&s.out, 0, uint32(len(s.text)))
	s.out.writeString(`,"kind":`)
	s.names = appendQuoted(s.names[:0], kind)
	s.out.write(s.names)
	s.out.writeByte('}')
	sums.Fingerprint = s.close()
	if withInput {
		s.open()
		s.emit(&s.out, 0, uint32(len(s.text)))
		sums.Input = s.close()
	}
	return sums, nil
}

// hashChunk is how much canonical text is collected before it is hashed; large
// values go past it.
const hashChunk = 4096

// open directs the scanner's sink into a fresh hash.
func (s *scanner) open() {
	if cap(s.out.buf) == 0 {
		s.out.buf = make([]byte, 0, hashChunk)
	}
	s.out.buf = s.out.buf[:0]
	s.one.Reset()
	s.out.sum = s.one
}

// close ends the hash that open began.
func (s *scanner) close() [sha256.Size]byte {
	s.out.flush()
	s.out.sum = nil
	s.one.Sum(s.sum[:0])
	return s.sum
}
