package canon_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/internal/canon"
)

func TestKey(t *testing.T) {
	t.Parallel()
	k255 := strings.Repeat("k", 255)
	for name, tc := range map[string]struct {
		own, alias []string
		want, code string
	}{
		"plain":                   {own: []string{"order-1"}, want: "order-1"},
		"alias":                   {alias: []string{"order-1"}, want: "order-1"},
		"both equal":              {own: []string{"k"}, alias: []string{"k"}, want: "k"},
		"both equal when quoted":  {own: []string{`"k"`}, alias: []string{"k"}, want: "k"},
		"both different":          {own: []string{"k"}, alias: []string{"K"}, code: "key_conflict"},
		"one blank":               {own: []string{"k"}, alias: []string{""}, code: "key_blank"},
		"one malformed":           {own: []string{"a b"}, alias: []string{"k"}, code: "key_malformed"},
		"every visible character": {own: []string{`!#$%&'()*+,-./09:;<=>?@AZ[\]^_` + "`az{|}~\""}, want: `!#$%&'()*+,-./09:;<=>?@AZ[\]^_` + "`az{|}~\""},
		"optional white space":    {own: []string{" \tpad-1 \t"}, want: "pad-1"},
		"comma":                   {own: []string{"a,b"}, want: "a,b"},
		"percent":                 {own: []string{"a%2Fb"}, want: "a%2Fb"},
		"quoted":                  {own: []string{`"abc"`}, want: "abc"},
		"quoted escapes":          {own: []string{`"a\"b\\c"`}, want: `a"b\c`},
		"quoted quotation marks":  {own: []string{`"\"abc\""`}, want: `"abc"`},
		"bare backslash":          {own: []string{`a\"b`}, want: `a\"b`},
		"mark in the middle":      {own: []string{`a"b`}, want: `a"b`},
		"255":                     {own: []string{k255}, want: k255},
		"255 quoted":              {own: []string{`"` + k255 + `"`}, want: k255},
		"255 escaped":             {own: []string{`"` + strings.Repeat(`\\`, 255) + `"`}, want: strings.Repeat(`\`, 255)},
		"256":                     {own: []string{k255 + "k"}, code: "key_too_long"},
		"256 quoted":              {own: []string{`"` + k255 + `k"`}, code: "key_too_long"},
		"long and malformed":      {own: []string{k255 + " \xff"}, code: "key_too_long"},
		"empty":                   {own: []string{""}, code: "key_blank"},
		"spaces":                  {own: []string{"   "}, code: "key_blank"},
		"quoted nothing":          {own: []string{`""`}, code: "key_blank"},
		"quoted spaces":           {own: []string{`"  "`}, code: "key_blank"},
		"repeated":                {own: []string{"a", "b"}, code: "key_repeated"},
		"repeated equal":          {own: []string{"a", "a"}, code: "key_repeated"},
		"alias repeated":          {alias: []string{"a", "a"}, code: "key_repeated"},
		"merged by a proxy":       {own: []string{"a, b"}, code: "key_malformed"},
		"merged and quoted":       {own: []string{`"a", "b"`}, code: "key_malformed"},
		"merged without space":    {own: []string{`"a","b"`}, code: "key_malformed"},
		"space inside":            {own: []string{"a b"}, code: "key_malformed"},
		"space inside quotes":     {own: []string{`"a b"`}, code: "key_malformed"},
		"tab inside":              {own: []string{"a\tb"}, code: "key_malformed"},
		"NUL":                     {own: []string{"a\x00"}, code: "key_malformed"},
		"line break":              {own: []string{"a\n"}, code: "key_malformed"},
		"DEL":                     {own: []string{"a\x7f"}, code: "key_malformed"},
		"Latin-1":                 {own: []string{"caf\xe9"}, code: "key_malformed"},
		"UTF-8":                   {own: []string{"0xb7ef\u2026375a"}, code: "key_malformed"},
		"open quotes":             {own: []string{`"abc`}, code: "key_malformed"},
		"one mark":                {own: []string{`"`}, code: "key_malformed"},
		"mark closed by escape":   {own: []string{`"abc\"`}, code: "key_malformed"},
		"unknown escape":          {own: []string{`"a\bc"`}, code: "key_malformed"},
		"parameters":              {own: []string{`"abc";v=1`}, code: "key_malformed"},
		"reserved":                {own: []string{"onefold:task:1"}, code: "key_reserved_form"},
		"reserved and quoted":     {own: []string{`"onefold:"`}, code: "key_reserved_form"},
		"reserved, other letters": {own: []string{"Onefold:x"}, want: "Onefold:x"},
		"reserved, later":         {own: []string{"x-onefold:x"}, want: "x-onefold:x"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := http.Header{"Content-Type": {"application/json"}}
			for _, v := range tc.own {
				h.Add("idempotency-KEY", v)
			}
			for _, v := range tc.alias {
				h.Add("x-idempotency-key", v)
			}
			key, found, err := canon.Key(h)
			if !found {
				t.Error("not found")
			}
			if tc.code == "" {
				if err != nil || key != tc.want {
					t.Errorf("got %q, %v; want %q", key, err, tc.want)
				}
				return
			}
			if err == nil {
				t.Fatalf("accepted as %q", key)
			}
			if got := placeOf(t, err).Code; got != tc.code || key != "" {
				t.Errorf("code %s and key %q, want %s", got, key, tc.code)
			}
		})
	}
}

func TestKeyAbsent(t *testing.T) {
	t.Parallel()
	for _, h := range []http.Header{nil, {}, {"X-Request-Id": {"r"}}, {canon.Header: nil}} {
		if key, found, err := canon.Key(h); key != "" || found || err != nil {
			t.Errorf("%v: got %q, %v, %v", h, key, found, err)
		}
	}
	if got := placeOf(t, canon.MissingKey()).Code; got != "key_missing" {
		t.Errorf("code %s", got)
	}
}

func TestCheckKeyTakesKeysAsTheyAre(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{
		"order-1": "", `"abc"`: "", `"`: "", "a,b": "", strings.Repeat("k", 255): "",
		"": "key_blank", " ": "key_blank", "\n": "key_blank", " a": "key_malformed", "a ": "key_malformed", "é": "key_malformed",
		strings.Repeat("k", 256): "key_too_long", "onefold:": "key_reserved_form",
	} {
		got := ""
		if err := canon.CheckKey(key); err != nil {
			got = placeOf(t, err).Code
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", key, got, want)
		}
	}
}

func TestHeaderValue(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{"abc": "abc", `a"b\`: `a"b\`, `"abc"`: `"\"abc\""`, `"\`: `"\"\\"`} {
		if got := canon.HeaderValue(key); got != want {
			t.Errorf("%q: got %s, want %s", key, got, want)
		}
	}
}

func TestChildKey(t *testing.T) {
	t.Parallel()
	const id = "0190a1b2-c3d4-7e5f-8a6b-7c8d9e0f1a2b"
	if diff := cmp.Diff("onefold:task:"+id+":2:summarise", canon.ChildKey(id, 2, "summarise")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	long := strings.Repeat("n", 300)
	seen := map[string][]any{}
	for _, c := range [][]any{
		{id, 1, "a"},
		{id, 2, "a"},
		{id, 1, "b"},
		{id, 11, "a"},
		{id, 1, "1:a"},
		{id, 1, ""},
		{id + ":1", 1, "a"},
		{id, 1, "1:1:a"},
		{id, 1, long},
		{id, 1, long + "n"},
		{id, 2, long},
		{id, 1, "a b"},
		{id, 1, "é"},
		{id, 1, "e\u0301"},
		{id, 1, "a\n"},
		{"", 1, "a"},
		{":", 1, "a"},
	} {
		key := canon.ChildKey(c[0].(string), c[1].(int), c[2].(string))
		if other, ok := seen[key]; ok {
			t.Errorf("%v and %v have one key", c, other)
		}
		seen[key] = c
		if len(key) > 255 || strings.ContainsFunc(key, func(r rune) bool { return r < 0x21 || r > 0x7e }) {
			t.Errorf("%v: %q is no key", c, key)
		}
		if err := canon.CheckKey(key); err == nil || placeOf(t, err).Code != "key_reserved_form" {
			t.Errorf("%v: a caller could send it: %v", c, err)
		}
		if canon.ChildKey(c[0].(string), c[1].(int), c[2].(string)) != key {
			t.Errorf("%v: not the same twice", c)
		}
	}
}

func TestFollowKey(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, own := range []string{"2026-03-01", "a b", "ä", "", strings.Repeat("x", 300), strings.Repeat("x", 301), "task:1:a"} {
		key := canon.FollowKey(own)
		if len(key) > canon.MaxKeyBytes || canon.CheckKey(key) == nil {
			t.Errorf("%.20q: got %s, want at most 255 bytes that no caller can send", own, key)
		}
		if other, twice := seen[key]; twice {
			t.Errorf("%.20q and %.20q have one key", own, other)
		}
		seen[key] = own
		if canon.FollowKey(own) != key {
			t.Errorf("%.20q: another key the second time", own)
		}
	}
	if canon.FollowKey("0190:1:a") == canon.ChildKey("0190", 1, "a") {
		t.Error("a key of its own is that of a run")
	}
}
