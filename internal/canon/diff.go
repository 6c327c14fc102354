package canon

import "bytes"

// MaxDiff is how many paths [Diff] returns at most.
const MaxDiff = 20

// Payload returns {"kind":..., "input":..., "effects":...} around values that
// have passed [Check], as [Diff] takes it. Effects nil leaves the member out.
func Payload(kind string, input, effects []byte) []byte {
	out := make([]byte, 0, len(kind)+len(input)+len(effects)+40)
	out = appendQuoted(append(out, `{"kind":`...), kind)
	out = append(append(out, `,"input":`...), input...)
	if effects != nil {
		out = append(append(out, `,"effects":`...), effects...)
	}
	return append(out, '}')
}

// Diff returns the paths at which two values differ, names and indexes only:
// a value that is in both but not the same, and a member or element that is in
// one alone. Nested values are followed to the innermost difference. The paths
// come in canonical order (names by code point, indexes ascending), at most
// [MaxDiff] of them; unusual names are escaped and long ones shortened. Two
// values that differ as a whole give the one path "$". Equal values give none.
// Each value is read under the rules of [Members].
func Diff(a, b []byte) ([]string, error) {
	left, err := canonical(a, MaxDepth+1)
	if err != nil {
		return nil, err
	}
	right, err := canonical(b, MaxDepth+1)
	if err != nil {
		return nil, err
	}
	d := differ{left: cursor{b: left}, right: cursor{b: right}}
	d.value()
	return d.paths, nil
}

// A differ walks two canonical texts in step; sorted members make that a merge.
type differ struct {
	left, right cursor
	path        []byte
	paths       []string
}

func (d *differ) full() bool { return len(d.paths) >= MaxDiff }

// report notes a path. Paths that were shortened to the same text count once.
func (d *differ) report(path []byte) {
	if n := len(d.paths); d.full() || n > 0 && d.paths[n-1] == string(path) {
		return
	}
	d.paths = append(d.paths, string(path))
}

// step returns the current path with one more segment. A path beyond its
// limit stays as it is.
func (d *differ) step(s segment) []byte {
	if len(d.path) > maxPathBytes {
		if bytes.HasSuffix(d.path, []byte("...")) {
			return d.path
		}
		return append(d.path, "..."...)
	}
	return s.appendTo(d.path)
}

// inside compares the values at both cursors below the segment s.
func (d *differ) inside(s segment) {
	outer := len(d.path)
	d.path = d.step(s)
	d.value()
	d.path = d.path[:outer]
}

// value compares the values at both cursors and moves past them, unless the
// list of paths is full.
func (d *differ) value() {
	l, r := d.left.peek(), d.right.peek()
	switch {
	case l == '{' && r == '{':
		d.objects()
	case l == '[' && r == '[':
		d.arrays()
	default:
		left, right := d.left.value(), d.right.value()
		switch {
		case bytes.Equal(left, right):
		case len(d.path) == 0:
			d.report([]byte("$"))
		default:
			d.report(d.path)
		}
	}
}

func (d *differ) objects() {
	left, right := d.left.enter(), d.right.enter()
	var l, r []byte // the names at the cursors, nil before they are read
	for !d.full() {
		if l == nil && left {
			l = d.left.name()
		}
		if r == nil && right {
			r = d.right.name()
		}
		switch {
		case l == nil && r == nil:
			return
		case r == nil || l != nil && bytes.Compare(l, r) < 0:
			d.report(d.step(memberSegment(l)))
			d.left.value()
			l, left = nil, d.left.more()
		case l == nil || bytes.Compare(l, r) > 0:
			d.report(d.step(memberSegment(r)))
			d.right.value()
			r, right = nil, d.right.more()
		default:
			d.inside(memberSegment(l))
			if d.full() {
				return
			}
			l, left = nil, d.left.more()
			r, right = nil, d.right.more()
		}
	}
}

func (d *differ) arrays() {
	left, right := d.left.enter(), d.right.enter()
	for i := 0; (left || right) && !d.full(); i++ {
		switch {
		case !right:
			d.report(d.step(indexSegment(i)))
			d.left.value()
			left = d.left.more()
		case !left:
			d.report(d.step(indexSegment(i)))
			d.right.value()
			right = d.right.more()
		default:
			d.inside(indexSegment(i))
			if d.full() {
				return
			}
			left, right = d.left.more(), d.right.more()
		}
	}
}

// A cursor walks canonical text, which it trusts.
type cursor struct {
	b   []byte
	pos int
}

func (c *cursor) peek() byte { return c.b[c.pos] }

// enter moves past an opening bracket and reports whether anything is inside;
// when nothing is, it moves past the closing one too.
func (c *cursor) enter() bool {
	c.pos++
	if c.b[c.pos] == '}' || c.b[c.pos] == ']' {
		c.pos++
		return false
	}
	return true
}

// more moves past the comma or the closing bracket behind a value and reports
// which it was.
func (c *cursor) more() bool {
	c.pos++
	return c.b[c.pos-1] == ','
}

// name reads a member name and its colon, and returns the name unescaped, not
// nil.
func (c *cursor) name() []byte {
	quoted := c.value()
	c.pos++
	text := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(text, '\\') < 0 {
		return text
	}
	return appendUnescaped(make([]byte, 0, len(text)), text)
}

// value moves past a value and returns its text.
func (c *cursor) value() []byte {
	start, depth := c.pos, 0
	for {
		switch c.b[c.pos] {
		case '"':
			c.skipString()
		case '{', '[':
			depth++
			c.pos++
		case '}', ']':
			depth--
			c.pos++
		case ',', ':':
			c.pos++
		default:
			for c.pos < len(c.b) && !bytes.ContainsRune([]byte(",:]}"), rune(c.b[c.pos])) {
				c.pos++
			}
		}
		if depth == 0 {
			return c.b[start:c.pos]
		}
	}
}

func (c *cursor) skipString() {
	c.pos++
	for {
		c.pos += plainPrefix(c.b[c.pos:])
		if c.b[c.pos] == '"' {
			c.pos++
			return
		}
		c.pos += 2
	}
}
