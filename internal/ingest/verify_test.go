package ingest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"strconv"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"pgregory.net/rapid"

	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/telemetry"
)

func secret(name, text string) config.SourceSecret {
	return config.SourceSecret{Name: name, Secret: telemetry.SecretFromValue(telemetry.NewSecret(text))}
}

// What the public library of Standard Webhooks signs is genuine, and with one bit of it changed it is not.
func TestStandardAgainstItsLibrary(t *testing.T) {
	t.Parallel()
	now := time.Unix(1767225600, 0)
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.SliceOfN(rapid.Byte(), config.MinSourceSecret, 64).Draw(t, "key")
		body := rapid.SliceOf(rapid.Byte()).Draw(t, "body")
		id := rapid.StringMatching(`[!-~]{1,40}`).Draw(t, "id")
		text := "whsec_" + base64.StdEncoding.EncodeToString(key)
		lib, err := standardwebhooks.NewWebhook(text)
		if err != nil {
			t.Fatal(err)
		}
		sig, err := lib.Sign(id, now, body)
		if err != nil {
			t.Fatal(err)
		}
		src := &config.Source{Scheme: config.SchemeStandard, Tolerance: time.Minute, Secrets: []config.SourceSecret{secret("one", text)}}
		h := http.Header{}
		h.Set("webhook-id", id)
		h.Set("webhook-timestamp", strconv.FormatInt(now.Unix(), 10))
		h.Set("webhook-signature", sig)
		v, reason := verify(src, h, body, now)
		if reason != "" || v != (verified{id: id, secret: "one"}) {
			t.Fatalf("got %+v %q, want it genuine", v, reason)
		}
		changed := append(append([]byte{}, body...), 'x')
		if _, reason := verify(src, h, changed, now); reason != reasonMismatch {
			t.Fatalf("a changed body: got %q, want %q", reason, reasonMismatch)
		}
		h.Set("webhook-id", id+"x")
		if _, reason := verify(src, h, body, now); reason != reasonMismatch {
			t.Fatalf("a changed id: got %q, want %q", reason, reasonMismatch)
		}
	})
}

// The example that GitHub's scheme is documented with.
func TestPublishedVector(t *testing.T) {
	t.Parallel()
	// https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries
	src := &config.Source{Scheme: config.SchemeGitHub, Secrets: []config.SourceSecret{secret("s", "It's a Secret to Everybody")}}
	h := http.Header{"X-Hub-Signature-256": {"sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"}, "X-Github-Delivery": {"d"}}
	if v, reason := verify(src, h, []byte("Hello, World!"), time.Now()); reason != "" || v.id != "d" {
		t.Errorf("github: got %+v %q", v, reason)
	}
}

// Of several secrets only those valid now count, and the one that signed is named.
func TestSecretsInTheirTime(t *testing.T) {
	t.Parallel()
	now := time.Unix(1767225600, 0)
	body := []byte(`{}`)
	sign := func(text string) http.Header {
		m := hmac.New(sha256.New, []byte(text))
		m.Write(append([]byte("1767225600."), body...))
		return http.Header{"Stripe-Signature": {"t=1767225600,v1=" + hex.EncodeToString(m.Sum(nil)) + ",v0=00"}}
	}
	old, new := secret("old", "the old secret, long enough"), secret("new", "the new secret, long enough")
	old.Until, new.From = now.Add(time.Hour), now.Add(-time.Hour)
	src := &config.Source{Scheme: config.SchemeStripe, Tolerance: 5 * time.Minute, Secrets: []config.SourceSecret{old, new}}
	for _, c := range []struct {
		text   string
		after  time.Duration
		secret string
		reason string
	}{
		{"the old secret, long enough", 0, "old", ""},
		{"the new secret, long enough", 0, "new", ""},
		{"another secret, long enough", 0, "", reasonMismatch},
		{"the new secret, long enough", 6 * time.Minute, "", reasonStale},
	} {
		v, reason := verify(src, sign(c.text), body, now.Add(c.after))
		if v.secret != c.secret || reason != c.reason {
			t.Errorf("%s after %s: got %q %q, want %q %q", c.text, c.after, v.secret, reason, c.secret, c.reason)
		}
	}
	src.Tolerance = 48 * time.Hour
	if _, reason := verify(src, sign("the old secret, long enough"), body, now.Add(2*time.Hour)); reason != reasonMismatch {
		t.Errorf("a secret past its time: got %q, want %q", reason, reasonMismatch)
	}
	src.Secrets = []config.SourceSecret{old}
	if _, reason := verify(src, sign("the old secret, long enough"), body, now.Add(2*time.Hour)); reason != reasonNoSecret {
		t.Errorf("no secret left: got %q, want %q", reason, reasonNoSecret)
	}
}

// FuzzSignatureHeaders: whatever stands in the headers, nothing panics and nothing without the secret is genuine.
func FuzzSignatureHeaders(f *testing.F) {
	f.Add("v1,AAAA v1a,BBBB", "msg_1", "1767225600", byte(0))
	f.Add("t=1767225600,v1=00ff,t=1", "x", "+1", byte(1))
	f.Add("sha256=757107", "", "", byte(2))
	f.Add("AAAA", "{body}", "{id}", byte(3))
	f.Fuzz(func(t *testing.T, sig, id, ts string, which byte) {
		scheme := []config.Scheme{config.SchemeStandard, config.SchemeStripe, config.SchemeGitHub, config.SchemeHMAC}[which%4]
		text := "c2VjcmV0IHRoYXQgbm9ib2R5IGtub3dzIQ=="
		src := &config.Source{
			Scheme: scheme, Tolerance: time.Hour, Secrets: []config.SourceSecret{secret("s", text)},
			HMAC: config.HMAC{Header: "Sig", Encoding: "base64", Signed: "{id}{timestamp}{body}", TimestampHeader: "Ts", IDHeader: "Id"},
		}
		h := http.Header{}
		for _, name := range []string{"webhook-signature", "Stripe-Signature", "X-Hub-Signature-256", "Sig"} {
			h.Set(name, sig)
		}
		for _, name := range []string{"webhook-id", "X-GitHub-Delivery", "Id"} {
			h.Set(name, id)
		}
		for _, name := range []string{"webhook-timestamp", "Ts"} {
			h.Set(name, ts)
		}
		if _, reason := verify(src, h, []byte(`{"x":1}`), time.Unix(1767225600, 0)); reason == "" {
			t.Fatalf("%q counts as genuine", sig)
		}
	})
}
