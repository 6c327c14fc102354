package config_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/config"
)

func checkJSON(t *testing.T, from string, res []byte) {
	t.Helper()
	var v any
	if !utf8.Valid(res) || json.Unmarshal(res, &v) != nil {
		t.Errorf("%q gives %q, which is no JSON", from, res)
	}
}

func TestResultOfEachOutput(t *testing.T) {
	t.Parallel()
	r := config.Reply{Body: []byte(`{ "choices": [ 1.0 ] }`), Text: "line 1\n\"<é😀>\" \x00", Truncated: true}
	got, err := kindWith(t).Result(r)
	if err != nil || string(got) != string(r.Body) {
		t.Errorf("response: got %s, %v", got, err)
	}
	got, err = kindWith(t, "output: text").Result(r)
	if want := `"line 1\n\"<é😀>\" \u0000"`; err != nil || string(got) != want {
		t.Errorf("text: got %s, %v, want %s", got, err, want)
	}
	got, err = kindWith(t, "output: text").Result(config.Reply{})
	if err != nil || string(got) != `""` {
		t.Errorf("empty text: got %s, %v", got, err)
	}
}

func TestJSONOutput(t *testing.T) {
	t.Parallel()
	k := kindWith(t, "output: json")
	for text, want := range map[string]string{
		`{"total": 1.50, "big": 12345678901234567890.0}`: `{"total": 1.50, "big": 12345678901234567890.0}`,
		"\n\t [1, 2]\r\n":                "[1, 2]",
		`"text"`:                         `"text"`,
		"null":                           "null",
		"-0.0":                           "-0.0",
		"```json\n{\"a\": 1}\n```":       `{"a": 1}`,
		"```\n{\"a\": 1}\n```":           `{"a": 1}`,
		"```JSON\r\n{\"a\": 1}\r\n```\n": `{"a": 1}`,
		"Here it is:\n```json\n[1]\n```\nAnything else?":    `[1]`,
		"```json {\"a\": 1} ```":                            `{"a": 1}`,
		"```{\"a\": 1}```":                                  `{"a": 1}`,
		"```json\n{\"code\": \"```js\\nx\\n```\"}\n```":     "{\"code\": \"```js\\nx\\n```\"}",
		"{\"code\": \"```\"}":                               "{\"code\": \"```\"}",
		`{"a":"\u0000"}`:                                    `{"a":"\u0000"}`,
		`{"a":"\ud83d\ude00"}`:                              `{"a":"\ud83d\ude00"}`,
		"\ufeff{}":                                          "{}",
		strings.Repeat("[", 200) + strings.Repeat("]", 200): strings.Repeat("[", 200) + strings.Repeat("]", 200),
	} {
		got, err := k.Result(config.Reply{Text: text})
		if err != nil || string(got) != want {
			t.Errorf("%q:\ngot  %q, %v\nwant %q", text, got, err, want)
		}
	}
}

// TestJSONOutputIsMended: an emoji that a stream cut in two is no reason to call again.
func TestJSONOutputIsMended(t *testing.T) {
	t.Parallel()
	k := kindWith(t, "output: json")
	for _, text := range []string{`{"a": "x\ud83d", "n": 1.50}`, `{"a": "x\ude00", "n": 1.50}`, "{\"a\": \"x\xf0\x9f\", \"n\": 1.50}"} {
		got, err := k.Result(config.Reply{Text: text})
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		checkJSON(t, text, got)
		var v struct {
			A string
			N json.Number
		}
		if err := json.Unmarshal(got, &v); err != nil || v.A != "x\uFFFD" || v.N != "1.50" {
			t.Errorf("%q: got %s, %+v, %v", text, got, v, err)
		}
		if strings.Contains(strings.ToLower(string(got)), `\ud`) {
			t.Errorf("%q: a lone surrogate is left: %s", text, got)
		}
	}
}

func TestJSONOutputRefused(t *testing.T) {
	t.Parallel()
	k := kindWith(t, "output: json")
	for text, want := range map[string]string{
		"":                                   "the model's message is empty",
		" \n":                                "the model's message is empty",
		"CANARY":                             "is not JSON: a character stands where it may not, at byte 0",
		`{"CANARY": 1, "CANARY": 2}`:         "is not JSON: a name stands in one object twice",
		`{"a": 1`:                            "is not JSON: it ends too early",
		`{"a": 1} CANARY`:                    "has text after its JSON",
		`{"a": 1}{"b": 2}`:                   "has text after its JSON",
		`{"a": 1,}`:                          "is not JSON",
		`{'a': 1}`:                           "is not JSON",
		`{"a": NaN}`:                         "is not JSON",
		`{"a": 01}`:                          "is not JSON",
		"[1e1234567]":                        "exponent of more than 6 digits",
		"```json\n{}":                        "never closed",
		"```json\n{}\n```\n```json\n{}\n```": "more than one code fence",
		"```xml\n<a/>\n```":                  "not marked as json",
		"```json\nCANARY\n```":               "is not JSON",
		"Sure! {\"a\": 1}":                   "is not JSON",
		strings.Repeat("[", 201) + strings.Repeat("]", 201): "nested deeper than 200",
		strings.Repeat("[", 100_000):                        "nested deeper than 200",
	} {
		res, err := k.Result(config.Reply{Text: text})
		var ae *api.Error
		if !errors.As(err, &ae) || ae.Code != api.CodeBadOutput || res != nil {
			t.Errorf("%.40q: got %s, %v, want bad_output", text, res, err)
			continue
		}
		if !strings.Contains(ae.Message, want) || strings.Contains(ae.Message, "CANARY") {
			t.Errorf("%.40q: got %q, want %q", text, ae.Message, want)
		}
	}
	_, err := k.Result(config.Reply{Text: `{"a": 1}`, Truncated: true})
	var ae *api.Error
	if !errors.As(err, &ae) || ae.Code != api.CodeOutputTruncated {
		t.Errorf("cut by length: got %v, want output_truncated", err)
	}
}

func TestSchema(t *testing.T) {
	t.Parallel()
	k := kindWith(t, "output: json", "schema:", "  type: object", "  required: [number, total]", "  additionalProperties: false",
		"  properties: {number: {type: string, pattern: '^[A-Z]'}, total: {type: number, minimum: 0.1}, items: {type: array, items: {enum: [a, b]}}}")
	again, err := config.KindFromBody("k", k.Body(), config.Opts{})
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		`{"number": "A1", "total": 0.10, "items": ["a"]}`: "",
		`{"number": "A1"}`:          "at /: missing total",
		`{"number": 7, "total": 1}`: "at /number: is number, must be string",
		`{"number": "CANARY", "total": 0.0999999999999999999999}`: "at /total: breaks minimum",
		`{"number": "xCANARY", "total": 1}`:                       "at /number: breaks pattern",
		`{"number": "A", "total": 1, "CANARY": 2}`:                "at /: breaks additionalProperties",
		`{"number": "A", "total": 1, "items": ["CANARY"]}`:        "at /items/0: breaks enum",
		`{"number": "A", "total": 1e999999}`:                      "",
	} {
		for _, k := range []*config.Kind{k, again} {
			_, err := k.Result(config.Reply{Text: text})
			switch {
			case want == "" && err != nil:
				t.Errorf("%s: %v", text, err)
			case want != "" && (err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "CANARY")):
				t.Errorf("%s: got %v, want %q", text, err, want)
			}
		}
	}
}

// TestSchemaReadsNothing: a schema that refers to a file or a server is refused at start, without a look at either.
func TestSchemaReadsNothing(t *testing.T) {
	t.Parallel()
	good := filepath.Join(t.TempDir(), "good.json")
	if err := os.WriteFile(good, []byte(`{"type": "object"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{"file://" + good, good, "https://127.0.0.1:1/x.json", "other.json"} {
		_, err := config.Parse("f.yaml", []byte(file+"    output: json\n    schema: {$ref: "+quote(ref)+"}\n"), config.Opts{})
		if err == nil || !strings.Contains(err.Error(), "is not a JSON Schema") {
			t.Errorf("%s: got %v", ref, err)
		}
	}
}
