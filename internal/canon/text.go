package canon

import (
	"bytes"
	"encoding/binary"
	"unicode/utf16"
	"unicode/utf8"
)

// skipString moves past the string that starts at pos, checking its escapes,
// its UTF-8 and that it has no control characters, U+0000 in any spelling
// included. It reports whether the string has escapes.
func (s *scanner) skipString() (escaped bool, err *Error) {
	start := s.pos + 1
	for i := start; ; {
		i += plainPrefix(s.raw[i:])
		if i >= len(s.raw) {
			s.pos = i
			return false, s.cut()
		}
		switch c := s.raw[i]; {
		case c == '"':
			if at := illFormed(s.raw[start:i]); at >= 0 {
				return false, failure(CodeInvalidUnicode, start+at, "a string is not valid UTF-8", "Send the text as UTF-8.")
			}
			s.pos = i + 1
			return escaped, nil
		case c == '\\':
			escaped = true
			n, err := s.escape(i)
			if err != nil {
				return false, err
			}
			i += n
		case c == 0:
			return false, nulCharacter(i)
		default:
			return false, failure(CodeInvalidJSON, i, "a string holds a control character that is not escaped",
				`Escape control characters in strings (\n, \t, \u00xx).`)
		}
	}
}

func nulCharacter(at int) *Error {
	return failure(CodeNULCharacter, at, "a string holds U+0000", "Remove NUL characters; the database cannot keep them as text.")
}

const (
	lows  = 0x0101010101010101
	highs = 0x8080808080808080
)

// plainPrefix returns how many bytes at the start of b are neither a quotation
// mark, a backslash nor a control character. It looks at eight bytes a step:
// for x without its high bits, (x - n) borrows into the high bit of a byte
// that is below n.
func plainPrefix(b []byte) int {
	i := 0
	for ; i+8 <= len(b); i += 8 {
		w := binary.LittleEndian.Uint64(b[i:])
		quote, slash := w^('"'*lows), w^('\\'*lows)
		if ((w-0x20*lows)&^w|(quote-lows)&^quote|(slash-lows)&^slash)&highs != 0 {
			break
		}
	}
	for ; i < len(b); i++ {
		if c := b[i]; c < 0x20 || c == '"' || c == '\\' {
			break
		}
	}
	return i
}

// illFormed returns the offset of the first byte of b that is not well-formed
// UTF-8, or -1.
func illFormed(b []byte) int {
	if utf8.Valid(b) {
		return -1
	}
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return -1
}

// escape checks the escape sequence at offset i and returns its length; a
// surrogate pair is one sequence of twelve bytes.
func (s *scanner) escape(i int) (int, *Error) {
	if i+1 >= len(s.raw) {
		s.pos = len(s.raw)
		return 0, s.cut()
	}
	switch s.raw[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2, nil
	case 'u':
	default:
		return 0, badEscape(i)
	}
	r, ok := hex4(s.raw[i:])
	switch {
	case !ok && len(s.raw) < i+6:
		s.pos = len(s.raw)
		return 0, s.cut()
	case !ok:
		return 0, badEscape(i)
	case r == 0:
		return 0, nulCharacter(i)
	case !utf16.IsSurrogate(r):
		return 6, nil
	}
	if low, ok := hex4(s.raw[i+6:]); ok && utf16.DecodeRune(r, low) != utf8.RuneError {
		return 12, nil
	}
	return 0, failure(CodeInvalidUnicode, i, "a string holds one half of a surrogate pair",
		"Send whole characters; text cut in the middle of a character must be joined or cut before it.")
}

func badEscape(at int) *Error {
	return failure(CodeInvalidJSON, at, "a string holds an unknown escape", `Use the escapes of RFC 8259; write a backslash as \\.`)
}

// hex4 reads \uXXXX at the start of b.
func hex4(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range b[2:6] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// stringValue reads a string that is a value.
func (s *scanner) stringValue() *Error {
	start := s.pos
	escaped, err := s.skipString()
	if err != nil {
		return err
	}
	if s.keep {
		s.text = appendString(s.text, s.raw[start:s.pos], escaped)
	}
	return nil
}

// appendString appends the canonical form of a checked string, given with its
// quotes.
func appendString(dst, quoted []byte, escaped bool) []byte {
	if !escaped {
		return append(dst, quoted...)
	}
	for {
		i := bytes.IndexByte(quoted, '\\')
		if i < 0 {
			return append(dst, quoted...)
		}
		dst = append(dst, quoted[:i]...)
		r, n := unescape(quoted[i:])
		dst = appendCharacter(dst, r)
		quoted = quoted[i+n:]
	}
}

// appendUnescaped appends the text of a checked string, given without its
// quotes.
func appendUnescaped(dst, text []byte) []byte {
	for {
		i := bytes.IndexByte(text, '\\')
		if i < 0 {
			return append(dst, text...)
		}
		dst = append(dst, text[:i]...)
		r, n := unescape(text[i:])
		dst = utf8.AppendRune(dst, r)
		text = text[i+n:]
	}
}

// unescape reads the checked escape sequence at the start of b and returns its
// character and its length.
func unescape(b []byte) (rune, int) {
	switch c := b[1]; c {
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
		r, _ := hex4(b)
		if !utf16.IsSurrogate(r) {
			return r, 6
		}
		low, _ := hex4(b[6:])
		return utf16.DecodeRune(r, low), 12
	default:
		return rune(c), 2
	}
}

// appendCharacter appends one character in its canonical spelling.
func appendCharacter(dst []byte, r rune) []byte {
	const hex = "0123456789abcdef"
	switch r {
	case '"', '\\':
		return append(dst, '\\', byte(r))
	case '\b':
		return append(dst, '\\', 'b')
	case '\t':
		return append(dst, '\\', 't')
	case '\n':
		return append(dst, '\\', 'n')
	case '\f':
		return append(dst, '\\', 'f')
	case '\r':
		return append(dst, '\\', 'r')
	}
	if r < 0x20 {
		return append(dst, '\\', 'u', '0', '0', hex[r>>4], hex[r&15])
	}
	return utf8.AppendRune(dst, r)
}

// appendQuoted appends a Go string as a canonical JSON string. It must be
// valid UTF-8.
func appendQuoted(dst []byte, text string) []byte {
	dst = append(dst, '"')
	for _, r := range text {
		dst = appendCharacter(dst, r)
	}
	return append(dst, '"')
}
