package wire_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/internal/provider/wire"
)

// read reads all events as "name|data", with "!" after one that the end cut and "{" before a bare one.
func read(r io.Reader, limit int64) (out []string, err error) {
	e := wire.NewEvents(r, limit)
	for {
		ev, err := e.Next()
		if err != nil {
			return out, err
		}
		s := ev.Name + "|" + string(ev.Data)
		if ev.Open {
			s += "!"
		}
		if ev.Bare {
			s = "{" + s
		}
		out = append(out, s)
	}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, in string
		want     []string
	}{
		{"LF", "data: a\n\ndata: b\n\n", []string{"|a", "|b"}},
		{"CRLF", "data: a\r\n\r\ndata: b\r\n\r\n", []string{"|a", "|b"}},
		{"CR", "data: a\r\rdata: b\r\r", []string{"|a", "|b"}},
		{"mixed", "data: a\n\r\ndata: b\r\n\n", []string{"|a", "|b"}},
		{"no space", "data:a\n\n", []string{"|a"}},
		{"one space only is taken", "data:  a\n\n", []string{"| a"}},
		{"several lines", "data: a\ndata: b\ndata:\ndata: c\n\n", []string{"|a\nb\n\nc"}},
		{"comments, ids, retry, unknown", ": hi\nid: 1\nretry: 5\nfoo: x\ndata: a\n: x\n\n", []string{"|a"}},
		{"name", "event: error\ndata: a\n\ndata: b\n\n", []string{"error|a", "|b"}},
		{"name without data is dropped", "event: error\n\ndata: b\n\n", []string{"|b"}},
		{"empty data", "data:\n\ndata\n\ndata: a\n\n", []string{"|a"}},
		{"byte order mark", "\xEF\xBB\xBFdata: a\n\n", []string{"|a"}},
		{"byte order mark later is text", "data: a\n\n\xEF\xBB\xBFdata: b\n\ndata: c\n\n", []string{"|a", "|c"}},
		{"open at the end", "data: a\n\ndata: b", []string{"|a", "|b!"}},
		{"open after a line", "data: a\n\ndata: b\n", []string{"|a", "|b!"}},
		{"bare JSON", "{\"error\":1}\n\ndata: b\n\n", []string{"{|{\"error\":1}", "|b"}},
		{"bare JSON inside an event breaks it", "data: {\n{\"error\":1}\n\n", []string{"|{\n{\"error\":1}"}},
		{"nothing", "", nil},
		{"line ends only", "\r\n\r\n\n\n", nil},
		{"long", "data: " + strings.Repeat("x", 200_000) + "\n\n", []string{"|" + strings.Repeat("x", 200_000)}},
	} {
		for name, r := range map[string]io.Reader{
			"whole": strings.NewReader(c.in), "bytes": iotest.OneByteReader(strings.NewReader(c.in)),
			"with error": iotest.DataErrReader(strings.NewReader(c.in)), "halves": iotest.HalfReader(strings.NewReader(c.in)),
		} {
			got, err := read(r, 1<<20)
			if !errors.Is(err, io.EOF) {
				t.Errorf("%s, %s: %v, want the end", c.name, name, err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s, %s (-want +got):\n%.500s", c.name, name, diff)
			}
		}
	}
}

// TestEventIsGivenAtItsLastByte: an event must not wait for the byte that follows it, or a token stalls behind a ping.
func TestEventIsGivenAtItsLastByte(t *testing.T) {
	t.Parallel()
	for _, in := range []string{"data: a\n\n", "data: a\r\n\r", "data: a\r\r"} {
		r, w := io.Pipe()
		go func() { _, _ = io.WriteString(w, in) }()
		ev, err := wire.NewEvents(r, 1<<20).Next()
		if err != nil || string(ev.Data) != "a" {
			t.Errorf("%q: %q, %v", in, ev.Data, err)
		}
		_ = r.Close()
	}
}

func TestEventsAreBounded(t *testing.T) {
	t.Parallel()
	for name, in := range map[string]string{
		"a line":   "data: " + strings.Repeat("x", 5000),
		"an event": strings.Repeat("data: xxxxxxxx\n", 1000),
		"comment":  ":" + strings.Repeat("x", 5000),
	} {
		if got, err := read(strings.NewReader(in), 2000); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("%s: %v, %v, want an error", name, got, err)
		}
	}
}

func FuzzEvents(f *testing.F) {
	f.Add("data: a\r\n\r\ndata: {\n\nevent: x\rdata:b\n\n")
	f.Add("\xEF\xBB\xBFdata\n\n: c\n{\"a\":1}\n")
	f.Fuzz(func(t *testing.T, in string) {
		whole, err1 := read(strings.NewReader(in), 1<<20)
		bytes, err2 := read(iotest.OneByteReader(strings.NewReader(in)), 1<<20)
		if diff := cmp.Diff(whole, bytes); diff != "" || !errors.Is(err1, io.EOF) || !errors.Is(err2, io.EOF) {
			t.Errorf("cut differently, %q reads differently: %v %v\n%s", in, err1, err2, diff)
		}
	})
}
