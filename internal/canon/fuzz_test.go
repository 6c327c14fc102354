package canon_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/big"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/internal/canon"
)

// seeds are texts at the borders of what is accepted.
var seeds = []string{
	`{"model":"m","messages":[{"role":"user","content":"hi"}],"n":1.50}`, `{"b":{"d":[1,2],"c":null},"a":"\u00e9\/\n"}`,
	`[0,-0,1e5,1E-5,1.0,0.001,123456789012345678901234567890]`, `{"":0,"\"":1,"\\":2,"\t":3,"😀":4,"\uff21":5}`,
	`"\ud83d\ude00"`, `"\ud83d"`, `{"a":1,"\u0061":2}`, "\"\xff\"", "\xef\xbb\xbf{}", `{} {}`, ` [ ] `, `tru`, `{"a":`, `1e999999`, `1e1000000`,
	`"\u0000"`, strings.Repeat("[", 201), `{"a":{"b":{"c":{"b":1,"a":2},"a":0}},"A":1}`, `[[[{"z":1,"y":[{"x":1,"w":2}]}]]]`,
}

// FuzzCanonical: accepting is the same question for Check, Canonical and the
// hashes; what is accepted is accepted by a strict reader of another make and
// means the same to encoding/json; the canonical form is its own.
func FuzzCanonical(f *testing.F) {
	for _, seed := range seeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		before := bytes.Clone(raw)
		canonical, err := canon.Canonical(raw)
		sums, sumErr := canon.Sum("k", raw, nil)
		if check := canon.Check(raw); (check == nil) != (err == nil) || (sumErr == nil) != (err == nil) {
			t.Fatalf("Check: %v, Canonical: %v, Sum: %v", check, err, sumErr)
		}
		if !bytes.Equal(before, raw) {
			t.Fatal("the text was changed")
		}
		if err != nil {
			refusedRightly(t, raw, err)
			return
		}
		if !jsontext.Value(raw).IsValid() {
			t.Fatalf("jsontext refuses what was accepted: %q", raw)
		}
		again, err := canon.Canonical(canonical)
		if err != nil || !bytes.Equal(again, canonical) {
			t.Fatalf("not its own canonical form: %q became %q (%v)", canonical, again, err)
		}
		if fp, err := canon.Fingerprint("k", canonical, nil); err != nil || fp != sums.Fingerprint {
			t.Fatalf("the canonical form has another fingerprint (%v)", err)
		}
		if diff := cmp.Diff(decode(t, raw), decode(t, canonical)); diff != "" {
			t.Fatalf("the canonical form means something else:\n%s", diff)
		}
		if paths, err := canon.Diff(raw, canonical); err != nil || len(paths) > 0 {
			t.Fatalf("Diff to the canonical form: %q, %v", paths, err)
		}
	})
}

// refusedRightly checks that a text another strict reader accepts was refused
// for one of the limits that reader does not have.
func refusedRightly(t *testing.T, raw []byte, err error) {
	var e *canon.Error
	if !errors.As(err, &e) {
		t.Fatalf("error is %T", err)
	}
	if e.Offset > int64(len(raw)) || len(e.Error()) > 1000 {
		t.Fatalf("error out of bounds: %v", e)
	}
	switch e.Code {
	case canon.CodeNULCharacter, canon.CodeTooDeep, canon.CodeNumberOutOfRange:
	default:
		if jsontext.Value(raw).IsValid() {
			t.Fatalf("refused (%v) although valid: %q", err, raw)
		}
	}
}

// decode reads raw with encoding/json, numbers as exact decimals.
func decode(t *testing.T, raw []byte) any {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("encoding/json refuses what was accepted: %v", err)
	}
	return exact(v)
}

func exact(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name := range v {
			v[name] = exact(v[name])
		}
	case []any:
		for i := range v {
			v[i] = exact(v[i])
		}
	case json.Number:
		return decimal(string(v))
	}
	return v
}

// FuzzMembers: the members put together again are the same object, each value
// is a value, and two values compare as their fingerprints do.
func FuzzMembers(f *testing.F) {
	for i, seed := range seeds {
		f.Add([]byte(seed), []byte(seeds[(i+1)%len(seeds)]))
	}
	f.Fuzz(func(t *testing.T, raw, other []byte) {
		members, err := canon.Members(raw)
		if err != nil {
			return
		}
		var joined bytes.Buffer
		for i, m := range members {
			if err := canon.Check(m.Value); err != nil {
				t.Fatalf("value of %q: %v", m.Name, err)
			}
			if len(bytes.TrimSpace(m.Value)) != len(m.Value) || !bytes.Contains(raw, m.Value) {
				t.Fatalf("value of %q is not as it stood in the source", m.Name)
			}
			name, err := json.Marshal(m.Name)
			if err != nil {
				t.Fatal(err)
			}
			joined.WriteByte("{,"[min(i, 1)])
			joined.Write(name)
			joined.WriteByte(':')
			joined.Write(m.Value)
		}
		if len(members) == 0 {
			joined.WriteByte('{')
		}
		joined.WriteByte('}')
		if paths, err := canon.Diff(raw, joined.Bytes()); err != nil || len(paths) > 0 {
			t.Fatalf("put together again it differs: %q, %v", paths, err)
		}
		compare(t, raw, other)
	})
}

// compare checks Diff against the hashes.
func compare(t *testing.T, a, b []byte) {
	left, err := canon.InputHash(a)
	if err != nil {
		return
	}
	right, err := canon.InputHash(b)
	if err != nil {
		return
	}
	paths, err := canon.Diff(a, b)
	if err != nil {
		t.Fatal(err)
	}
	if (left == right) != (len(paths) == 0) || len(paths) > canon.MaxDiff {
		t.Fatalf("hashes equal: %v, Diff: %q", left == right, paths)
	}
}

// FuzzKey: a key that is read is within the grammar and is read back from the
// header that is written for it; CheckKey agrees.
func FuzzKey(f *testing.F) {
	for _, seed := range []string{
		"", " ", "abc", `"abc"`, `"a\"b\\"`, `"a`, `a"`, `"`, `""`, `"a"b"`, `"a";b`, `\"`, "a b", "a\tb", "caf\xe9", "a,b", "a, b", "onefold:x",
		`"onefold:x"`, " pad ", strings.Repeat("k", 255), strings.Repeat("k", 256), `"` + strings.Repeat(`\\`, 255) + `"`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		key, found, err := canon.Key(http.Header{canon.Header: {value}})
		if !found {
			t.Fatal("the header is there but was not found")
		}
		if err == nil {
			if len(key) < 1 || len(key) > 255 || strings.ContainsFunc(key, func(r rune) bool { return r < 0x21 || r > 0x7e }) {
				t.Fatalf("key outside the grammar: %q", key)
			}
			if err := canon.CheckKey(key); err != nil {
				t.Fatalf("CheckKey refuses %q: %v", key, err)
			}
		}
		if canon.CheckKey(value) == nil {
			back, _, err := canon.Key(http.Header{canon.HeaderAlias: {canon.HeaderValue(value)}})
			if err != nil || back != value {
				t.Fatalf("%q came back as %q, %v", value, back, err)
			}
		}
	})
}

// decimal writes a number as coefficient and exponent, by way of big.Int.
func decimal(number string) string {
	mantissa, exponent, _ := strings.Cut(strings.ToLower(number), "e")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	shift, _ := strconv.Atoi(exponent)
	coefficient, ok := new(big.Int).SetString(whole+fraction, 10)
	if !ok {
		return "unreadable " + number
	}
	if coefficient.Sign() == 0 {
		return "0"
	}
	digits := coefficient.String()
	trimmed := strings.TrimRight(digits, "0")
	return trimmed + "e" + strconv.Itoa(shift-len(fraction)+len(digits)-len(trimmed))
}
