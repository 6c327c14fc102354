package provider

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// quoteLength is how many letters and digits in a row a message and the request must share to count as a quotation:
// long enough that ordinary words pass, short enough to catch a name or a number.
const quoteLength = 12

// maskQuotes replaces the passages of a message that stand in the request's texts too. Providers quote the prompt in
// what they say of it, and an error is stored, logged and shown where the prompt must not be. Compared are letters and
// digits only, so that escapes, line breaks and quotation marks make no difference. Names of models and the like, which
// are no text, are left.
func maskQuotes(message string, request []byte) string {
	runes, at := plainRunes(message)
	if len(request) == 0 || len(runes) < quoteLength {
		return message
	}
	windows := map[uint64][]int{}
	eachWindow(runes, func(start int, h uint64) { windows[h] = append(windows[h], start) })
	quoted := make([]bool, len(runes))
	eachText(request, func(text string) {
		said, _ := plainRunes(text)
		eachWindow(said, func(_ int, h uint64) {
			for _, start := range windows[h] {
				for i := range quoteLength {
					quoted[start+i] = true
				}
			}
			delete(windows, h)
		})
	})
	return withoutQuoted(message, at, quoted)
}

type span struct{ start, end int }

// plainRunes returns the letters and digits of a text in lower case, and where each stands.
func plainRunes(s string) (runes []rune, at []span) {
	for i, r := range s {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			runes, at = append(runes, unicode.ToLower(r)), append(at, span{i, i + utf8.RuneLen(r)})
		}
	}
	return runes, at
}

// eachWindow calls f for each run of quoteLength runes, with a hash that rolls along. Two runs that share a hash by
// chance mask a few words too many.
func eachWindow(runes []rune, f func(start int, h uint64)) {
	const base = 1_099_511_628_211
	top := uint64(1)
	for range quoteLength - 1 {
		top *= base
	}
	var h uint64
	for i, r := range runes {
		if i >= quoteLength {
			h -= uint64(runes[i-quoteLength]) * top
		}
		h = h*base + uint64(r)
		if i >= quoteLength-1 {
			f(i-quoteLength+1, h)
		}
	}
}

// eachText calls f for every string of a JSON document that may be text; what is not JSON is one text.
func eachText(doc []byte, f func(string)) {
	dec := jsontext.NewDecoder(bytes.NewBuffer(doc), jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
	name, isName := "", false
	for {
		kind, n := dec.StackIndex(dec.StackDepth())
		isName = kind == '{' && n%2 == 0
		t, err := dec.ReadToken()
		if err != nil {
			break
		}
		switch {
		case t.Kind() != '"':
		case isName:
			name = t.String()
		case name == "model" || name == "role" || name == "type":
		default:
			f(t.String())
		}
	}
	if dec.InputOffset() == 0 {
		f(string(doc))
	}
}

// withoutQuoted puts an ellipsis in place of the passages that are marked.
func withoutQuoted(message string, at []span, quoted []bool) string {
	var b strings.Builder
	done := 0
	for i := 0; i < len(at); i++ {
		if !quoted[i] {
			continue
		}
		b.WriteString(message[done:at[i].start] + "…")
		for i+1 < len(at) && quoted[i+1] {
			i++
		}
		done = at[i].end
	}
	return b.String() + message[done:]
}
