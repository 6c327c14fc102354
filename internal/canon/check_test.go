package canon_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/internal/canon"
)

// place is what a refused text must report.
type place struct {
	Code   string
	Offset int64
	Path   string
}

func placeOf(t *testing.T, err error) place {
	t.Helper()
	var e *canon.Error
	if !errors.As(err, &e) {
		t.Fatalf("error is %T (%v), want *canon.Error", err, err)
	}
	if e.Message == "" || e.Fix == "" {
		t.Errorf("error without message or fix: %+v", e)
	}
	return place{e.Code, e.Offset, e.Path}
}

func TestCheckRefuses(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		raw  string
		want place
	}{
		"empty":                  {"", place{"invalid_json", 0, ""}},
		"blank":                  {" \n", place{"invalid_json", 2, ""}},
		"cut object":             {`{"a":[1,`, place{"invalid_json", 8, "a[1]"}},
		"cut name":               {`{"a`, place{"invalid_json", 3, ""}},
		"cut after name":         {`{"a"`, place{"invalid_json", 4, ""}},
		"cut string":             {`["a`, place{"invalid_json", 3, "[0]"}},
		"cut escape":             {`"a\`, place{"invalid_json", 3, ""}},
		"cut unicode escape":     {`"\u00`, place{"invalid_json", 5, ""}},
		"cut literal":            {"tru", place{"invalid_json", 3, ""}},
		"cut number":             {"-", place{"invalid_json", 1, ""}},
		"cut fraction":           {"1.", place{"invalid_json", 2, ""}},
		"cut exponent":           {"1e+", place{"invalid_json", 3, ""}},
		"wrong literal":          {"trux", place{"invalid_json", 0, ""}},
		"capital literal":        {"True", place{"invalid_json", 0, ""}},
		"NaN":                    {`{"n":NaN}`, place{"invalid_json", 5, "n"}},
		"leading zero":           {"[01]", place{"invalid_json", 1, "[0]"}},
		"leading plus":           {"+1", place{"invalid_json", 0, ""}},
		"bare point":             {".5", place{"invalid_json", 0, ""}},
		"no digits before point": {"-.5", place{"invalid_json", 1, ""}},
		"hexadecimal":            {"0x10", place{"trailing_data", 1, ""}},
		"trailing comma":         {"[1,]", place{"invalid_json", 3, "[1]"}},
		"trailing member comma":  {`{"a":1,}`, place{"invalid_json", 7, ""}},
		"no comma":               {"[1 2]", place{"invalid_json", 3, "[0]"}},
		"no colon":               {`{"a" 1}`, place{"invalid_json", 5, ""}},
		"name not a string":      {`{1:2}`, place{"invalid_json", 1, ""}},
		"wrong bracket":          {`{"a":[1}`, place{"invalid_json", 7, "a[0]"}},
		"comment":                {"[1 /* x */]", place{"invalid_json", 3, "[0]"}},
		"single quotes":          {"['a']", place{"invalid_json", 1, "[0]"}},
		"form feed":              {"\f1", place{"invalid_json", 0, ""}},
		"no-break space":         {"\u00a01", place{"invalid_json", 0, ""}},
		"raw line break":         {"\"a\nb\"", place{"invalid_json", 2, ""}},
		"unknown escape":         {`"\x41"`, place{"invalid_json", 1, ""}},
		"bad hex":                {`"\u00g0"`, place{"invalid_json", 1, ""}},
		"two values":             {"{} {}", place{"trailing_data", 3, ""}},
		"garbage behind":         {"{}x", place{"trailing_data", 2, ""}},
		"NUL behind":             {"{}\x00", place{"trailing_data", 2, ""}},
		"byte order mark":        {"\ufeff{}", place{"byte_order_mark", 0, ""}},
		"UTF-16":                 {"\xff\xfe{\x00}\x00", place{"byte_order_mark", 0, ""}},
		"duplicate":              {`{"a":1,"b":2,"a":1}`, place{"duplicate_member", 13, "a"}},
		"duplicate in order":     {`{"a":1,"a":2,"b":1}`, place{"duplicate_member", 7, "a"}},
		"duplicate of three":     {`{"a":1,"b":2,"a":1,"a":1}`, place{"duplicate_member", 13, "a"}},
		"duplicate deep":         {`{"m":[{},{"x":{"k":1,"k":2}}]}`, place{"duplicate_member", 21, "m[1].x.k"}},
		"duplicate by escape":    {`{"a":1,"\u0061":2}`, place{"duplicate_member", 7, "a"}},
		"duplicate escaped":      {`{"\"":1,"b":1,"\u0022":2}`, place{"duplicate_member", 14, `["\""]`}},
		"duplicate pair":         {`{"😀":1,"\ud83d\ude00":2}`, place{"duplicate_member", 10, `["\U0001f600"]`}},
		"duplicate empty":        {`{"":1,"":2}`, place{"duplicate_member", 6, `[""]`}},
		"high surrogate":         {`["\ud800"]`, place{"invalid_unicode", 2, "[0]"}},
		"low surrogate":          {`"\udc00"`, place{"invalid_unicode", 1, ""}},
		"surrogates reversed":    {`"\ude00\ud83d"`, place{"invalid_unicode", 1, ""}},
		"surrogate and text":     {`"\ud83dx"`, place{"invalid_unicode", 1, ""}},
		"two high surrogates":    {`"\ud83d\ud83d"`, place{"invalid_unicode", 1, ""}},
		"surrogate in name":      {`{"\ud800":1}`, place{"invalid_unicode", 2, ""}},
		"bare byte":              {"\"a\xff\"", place{"invalid_unicode", 2, ""}},
		"overlong":               {"\"\xc0\xaf\"", place{"invalid_unicode", 1, ""}},
		"encoded surrogate":      {"\"é\xed\xa0\x80\"", place{"invalid_unicode", 3, ""}},
		"beyond Unicode":         {"\"\xf4\x90\x80\x80\"", place{"invalid_unicode", 1, ""}},
		"cut character":          {"\"\xe2\x82\"", place{"invalid_unicode", 1, ""}},
		"NUL":                    {"\"a\x00\"", place{"nul_character", 2, ""}},
		"escaped NUL":            {`{"a":"x\u0000"}`, place{"nul_character", 7, "a"}},
		"NUL in name":            {`{"model\u0000":1}`, place{"nul_character", 7, ""}},
		"exponent":               {`{"n":1e1000000}`, place{"number_out_of_range", 5, "n"}},
		"exponent below":         {"1e-1000000", place{"number_out_of_range", 0, ""}},
		"long exponent":          {"1e9999999999999999999999999999", place{"number_out_of_range", 0, ""}},
		"exponent after digits":  {"10e999999", place{"number_out_of_range", 0, ""}},
		"exponent after point":   {"0.01e-999998", place{"number_out_of_range", 0, ""}},
		"long number":            {strings.Repeat("1", 4097), place{"number_out_of_range", 0, ""}},
		"long zero":              {"0." + strings.Repeat("0", 4095), place{"number_out_of_range", 0, ""}},
		"too deep":               {nested(201), place{"too_deep", 200, strings.Repeat("[0]", 86)[:256+2] + "..."}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := canon.Check([]byte(tc.raw))
			if err == nil {
				t.Fatal("accepted")
			}
			if diff := cmp.Diff(tc.want, placeOf(t, err)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if _, err := canon.Canonical([]byte(tc.raw)); err == nil {
				t.Error("Canonical accepts it")
			}
		})
	}
}

// nested returns n arrays in one another.
func nested(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }

func TestCheckAccepts(t *testing.T) {
	t.Parallel()
	for name, raw := range map[string]string{
		"null":                 "null",
		"white space":          " \t\r\n{ } \t\r\n",
		"U+FFFD":               `"�"`,
		"U+FFFD escaped":       `"\ufffd"`,
		"BOM inside":           "\"\ufeff\"",
		"DEL":                  "\"\x7f\"",
		"noncharacter":         "\"\uffff\"",
		"line separator":       "\"\u2028\"",
		"surrogate pair":       `"\ud83d\ude00"`,
		"escaped backslash u":  `"literal \\u0000"`,
		"one name at 2 depths": `{"a":{"a":{"a":1}}}`,
		"name in siblings":     `[{"a":1},{"a":1}]`,
		"names by case":        `{"a":1,"A":2}`,
		"names not normalised": "{\"\u00e9\":1,\"e\u0301\":2}",
		"name starts another":  `{"ab":1,"a":2,"abc":3,"":4}`,
		"largest exponent":     "1e999999",
		"smallest exponent":    "1e-999999",
		"long number":          strings.Repeat("1", 4096),
		"huge zero":            "0e999999",
		"depth 200":            nested(200),
		"depth 200 of objects": strings.Repeat(`{"a":`, 200) + "1" + strings.Repeat("}", 200),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := canon.Check([]byte(raw)); err != nil {
				t.Error(err)
			}
			if !jsontext.Value(raw).IsValid() {
				t.Error("jsontext refuses it")
			}
		})
	}
}

// TestStricterThanEncodingJSON records what encoding/json accepts and this
// package refuses, and what it would have made of it.
func TestStricterThanEncodingJSON(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ raw, code, std string }{
		"last duplicate wins":        {`{"a":1,"a":2}`, "duplicate_member", `{"a":2}`},
		"duplicate by escape":        {`{"a":1,"\u0061":2}`, "duplicate_member", `{"a":2}`},
		"bad UTF-8 replaced":         {"\"\xff\"", "invalid_unicode", `"�"`},
		"lone surrogate replaced":    {`"\ud800"`, "invalid_unicode", `"�"`},
		"reversed pair replaced":     {`"\ude00\ud83d"`, "invalid_unicode", `"��"`},
		"encoded surrogate":          {"\"\xed\xa0\x80\"", "invalid_unicode", `"���"`},
		"NUL kept":                   {`"a\u0000"`, "nul_character", `"a\u0000"`},
		"depth beyond 200":           {nested(201), "too_deep", nested(201)},
		"exponent of seven digits":   {"0e1000000", "number_out_of_range", "0"},
		"number of 5,000 digits":     {"0." + strings.Repeat("0", 5000), "number_out_of_range", "0"},
		"bad UTF-8 in a name":        {"{\"\xff\":1}", "invalid_unicode", `{"�":1}`},
		"two bad names become one":   {"{\"\xff\":1,\"\xfe\":2}", "invalid_unicode", `{"�":2}`},
		"surrogate names become one": {`{"\ud800":1,"\udfff":2}`, "invalid_unicode", `{"�":2}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := placeOf(t, canon.Check([]byte(tc.raw))).Code; got != tc.code {
				t.Errorf("code %q, want %q", got, tc.code)
			}
			var v any
			if err := json.Unmarshal([]byte(tc.raw), &v); err != nil {
				t.Fatalf("encoding/json refuses it: %v", err)
			}
			std, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.std, string(std)); diff != "" {
				t.Errorf("encoding/json made (-want +got):\n%s", diff)
			}
		})
	}
}

// TestErrorsEchoNothing puts a marker where a value is in many broken texts.
// No error may show it, nor anything of a key.
func TestErrorsEchoNothing(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t"
	for _, raw := range []string{
		secret, `"` + secret, `{"a":` + secret, `{"a":"` + secret + `\ud800"}`, `{"a":"` + secret + `","a":"` + secret + `"}`,
		`["` + secret + `"` + secret, `"` + secret + `\u0000"`, `"` + secret + `\x"`, `"` + secret + "\xff\"", `{"a" "` + secret + `"}`,
		`{"model":1,"messages":"` + secret + `"}`, `["` + secret + `"]`, `"` + secret + `" 1`, `tru` + secret, `1e7777777` + secret,
	} {
		for name, err := range map[string]error{
			"Check":    canon.Check([]byte(raw)),
			"Members":  second(canon.Members([]byte(raw))),
			"Chat":     canon.CheckChat([]byte(raw)),
			"Hash":     second(canon.InputHash([]byte(raw))),
			"CheckKey": canon.CheckKey(secret + " " + raw),
		} {
			var e *canon.Error
			if errors.As(err, &e) && strings.Contains(e.Error()+e.Message+e.Fix+e.Path+e.Code, secret) {
				t.Errorf("%s shows the text: %v", name, err)
			}
		}
	}
}

func second[T any](_ T, err error) error { return err }

// TestErrorPathsAreShort holds messages to a length, whatever the names are.
func TestErrorPathsAreShort(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é\x1b", 5000)
	quoted, err := json.Marshal(long)
	if err != nil {
		t.Fatal(err)
	}
	raw := strings.Repeat(`{`+string(quoted)+`:`, 150) + "x"
	got := canon.Check([]byte(raw)).Error()
	if len(got) > 1000 {
		t.Errorf("the message has %d bytes", len(got))
	}
	if strings.ContainsAny(got, "\x1bé") {
		t.Error("the message holds unescaped characters of a name")
	}
}

// TestEveryByteAtEveryOffset: a string is looked at eight bytes a step; each
// byte must be seen wherever in a step it stands, beside any other.
func TestEveryByteAtEveryOffset(t *testing.T) {
	t.Parallel()
	for _, filler := range []string{"x", " ", "\x7f", "!", "#", "[", "]", "é"} {
		for b := range 256 {
			for offset := range 18 {
				raw := []byte(`"` + strings.Repeat(filler, offset) + string([]byte{byte(b)}) + strings.Repeat(filler, 17-offset) + `"`)
				plain := b >= 0x20 && b < 0x80 && b != '"' && b != '\\'
				canonical, err := canon.Canonical(raw)
				if (err == nil) != plain {
					t.Fatalf("byte %#x at %d among %q: %v", b, offset, filler, err)
				}
				if plain && string(canonical) != string(raw) {
					t.Fatalf("byte %#x at %d among %q became %q", b, offset, filler, canonical)
				}
			}
		}
	}
}
