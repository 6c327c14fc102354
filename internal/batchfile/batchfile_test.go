package batchfile

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/api"
)

func readAll(t *testing.T, r io.Reader) (lines []string, in *Reader, err error) {
	t.Helper()
	in = NewReader(r)
	for {
		l, err := in.Next()
		if errors.Is(err, io.EOF) {
			return lines, in, nil
		}
		if err != nil {
			return lines, in, err
		}
		end := ""
		if !l.Ended {
			end = " cut"
		}
		lines = append(lines, fmt.Sprintf("%d %s%s", l.Number, l.Text, end))
	}
}

func TestLines(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		file string
		want []string
	}{
		{"", nil},
		{"\n\n \t\r\n", nil},
		{"\xef\xbb\xbf", nil},
		{"a\nb\n", []string{"1 a", "2 b"}},
		{"a\nb", []string{"1 a", "2 b cut"}},
		{"a\r\nb\r\n", []string{"1 a", "2 b"}},
		{"a\r\r\n", []string{"1 a\r"}},
		{"\n\na\n\n b \n", []string{"3 a", "5  b "}},
		{"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", []string{"1 a", "2 \xef\xbb\xbfb"}},
		{"a\u2028b\u0085c\n", []string{"1 a\u2028b\u0085c"}},
		{"a\rb\n", []string{"1 a\rb"}},
		{"\x00\n", []string{"1 \x00"}},
	} {
		for name, r := range map[string]io.Reader{
			"at once": strings.NewReader(tt.file), "byte by byte": iotest.OneByteReader(strings.NewReader(tt.file)),
			"with EOF": iotest.DataErrReader(strings.NewReader(tt.file)),
		} {
			got, in, err := readAll(t, r)
			if err != nil {
				t.Errorf("%q %s: %v", tt.file, name, err)
			}
			if diff := cmp.Diff(got, tt.want); diff != "" {
				t.Errorf("%q %s: -got +want:\n%s", tt.file, name, diff)
			}
			if sum := sha256.Sum256([]byte(tt.file)); !bytes.Equal(in.Prefix(), sum[:]) || in.bytes != int64(len(tt.file)) {
				t.Errorf("%q %s: not every byte was counted", tt.file, name)
			}
		}
	}
}

// endless gives the same bytes for ever.
type endless struct {
	text []byte
	n    int
}

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = e.text[e.n%len(e.text)]
		e.n++
	}
	return len(p), nil
}

// What is beyond a limit ends the reading, with the line that is; memory stays
// within one line.
func TestLimits(t *testing.T) {
	t.Parallel()
	few := limits{maxLines: 1000, maxLine: 1 << 10, maxBytes: 1 << 20}
	large := strings.Repeat("x", few.maxLine)
	for name, tt := range map[string]struct {
		r    io.Reader
		line int // 0: within the limits
	}{
		"the largest line":    {strings.NewReader("\xef\xbb\xbf" + large + "\r\n" + large + "\n" + large), 0},
		"a long line":         {strings.NewReader("a\n" + large + "y\nb\n"), 2},
		"a longer line":       {strings.NewReader("a\n" + large + large), 2},
		"no line end":         {&endless{text: []byte("x")}, 1},
		"all lines there are": {strings.NewReader(strings.Repeat("1\n\n", few.maxLines)), 0},
		"too many lines":      {&endless{text: []byte("1\n")}, few.maxLines + 1},
		"blank lines":         {&endless{text: []byte("\n")}, 10*few.maxLines + 1},
		"too large":           {&endless{text: []byte(strings.Repeat(" ", 1<<10-1) + "\n")}, 1<<10 + 1},
	} {
		in := NewReader(tt.r)
		in.limits = few
		var err error
		for err == nil {
			_, err = in.Next()
		}
		if tt.line == 0 && errors.Is(err, io.EOF) {
			continue
		}
		var e *api.Error
		if !errors.As(err, &e) || e.Code != api.CodeTooLarge || e.Line != tt.line {
			t.Errorf("%s: got %v (line %d), want it to be too large at line %d", name, err, lineOf(err), tt.line)
		}
	}
}

func lineOf(err error) int {
	var e *api.Error
	if errors.As(err, &e) {
		return e.Line
	}
	return 0
}

func TestBrokenBody(t *testing.T) {
	t.Parallel()
	broken := errors.New("connection reset")
	got, _, err := readAll(t, io.MultiReader(strings.NewReader("a\nb"), iotest.ErrReader(broken)))
	if !errors.Is(err, broken) || len(got) != 1 {
		t.Errorf("got %q, %v; want one line and the error", got, err)
	}
}

// FuzzLines holds the reader against the plain way of doing it, and the forms
// against panics: whatever comes, a line has an outcome.
func FuzzLines(f *testing.F) {
	for _, s := range []string{
		"", "\n", "a", "{}\n", "\xef\xbb\xbf{\"custom_id\":\"a\"}\r\n\r\n[1]\nnull\n", `{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{"model":"m"}}`,
		`{"key":"a","kind":"k","input":1}` + "\n" + `{"key":"\ud800"}` + "\n", "{\"key\":\"a\"\n", "\x00\xff\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		in := NewReader(iotest.HalfReader(bytes.NewReader(file)))
		var got []string
		var last Line
		fm := Form{BatchKey: "b", Kind: "llm.chat"}
		for {
			l, err := in.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("got %v from a file of %d bytes", err, len(file))
			}
			got, last = append(got, fmt.Sprint(l.Number, " ", string(l.Text))), l
			if fm.Name == "" {
				fm.Name, _ = FormOf(l.Text)
			}
			id, r, bad, refuse := fm.Read(l)
			switch {
			case refuse != nil:
				if lineOf(refuse) != l.Number {
					t.Errorf("the refusal names line %d, not %d", lineOf(refuse), l.Number)
				}
			case bad == nil && (id == "" || len(r.Body) == 0):
				t.Errorf("line %d has neither id nor error", l.Number)
			case bad != nil && (bad.Code == "" || bad.Message == ""):
				t.Errorf("line %d has an error without words", l.Number)
			}
		}
		var want []string
		for i, text := range strings.Split(string(file), "\n") {
			if i == 0 {
				text = strings.TrimPrefix(text, "\xef\xbb\xbf")
			}
			if text = strings.TrimSuffix(text, "\r"); strings.Trim(text, blank) != "" {
				want = append(want, fmt.Sprint(i+1, " ", text))
			}
		}
		if diff := cmp.Diff(got, want); diff != "" {
			t.Errorf("-got +want:\n%s", diff)
		}
		if last.Number > 0 && !last.Ended && bytes.HasSuffix(file, []byte("\n")) {
			t.Error("the last line has its end, and counts as cut")
		}
		if sum := sha256.Sum256(file); !bytes.Equal(in.Prefix(), sum[:]) {
			t.Error("the hash is not that of the file")
		}
	})
}

// No two lines of any batches share a task key, and every key is a valid one.
func TestTaskKey(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 300)
	seen := map[string]string{}
	for _, p := range [][2]string{
		{"a", "b"},
		{"a:b", "c"},
		{"a", "b:c"},
		{"a", "b%3Ac"},
		{"a", "B"},
		{"a", ""},
		{"a", "\u00e9"},
		{"a", "\u00c9"},
		{"a", "x y"},
		{"a", "x%20y"},
		{"a", long},
		{"a", long + "y"},
		{long[:250], "a"},
		{long[:250], "b"},
		{"a", "\""},
	} {
		key := TaskKey(p[0], p[1])
		if was, ok := seen[key]; ok {
			t.Errorf("%q has the key of %q", p, was)
		}
		seen[key] = fmt.Sprint(p)
		if len(key) > 255 || strings.Trim(key, "!\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyz{|}~") != "" {
			t.Errorf("%q gives the key %q", p, key)
		}
	}
	if got := TaskKey("nightly:2026-03-01", "row-7"); got != "batch:nightly:2026-03-01:row-7" {
		t.Errorf("got %q", got)
	}
}
