package delta

import (
	"unicode/utf8"
)

// appendUnquoted appends the text of a valid JSON string literal. A surrogate escape that stands alone becomes its
// three-byte form, so that join can find it.
func appendUnquoted(dst, lit []byte) []byte {
	lit = lit[1 : len(lit)-1]
	for i := 0; i < len(lit); i++ {
		if lit[i] != '\\' {
			dst = append(dst, lit[i])
			continue
		}
		i++
		switch lit[i] {
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			dst = join(dst, appendUnit(nil, hex4(lit[i+1:i+5])))
			i += 4
		default:
			dst = append(dst, lit[i])
		}
	}
	return dst
}

func hex4(b []byte) rune {
	var r rune
	for _, c := range b {
		switch {
		case c <= '9':
			r = r<<4 | rune(c-'0')
		default:
			r = r<<4 | rune(c|0x20-'a'+10)
		}
	}
	return r
}

// appendUnit appends one UTF-16 unit; utf8.AppendRune would replace a surrogate.
func appendUnit(dst []byte, r rune) []byte {
	if r < 0xD800 || r > 0xDFFF {
		return utf8.AppendRune(dst, r)
	}
	return append(dst, 0xE0|byte(r>>12), 0x80|byte(r>>6)&0x3F, 0x80|byte(r)&0x3F)
}

// surrogate decodes the three-byte form of a surrogate.
func surrogate(b []byte) (rune, bool) {
	if len(b) < 3 || b[0] != 0xED || b[1] < 0xA0 || b[1] > 0xBF || b[2]&0xC0 != 0x80 {
		return 0, false
	}
	return 0xD000 | rune(b[1]&0x3F)<<6 | rune(b[2]&0x3F), true
}

// join appends next to dst; a high surrogate at the end of dst and a low one at the start of next become one rune.
func join(dst, next []byte) []byte {
	low, ok := surrogate(next)
	if ok && low >= 0xDC00 && len(dst) >= 3 {
		if high, ok := surrogate(dst[len(dst)-3:]); ok && high < 0xDC00 {
			r := 0x10000 + (high-0xD800)<<10 + (low - 0xDC00)
			dst = utf8.AppendRune(dst[:len(dst)-3], r)
			next = next[3:]
		}
	}
	return append(dst, next...)
}

// repaired replaces what is ill-formed by U+FFFD: one for a lone surrogate, one for each byte otherwise.
func repaired(b []byte) []byte {
	if utf8.Valid(b) {
		return b
	}
	out := make([]byte, 0, len(b)+8)
	for len(b) > 0 {
		if _, ok := surrogate(b); ok {
			out, b = utf8.AppendRune(out, utf8.RuneError), b[3:]
			continue
		}
		r, n := utf8.DecodeRune(b)
		out, b = utf8.AppendRune(out, r), b[n:]
	}
	return out
}

const hexDigits = "0123456789abcdef"

// appendQuoted appends a JSON string literal; it escapes only what JSON asks to be escaped.
func appendQuoted(dst, text []byte) []byte {
	dst = append(dst, '"')
	for _, c := range repaired(text) {
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c == '\n':
			dst = append(dst, '\\', 'n')
		case c == '\r':
			dst = append(dst, '\\', 'r')
		case c == '\t':
			dst = append(dst, '\\', 't')
		case c < 0x20:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&0xF])
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}

// Repair returns a valid JSON document as it is, except that ill-formed Unicode inside its strings becomes U+FFFD. It
// returns doc itself when there is nothing to repair.
func Repair(doc []byte) []byte {
	var out []byte
	copied := 0
	for i := 0; i < len(doc); i++ {
		if doc[i] != '"' {
			continue
		}
		end := i + 1
		for ; doc[end] != '"'; end++ {
			if doc[end] == '\\' {
				end++
			}
		}
		if text := appendUnquoted(nil, doc[i:end+1]); !utf8.Valid(text) {
			out = appendQuoted(append(out, doc[copied:i]...), text)
			copied = end + 1
		}
		i = end
	}
	if copied == 0 {
		return doc
	}
	return append(out, doc[copied:]...)
}
