package seal_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/onefold-dev/onefold/internal/seal"
	"github.com/onefold-dev/onefold/internal/telemetry"
)

func ring(t interface{ Fatal(...any) }, keys ...string) *seal.Ring {
	r, err := seal.Parse(telemetry.NewSecret(strings.Join(keys, ",")))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	r := ring(t, seal.NewKey("k1"))
	rapid.Check(t, func(t *rapid.T) {
		text, place := rapid.String().Draw(t, "text"), rapid.String().Draw(t, "place")
		a, err := r.Seal(place, telemetry.NewSecret(text))
		if err != nil {
			t.Fatal(err)
		}
		b, _ := r.Seal(place, telemetry.NewSecret(text))
		if bytes.Equal(a, b) {
			t.Fatal("the same text twice")
		}
		if len(text) > 3 && bytes.Contains(a, []byte(text)) {
			t.Fatal("the text stands in it")
		}
		if got, err := r.Open(place, a); err != nil || got.Reveal() != text {
			t.Fatalf("got %q, %v", got.Reveal(), err)
		}
		if _, err := r.Open(place+"x", a); !errors.Is(err, seal.ErrBroken) {
			t.Fatalf("another place: got %v", err)
		}
		i := rapid.IntRange(0, len(a)-1).Draw(t, "byte")
		a[i] ^= byte(rapid.IntRange(1, 255).Draw(t, "change"))
		if got, err := r.Open(place, a); err == nil {
			t.Fatalf("opened after a change: %q", got.Reveal())
		}
		if _, err := r.Open(place, a[:i]); err == nil {
			t.Fatal("opened when cut")
		}
	})
}

// TestRetireAKey walks the three steps.
func TestRetireAKey(t *testing.T) {
	t.Parallel()
	k1, k2 := seal.NewKey("k1"), seal.NewKey("k2")
	old, both, fresh := ring(t, k1), ring(t, k2, k1), ring(t, k2)
	sealed, err := old.Seal("p", telemetry.NewSecret("s"))
	if err != nil || seal.KeyID(sealed) != "k1" {
		t.Fatalf("sealed under %q, %v", seal.KeyID(sealed), err)
	}
	if _, err := fresh.Open("p", sealed); !errors.Is(err, seal.ErrUnknownKey) {
		t.Errorf("without the old key: got %v", err)
	}
	again, changed, err := both.Rewrap("p", sealed)
	if err != nil || !changed || seal.KeyID(again) != "k2" {
		t.Fatalf("rewrapped under %q, changed %t, %v", seal.KeyID(again), changed, err)
	}
	if got, err := fresh.Open("p", again); err != nil || got.Reveal() != "s" {
		t.Errorf("got %q, %v", got.Reveal(), err)
	}
	if _, changed, err := both.Rewrap("p", again); changed || err != nil {
		t.Errorf("a second rewrap: changed %t, %v", changed, err)
	}
	if _, _, err := fresh.Rewrap("p", sealed); !errors.Is(err, seal.ErrUnknownKey) {
		t.Errorf("got %v", err)
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"abc":      "not written id:key",
		":" + "x":  "not written id:key",
		"k1:short": "not 32 bytes",
		seal.NewKey("a") + "," + seal.NewKey("a"): "two keys",
	} {
		_, err := seal.Parse(telemetry.NewSecret(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "short") {
			t.Errorf("the error tells the key: %v", err)
		}
	}
	none, err := seal.Parse(telemetry.NewSecret(" \n"))
	if err != nil || !none.Empty() || none.Primary() != "" {
		t.Errorf("got %v, %v", none, err)
	}
	if _, err := none.Seal("p", telemetry.NewSecret("s")); err == nil {
		t.Error("sealed without a key")
	}
	if _, err := none.Open("p", []byte{1, 2, 'k', '1', 0}); !errors.Is(err, seal.ErrUnknownKey) {
		t.Errorf("got %v", err)
	}
	r := ring(t, seal.NewKey("k1"), "\n", "k2:"+strings.Repeat("0f", 32))
	if text := fmt.Sprintf("%+v %#v", r.Primary(), r.Primary()); !strings.Contains(text, "k1") {
		t.Errorf("got %s", text)
	}
}
