package canon

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
)

// wordSorted is how many rounds of sorting by eight bytes are tried before
// whole names are compared. Names that still agree then are so long that few
// of them fit into one text.
const wordSorted = 16

// sortMembers sorts members by name, by code point; equal names stay in the
// order of the source. It sorts by the eight bytes behind what all names have
// in common, then each group that agrees in these in the same way. Comparing
// whole names took five times as long on an object of 600,000 members, which
// is what a hostile caller would send.
func (s *scanner) sortMembers(members []member, rounds int) {
	if rounds == 0 {
		slices.SortFunc(members, func(a, b member) int {
			return cmp.Or(bytes.Compare(s.nameOf(a), s.nameOf(b)), cmp.Compare(a.at, b.at))
		})
		return
	}
	common := s.commonPrefix(members)
	for i := range members {
		members[i].word = wordAt(s.nameOf(members[i]), common)
	}
	slices.SortFunc(members, func(a, b member) int {
		if a.word != b.word {
			return cmp.Compare(a.word, b.word)
		}
		return cmp.Compare(a.at, b.at)
	})
	for start := 0; start < len(members); {
		end := start + 1
		for end < len(members) && members[end].word == members[start].word {
			end++
		}
		// Names hold no NUL, so a word that ends in one is the end of the name:
		// the whole group is one name.
		if end-start > 1 && members[start].word&0xff != 0 {
			s.sortMembers(members[start:end], rounds-1)
		}
		start = end
	}
}

// commonPrefix returns how many bytes all names start with in common.
func (s *scanner) commonPrefix(members []member) int {
	first := s.nameOf(members[0])
	common := len(first)
	for _, m := range members[1:] {
		name := s.nameOf(m)
		common = min(common, len(name))
		for i := range common {
			if name[i] != first[i] {
				common = i
				break
			}
		}
	}
	return common
}

// wordAt returns the eight bytes of name from offset at, filled up with zeros,
// as a number that sorts as they do.
func wordAt(name []byte, at int) uint64 {
	name = name[at:]
	if len(name) >= 8 {
		return binary.BigEndian.Uint64(name)
	}
	var word [8]byte
	copy(word[:], name)
	return binary.BigEndian.Uint64(word[:])
}
