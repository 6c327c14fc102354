package canon_test

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/internal/canon"
)

func TestCanonical(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		" null ":        "null",
		"[ ]":           "[]",
		"{ }":           "{}",
		`[3, 1 ,2]`:     "[3,1,2]",
		`{"b":1,"a":2}`: `{"a":2,"b":1}`,
		`{"b":{"d":1,"c":2},"a":[{"f":1,"e":2}]}`: `{"a":[{"e":2,"f":1}],"b":{"c":2,"d":1}}`,
		`{"ab":1,"a":2,"":3,"abc":4}`:             `{"":3,"a":2,"ab":1,"abc":4}`,
		`{"a":1,"B":2,"_":3}`:                     `{"B":2,"_":3,"a":1}`,
		// By code point: U+FF21 comes before U+1F600, which by UTF-16 would not.
		"{\"\U0001f600\":1,\"\uff21\":2,\"z\":3}": "{\"z\":3,\"\uff21\":2,\"\U0001f600\":1}",
		// By code point of the name, not of its spelling: a quotation mark (0x22)
		// and a tab (0x09) sort before letters although a backslash stands first.
		`{"!":1,"\"":2,"#":3,"\\":4,"[":5,"]":6,"\t":7}`: `{"\t":7,"!":1,"\"":2,"#":3,"[":5,"\\":4,"]":6}`,
		`"\u0041\u00e9\u20AC\ud83d\ude00"`:               `"Aé€😀"`,
		`"\/\"\\\b\f\n\r\t"`:                             `"/\"\\\b\f\n\r\t"`,
		`"\u0022\u005c\u0008\u000c\u000a\u000d\u0009"`:   `"\"\\\b\f\n\r\t"`,
		`"\u001F\u007f\u0001"`:                           "\"\\u001f\x7f\\u0001\"",
		`"\u003ca\u003e \u0026 \u2028"`:                  "\"<a> & \u2028\"",
		`{"\u0062":1,"\u0061":2}`:                        `{"a":2,"b":1}`,
	} {
		got, err := canon.Canonical([]byte(raw))
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", raw, diff)
		}
	}
}

func TestCanonicalNumbers(t *testing.T) {
	t.Parallel()
	for want, spellings := range map[string][]string{
		"0":                        {"0", "-0", "0.0", "-0.000", "0e5", "0E-999999", "-0e+3"},
		"1":                        {"1", "1.0", "1e0", "1E+0", "10E-1", "0.1e1", "1.000", "100e-2", "0.001e3"},
		"-15e-1":                   {"-1.5", "-1.50", "-15e-1", "-0.15e1", "-150E-2"},
		"1e20":                     {"1e20", "100000000000000000000", "1E+20", "1.0e20", "10e19"},
		"1234567890123456789e1":    {"12345678901234567890", "1234567890123456789e1", "12345678901234567890.0"},
		"12345678901234567891":     {"12345678901234567891"},
		"9007199254740993":         {"9007199254740993", "9007199254740993.0", "9.007199254740993e15"},
		"1e999999":                 {"1e999999", "1.0e+999999", "10e999998"},
		"1e-999999":                {"1e-999999", "1.0e-999999", "0.1e-999998"},
		"1e131072":                 {"1e131072", "0.00001e131077"},
		"1e400":                    {"1e400", "1000e397"},
		"11e-1":                    {"1.1", "1.10", "11e-1"},
		"123e-8":                   {"0.00000123", "1.23e-6", "123e-8"},
		"100000000000000000001e-1": {"10000000000000000000.1"},
	} {
		for _, raw := range spellings {
			got, err := canon.Canonical([]byte(raw))
			if err != nil {
				t.Errorf("%s: %v", raw, err)
			} else if string(got) != want {
				t.Errorf("%s: got %s, want %s", raw, got, want)
			}
		}
	}
}

// TestFingerprintDefinition holds version 1 of the fingerprint to its words.
// When it fails, either the change is wrong or the version must be raised.
func TestFingerprintDefinition(t *testing.T) {
	t.Parallel()
	input := []byte(`{"model":"m","messages":[{"role":"user","content":"h\u0069"}],"n":1.50}`)
	const canonical = `{"messages":[{"content":"hi","role":"user"}],"model":"m","n":15e-1}`
	for name, tc := range map[string]struct {
		effects []byte
		hashed  string
	}{
		"no effects":      {nil, "\x01" + `{"input":` + canonical + `,"kind":"llm.chat"}`},
		"no effects sent": {[]byte(" [ ] "), "\x01" + `{"effects":[],"input":` + canonical + `,"kind":"llm.chat"}`},
		"null":            {[]byte("null"), "\x01" + `{"effects":null,"input":` + canonical + `,"kind":"llm.chat"}`},
		"effects": {
			[]byte(`[{"type":"webhook","name":"n"}]`),
			"\x01" + `{"effects":[{"name":"n","type":"webhook"}],"input":` + canonical + `,"kind":"llm.chat"}`,
		},
	} {
		want := canon.Sums{Fingerprint: sha256.Sum256([]byte(tc.hashed)), Input: sha256.Sum256([]byte(canonical))}
		got, err := canon.Sum("llm.chat", input, tc.effects)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: Sum (-want +got):\n%s", name, diff)
		}
		if fp, err := canon.Fingerprint("llm.chat", input, tc.effects); err != nil || fp != want.Fingerprint {
			t.Errorf("%s: Fingerprint %x, %v", name, fp, err)
		}
		if in, err := canon.InputHash(input); err != nil || in != want.Input {
			t.Errorf("%s: InputHash %x, %v", name, in, err)
		}
	}
}

// TestFingerprintOfLargeInput crosses every border of the chunks in which the
// canonical text is hashed.
func TestFingerprintOfLargeInput(t *testing.T) {
	t.Parallel()
	for n := 4000; n < 4200; n++ {
		text := strings.Repeat("x", n)
		input := `{"b":"` + text + `","a":["` + text + `",1,2,{"d":"` + text[:n/3] + `","c":0}]}`
		canonical := `{"a":["` + text + `",1,2,{"c":0,"d":"` + text[:n/3] + `"}],"b":"` + text + `"}`
		got, err := canon.Sum("k", []byte(input), nil)
		if err != nil {
			t.Fatal(err)
		}
		want := canon.Sums{
			Fingerprint: sha256.Sum256([]byte("\x01" + `{"input":` + canonical + `,"kind":"k"}`)),
			Input:       sha256.Sum256([]byte(canonical)),
		}
		if got != want {
			t.Fatalf("n = %d: hashes differ", n)
		}
	}
}

func TestFingerprintSeparates(t *testing.T) {
	t.Parallel()
	seen := map[[32]byte]string{}
	for _, p := range []struct{ kind, input, effects string }{
		{"a", `{}`, ""},
		{"b", `{}`, ""},
		{"a", `[]`, ""},
		{"a", `null`, ""},
		{"a", `0`, ""},
		{"a", `"0"`, ""},
		{"a", `""`, ""},
		{"a", `false`, ""},
		{"a", `{"a":null}`, ""},
		{"a", `{}`, "null"},
		{"a", `{}`, "[]"},
		{"a", `{}`, "{}"},
		{`a"`, `{}`, ""},
		{"A", `{}`, ""},
		{"a", `{"kind":"a"}`, ""},
		{"a", `[[]]`, ""},
		{"a", `"é"`, ""},
		{"a", "\"e\u0301\"", ""},
		{"a", `[1,2]`, ""},
		{"a", `[2,1]`, ""},
		{"a", `[12]`, ""},
		{"a", `["1","2"]`, ""},
		{"a", `["1,2"]`, ""},
		{"a", `12345678901234567890`, ""},
		{"a", `12345678901234567891`, ""},
		{"a", `-1`, ""},
		{"a", `1`, ""},
		{"a", `1e1`, ""},
		{"a", `1e-1`, ""},
		{"a", `"\\u0041"`, ""},
		{"a", `"A"`, ""},
		{"a", `"a"`, ""},
		{"a", `"�"`, ""},
	} {
		var effects []byte
		if p.effects != "" {
			effects = []byte(p.effects)
		}
		fp, err := canon.Fingerprint(p.kind, []byte(p.input), effects)
		if err != nil {
			t.Fatal(err)
		}
		id := fmt.Sprint(p)
		if other, ok := seen[fp]; ok {
			t.Errorf("%s and %s have one fingerprint", id, other)
		}
		seen[fp] = id
	}
}

func TestFingerprintErrorsNameTheirPart(t *testing.T) {
	t.Parallel()
	_, err := canon.Fingerprint("k", []byte(`{"a":[1,{"b":1,"b":2}]}`), nil)
	if diff := cmp.Diff(place{"duplicate_member", 15, "input.a[1].b"}, placeOf(t, err)); diff != "" {
		t.Errorf("input (-want +got):\n%s", diff)
	}
	_, err = canon.Fingerprint("k", []byte(`{}`), []byte(`[{"name":"\ud800"}]`))
	if diff := cmp.Diff(place{"invalid_unicode", 10, "effects[0].name"}, placeOf(t, err)); diff != "" {
		t.Errorf("effects (-want +got):\n%s", diff)
	}
	_, err = canon.Fingerprint("k\xff", []byte(`{}`), nil)
	if got := placeOf(t, err).Code; got != "invalid_unicode" {
		t.Errorf("kind: code %s", got)
	}
	_, err = canon.Fingerprint("k", nil, nil)
	if got := placeOf(t, err).Code; got != "invalid_json" {
		t.Errorf("no input: code %s", got)
	}
}

// TestManyMembers sorts objects of many members whose names have long
// beginnings in common, the order that word-wise sorting finds hardest.
func TestManyMembers(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{"", "k", "0123456", "01234567", strings.Repeat("long ", 40), "é\\n\\\"", strings.Repeat(`\\`, 33)} {
		const n = 700
		var unsorted, sorted strings.Builder
		for i := range n {
			fmt.Fprintf(&unsorted, `"%s%03d":%d,`, prefix, i*341%n, i*341%n+1)
			fmt.Fprintf(&sorted, `"%s%03d":%d,`, prefix, i, i+1)
		}
		want, err := canon.Canonical([]byte("{" + strings.TrimSuffix(sorted.String(), ",") + "}"))
		if err != nil {
			t.Fatal(err)
		}
		raw := "{" + strings.TrimSuffix(unsorted.String(), ",") + "}"
		got, err := canon.Canonical([]byte(raw))
		if err != nil || string(got) != string(want) {
			t.Errorf("prefix %q: not sorted (%v)", prefix, err)
		}
		double := strings.TrimSuffix(raw, "}") + fmt.Sprintf(`,"%s%03d":0}`, prefix, 399)
		if got := placeOf(t, canon.Check([]byte(double))).Code; got != "duplicate_member" {
			t.Errorf("prefix %q: code %s", prefix, got)
		}
	}
}

// TestChainOfPrefixes has names that each start the next, more often than the
// word-wise rounds go.
func TestChainOfPrefixes(t *testing.T) {
	t.Parallel()
	var up, down []string
	for i := range 300 {
		up = append(up, `"`+strings.Repeat("a", i)+`":1`)
		down = append([]string{up[i]}, down...)
	}
	want, err := canon.Canonical([]byte("{" + strings.Join(up, ",") + "}"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := canon.Canonical([]byte("{" + strings.Join(down, ",") + "}"))
	if err != nil || string(got) != string(want) {
		t.Errorf("not sorted (%v)", err)
	}
}

// TestConcurrentUse shares the recycled buffers among many callers.
func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 200 {
				text := strings.Repeat(fmt.Sprint(i, j), 1+j)
				raw := []byte(`{"z":"` + text + `","a":{"c":1,"b":"` + text + `"}}`)
				want := `{"a":{"b":"` + text + `","c":1},"z":"` + text + `"}`
				got, err := canon.Canonical(raw)
				if err != nil || string(got) != want {
					t.Errorf("got %s, %v", got, err)
					return
				}
				sums, err := canon.Sum("k", raw, nil)
				if err != nil || sums.Input != sha256.Sum256([]byte(want)) {
					t.Errorf("input hash differs (%v)", err)
					return
				}
			}
		})
	}
	wg.Wait()
}
