package delta_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/internal/provider/delta"
)

func parse(t *testing.T, s string) *delta.Value {
	t.Helper()
	v, err := delta.Parse([]byte(s))
	if err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	return v
}

func TestMerge(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		pieces []string
		want   string
	}{
		{"text", []string{`{"c":"a"}`, `{"c":"b"}`, `{"c":null}`, `{}`}, `{"c":"ab"}`},
		{"emoji over two pieces", []string{`{"c":"\ud83d"}`, `{"c":"\ude00!"}`}, `{"c":"😀!"}`},
		{"lone high, then text", []string{`{"c":"\ud83d"}`, `{"c":"x"}`}, `{"c":"` + "\uFFFD" + `x"}`},
		{"lone low first", []string{`{"c":"\ude00"}`, `{"c":"\ud83d"}`}, `{"c":"` + "\uFFFD\uFFFD" + `"}`},
		{"emoji over three pieces, empty one between", []string{`{"c":"\ud83d"}`, `{"c":""}`, `{"c":"\ude00"}`}, `{"c":"😀"}`},
		{"half a UTF-8 sequence", []string{"{\"c\":\"\xE2\x82\"}", "{\"c\":\"\xAC\"}"}, `{"c":"€"}`},
		{"numbers keep their digits", []string{`{"n":1.10,"m":1e400}`, `{"n":12345678901234567890.0}`}, `{"n":12345678901234567890.0,"m":1e400}`},
		{"null, then a value", []string{`{"c":null}`, `{"c":{"a":1}}`}, `{"c":{"a":1}}`},
		{"tool calls by index", []string{
			`{"t":[{"index":0,"id":"a","f":{"name":"x","arguments":""}}]}`, `{"t":[{"index":1,"id":"b","f":{"name":"y","arguments":"{}"}}]}`,
			`{"t":[{"index":0,"id":"","f":{"name":"","arguments":"{\"k\":"}}]}`, `{"t":[{"index":0,"f":{"arguments":"1}"}}]}`,
		}, `{"t":[{"index":0,"id":"a","f":{"name":"x","arguments":"{\"k\":1}"}},{"index":1,"id":"b","f":{"name":"y","arguments":"{}"}}]}`},
		{"list without index", []string{`{"l":[1]}`, `{"l":["a"]}`}, `{"l":[1,"a"]}`},
		{"text, then parts", []string{`{"c":"a"}`, `{"c":[{"type":"text","text":"b"}]}`, `{"c":"d"}`}, `{"c":[{"type":"text","text":"a"},{"type":"text","text":"b"},{"type":"text","text":"d"}]}`},
		{"escapes", []string{`{"c":"\"\\\/\b\f\n\r\t\u0000\u2028<>&"}`}, `{"c":"\"\\/\u0008\u000c\n\r\t\u0000` + "\u2028" + `<>&"}`},
	} {
		v := delta.NewObject()
		for _, p := range c.pieces {
			v.Merge(parse(t, p), map[string]bool{"id": true, "name": true, "index": true})
		}
		if diff := cmp.Diff(c.want, string(v.Append(nil))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for _, s := range []string{
		"", " ", "{", `{"a":1}}`, `{} {}`, `{"a":01}`, `{"a":"` + "\x00" + `"}`, `{a:1}`, `[1,]`, "nul",
		strings.Repeat("[", 201) + strings.Repeat("]", 201) + "x", strings.Repeat(`{"a":`, 300) + "1" + strings.Repeat("}", 300),
		strings.Repeat("[", 1_000_000),
	} {
		if v, err := delta.Parse([]byte(s)); err == nil {
			t.Errorf("%.40q was read as %.40q", s, v.Append(nil))
		}
	}
}

func TestInt(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]int64{"3": 3, "3.0": 3, "3e0": 3, "-7": -7, "9223372036854775807": 1<<63 - 1} {
		if n, ok := parse(t, s).Int(); !ok || n != want {
			t.Errorf("%s: %d, %t, want %d", s, n, ok, want)
		}
	}
	for _, s := range []string{"3.5", "1e300", "9223372036854775808", `"3"`, "null"} {
		if n, ok := parse(t, s).Int(); ok {
			t.Errorf("%s was read as %d", s, n)
		}
	}
}

func TestRepair(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{"a": "\ud83d\ude00",  "b":[1.0]}`:   `{"a": "\ud83d\ude00",  "b":[1.0]}`,
		`{"a": "cut \ud83d", "b":"\ude00\""}`: `{"a": "cut ` + "\uFFFD" + `", "b":"` + "\uFFFD" + `\""}`,
		"[\"\xff\", \"\\u0000\"]":             "[\"\uFFFD\", \"\\u0000\"]",
		`{"\ud83d":1}`:                        `{"` + "\uFFFD" + `":1}`,
		`"\\ud83d \\\\"`:                      `"\\ud83d \\\\"`,
		`{"a":"plain","b":{"c":[true,null]}}`: `{"a":"plain","b":{"c":[true,null]}}`,
	} {
		if got := string(delta.Repair([]byte(in))); got != want {
			t.Errorf("%q:\n got %q\nwant %q", in, got, want)
		}
	}
}

// FuzzValue: what is read is written as well-formed JSON that means the same; Repair never breaks a document.
func FuzzValue(f *testing.F) {
	for _, s := range []string{`{"a":"\ud83d"}`, "[\"\xed\xa0\x80\", 1e5]", `{"a":{"b":[null,true]},"a":2}`, `"\\\""`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		v, err := delta.Parse(in)
		if err != nil {
			return
		}
		out := v.Append(nil)
		again, err := delta.Parse(out)
		if err != nil || !json.Valid(out) || !utf8.Valid(out) {
			t.Fatalf("%q was written as %q: %v", in, out, err)
		}
		if second := again.Append(nil); string(second) != string(out) {
			t.Fatalf("%q, then %q", out, second)
		}
		if r := delta.Repair(in); !json.Valid(r) || !utf8.Valid(r) {
			t.Fatalf("%q was repaired to %q", in, r)
		}
	})
}
