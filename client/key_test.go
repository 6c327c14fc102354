package client_test

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/onefold-dev/onefold/client"
)

type status string

func TestKey(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 600, time.FixedZone("x", 3600))
	for _, c := range []struct {
		got, want string
	}{
		{client.Key("order", 7, "extract"), "order:7:extract"},
		{client.Key("order", "7", "extract"), "order:7:extract"},
		{client.Key("a:b"), "a%3Ab"},
		{client.Key("a%3Ab"), "a%253Ab"},
		{client.Key(""), "%"},
		{client.Key("", ""), "%:%"},
		{client.Key(), ":"},
		{client.Key(`"abc"`), "%22abc%22"},
		{client.Key("a b\n"), "a%20b%0A"},
		{client.Key("é"), "%C3%A9"},
		{client.Key("\xff"), "%FF"},
		{client.Key(status("x"), true, 1.5, 1e21, uint8(9)), "x:true:1.5:1e+21:9"},
		{client.Key(at), "2026-01-02T02%3A04%3A05.0000006Z"},
		{client.Key(time.Minute), "1m0s"},
		{client.Key("onefold", "task"), "%6Fnefold:task"},
		{client.Key("onefold"), "onefold"},
		{client.Key(struct{ B, A int }{1, 2}), "{%22B%22%3A1,%22A%22%3A2}"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
	if got, want := client.Key(at), client.Key(at.UTC()); got != want {
		t.Errorf("one instant in two zones: %q and %q", got, want)
	}
}

func TestKeyShortensLongOnes(t *testing.T) {
	t.Parallel()
	whole := strings.Repeat("x", 255)
	if got := client.Key(whole); got != whole {
		t.Errorf("255 bytes were changed to %q", got)
	}
	a, b := client.Key(whole+"a"), client.Key(whole+"b")
	if len(a) != 255 || len(b) != 255 || a == b || !strings.HasPrefix(a, whole[:100]) {
		t.Errorf("got %q and %q, want two keys of 255 bytes that start as their parts do", a, b)
	}
}

func TestKeyTellsListsApart(t *testing.T) {
	t.Parallel()
	part := rapid.OneOf(rapid.StringMatching(`[:%~"a]{0,3}`), rapid.Just("onefold"), rapid.Just("%6Fnefold"), rapid.String(), rapid.StringN(200, 300, -1))
	list := rapid.SliceOfN(part, 0, 4)
	rapid.Check(t, func(t *rapid.T) {
		a, b := list.Draw(t, "a"), list.Draw(t, "b")
		ka, kb := client.Key(anys(a)...), client.Key(anys(b)...)
		same := len(a) == len(b)
		for i := 0; same && i < len(a); i++ {
			same = a[i] == b[i]
		}
		if (ka == kb) != same {
			t.Fatalf("%q and %q: keys %q and %q", a, b, ka, kb)
		}
		if len(ka) == 0 || len(ka) > 255 || strings.IndexFunc(ka, func(r rune) bool { return r < 0x21 || r > 0x7E }) >= 0 || strings.HasPrefix(ka, "onefold:") {
			t.Fatalf("%q gives the invalid key %q", a, ka)
		}
	})
}

func anys(list []string) []any {
	out := make([]any, len(list))
	for i, s := range list {
		out[i] = s
	}
	return out
}

func TestKeyPanicsRatherThanFoldDifferentIntents(t *testing.T) {
	t.Parallel()
	for name, part := range map[string]any{"nil": nil, "nil pointer": (*int)(nil), "func": func() {}, "chan": make(chan int)} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			t.Errorf("%s: got the key %q", name, client.Key("order", part))
		}()
	}
}
