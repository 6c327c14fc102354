package canon_test

import (
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"

	"pgregory.net/rapid"

	"github.com/onefold-dev/onefold/internal/canon"
)

// A node is a JSON value without a spelling.
type node struct {
	kind    byte // 'o', 'a', 's', 'n', 'l'
	text    string
	digits  int64 // a number is digits * 10^exp
	exp     int
	names   []string
	members []*node // of an object beside its names, of an array
}

// drawNode draws a value at most depth levels deep.
func drawNode(t *rapid.T, depth int) *node {
	kinds := "snl"
	if depth > 0 {
		kinds = "oooaasnl"
	}
	n := &node{kind: kinds[rapid.IntRange(0, len(kinds)-1).Draw(t, "kind")]}
	switch n.kind {
	case 's':
		n.text = drawText(t)
	case 'n':
		n.digits = rapid.Int64().Draw(t, "digits")
		n.exp = rapid.IntRange(-30, 30).Draw(t, "exp")
	case 'l':
		n.text = rapid.SampledFrom([]string{"true", "false", "null"}).Draw(t, "literal")
	case 'o':
		n.names = rapid.SliceOfNDistinct(rapid.Custom(drawText), 0, 5, rapid.ID[string]).Draw(t, "names")
		for range n.names {
			n.members = append(n.members, drawNode(t, depth-1))
		}
	case 'a':
		for range rapid.IntRange(0, 4).Draw(t, "elements") {
			n.members = append(n.members, drawNode(t, depth-1))
		}
	}
	return n
}

// drawText draws text in which characters that need care are common.
func drawText(t *rapid.T) string {
	r := rapid.OneOf(
		rapid.SampledFrom([]rune("ab\"\\/\b\f\n\r\t\x01\x1f\x7f é€\u2028\ufffd\uff21😀\U0010ffff")),
		rapid.Rune().Filter(func(r rune) bool { return r != 0 && !utf16.IsSurrogate(r) }),
	)
	return rapid.StringOfN(r, 0, 8, -1).Draw(t, "text")
}

// spell writes n in a spelling drawn from t.
func spell(t *rapid.T, n *node) string {
	var b strings.Builder
	spellTo(t, n, &b)
	return b.String()
}

func spellTo(t *rapid.T, n *node, b *strings.Builder) {
	space := func() {
		b.WriteString(rapid.SampledFrom([]string{"", "", "", " ", "\n\t", "\r\n"}).Draw(t, "space"))
	}
	space()
	switch n.kind {
	case 's':
		spellText(t, n.text, b)
	case 'n':
		b.WriteString(spellNumber(t, n.digits, n.exp))
	case 'l':
		b.WriteString(n.text)
	case 'o':
		b.WriteByte('{')
		order := rapid.Permutation(indexes(len(n.names))).Draw(t, "order")
		for i, k := range order {
			if i > 0 {
				b.WriteByte(',')
			}
			space()
			spellText(t, n.names[k], b)
			space()
			b.WriteByte(':')
			spellTo(t, n.members[k], b)
		}
		space()
		b.WriteByte('}')
	case 'a':
		b.WriteByte('[')
		for i, m := range n.members {
			if i > 0 {
				b.WriteByte(',')
			}
			spellTo(t, m, b)
		}
		space()
		b.WriteByte(']')
	}
	space()
}

func indexes(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// spellText writes a string, each character as it is, by its short escape or
// by \u in either case.
func spellText(t *rapid.T, text string, b *strings.Builder) {
	short := map[rune]string{'"': `\"`, '\\': `\\`, '/': `\/`, '\b': `\b`, '\f': `\f`, '\n': `\n`, '\r': `\r`, '\t': `\t`}
	b.WriteByte('"')
	for _, r := range text {
		form := rapid.IntRange(0, 3).Draw(t, "form")
		escape, hasShort := short[r]
		mustEscape := r < 0x20 || r == '"' || r == '\\'
		switch {
		case form == 0 && hasShort:
			b.WriteString(escape)
		case form == 1 || mustEscape:
			format := rapid.SampledFrom([]string{`\u%04x`, `\u%04X`}).Draw(t, "case")
			for _, unit := range utf16.Encode([]rune{r}) {
				fmt.Fprintf(b, format, unit)
			}
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
}

// spellNumber writes digits * 10^exp in one of many ways.
func spellNumber(t *rapid.T, digits int64, exp int) string {
	text := strconv.FormatInt(digits, 10)
	sign := ""
	if text[0] == '-' {
		sign, text = "-", text[1:]
	}
	zeros := rapid.IntRange(0, 3).Draw(t, "zeros")
	text, exp = text+strings.Repeat("0", zeros), exp-zeros
	if point := rapid.IntRange(0, len(text)).Draw(t, "point"); point < len(text) {
		whole, fraction := text[:point], text[point:]
		if strings.Trim(whole, "0") == "" {
			whole = "0"
		}
		text, exp = whole+"."+fraction, exp+len(fraction)
	}
	if text != "0" && text[0] == '0' && text[1] != '.' {
		text = strings.TrimLeft(text, "0")
		if text == "" || text[0] == '.' {
			text = "0" + text
		}
	}
	if exp == 0 && rapid.Bool().Draw(t, "bare") {
		return sign + text
	}
	mark := rapid.SampledFrom([]string{"e", "E"}).Draw(t, "mark")
	plus := ""
	if exp >= 0 {
		plus = rapid.SampledFrom([]string{"", "+", "+0", "00"}).Draw(t, "plus")
	}
	return sign + text + mark + plus + strconv.Itoa(exp)
}

func fingerprint(t *rapid.T, raw string) [32]byte {
	fp, err := canon.Fingerprint("k", []byte(raw), nil)
	if err != nil {
		t.Fatalf("%q: %v", raw, err)
	}
	return fp
}

// TestSpellingIsNoDifference: order of members, white space, escapes and the
// spelling of numbers never change the fingerprint, nor show in Diff.
func TestSpellingIsNoDifference(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := drawNode(t, 4)
		a, b := spell(t, n), spell(t, n)
		if fingerprint(t, a) != fingerprint(t, b) {
			t.Fatalf("two spellings of one value differ:\n%s\n%s", a, b)
		}
		paths, err := canon.Diff([]byte(a), []byte(b))
		if err != nil || len(paths) > 0 {
			t.Fatalf("Diff of two spellings: %q, %v", paths, err)
		}
	})
}

// TestEveryChangeIsADifference: changing any one leaf, name or length changes
// the fingerprint, and Diff finds exactly one place.
func TestEveryChangeIsADifference(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := drawNode(t, 4)
		before := spell(t, n)
		all := nodesOf(n, nil)
		target := all[rapid.IntRange(0, len(all)-1).Draw(t, "target")]
		places := change(t, target)
		after := spell(t, n)
		if fingerprint(t, before) == fingerprint(t, after) {
			t.Fatalf("a change is not seen:\n%s\n%s", before, after)
		}
		paths, err := canon.Diff([]byte(before), []byte(after))
		if err != nil || len(paths) != places {
			t.Fatalf("Diff: %q (%v), want %d places:\n%s\n%s", paths, err, places, before, after)
		}
	})
}

func nodesOf(n *node, all []*node) []*node {
	all = append(all, n)
	for _, m := range n.members {
		all = nodesOf(m, all)
	}
	return all
}

// change makes n another value and returns how many places Diff must name.
func change(t *rapid.T, n *node) int {
	switch n.kind {
	case 's':
		n.text += rapid.SampledFrom([]string{"x", " ", "\u0301", "\\", "0"}).Draw(t, "added")
	case 'n':
		if n.digits == 0 || rapid.Bool().Draw(t, "digit") {
			n.digits ^= 1 // never crosses zero, never a multiple by ten
		} else {
			n.exp++
		}
	case 'l':
		words := []string{"true", "false", "null"}
		n.text = words[(slices.Index(words, n.text)+1)%3]
	case 'o':
		if len(n.names) == 0 || rapid.Bool().Draw(t, "add") {
			n.names = append(n.names, strings.Join(n.names, "")+"new")
			n.members = append(n.members, &node{kind: 'l', text: "null"})
			return 1
		}
		n.names[0] = strings.Join(n.names, "") + "renamed"
		return 2
	case 'a':
		n.members = append(n.members, &node{kind: 'l', text: "null"})
	}
	return 1
}

// TestNumbersByValue: two numbers have one canonical form if and only if they
// are the same rational number.
func TestNumbersByValue(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.StringMatching(`-?(0|[1-9][0-9]{0,3})(\.[0-9]{1,4})?([eE][+-]?[0-9]{1,2})?`)
		a, b := number.Draw(t, "a"), number.Draw(t, "b")
		if rapid.Bool().Draw(t, "shifted") {
			b = strings.SplitN(strings.ToLower(a), "e", 2)[0] + "e" + strconv.Itoa(rapid.IntRange(-3, 3).Draw(t, "shift"))
		}
		left, _ := new(big.Rat).SetString(a)
		right, _ := new(big.Rat).SetString(b)
		same := fingerprint(t, a) == fingerprint(t, b)
		if same != (left.Cmp(right) == 0) {
			t.Fatalf("%s and %s: same fingerprint is %v", a, b, same)
		}
		canonical, err := canon.Canonical([]byte(a))
		if err != nil {
			t.Fatal(err)
		}
		back, ok := new(big.Rat).SetString(string(canonical))
		if !ok || back.Cmp(left) != 0 {
			t.Fatalf("%s became %s", a, canonical)
		}
	})
}
