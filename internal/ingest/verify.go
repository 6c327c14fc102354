package ingest

import (
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // as a MAC it still holds, and some senders know no other
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"hash"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/onefold-dev/onefold/internal/config"
)

// Why a delivery was refused, as the audit and the log have it.
const (
	reasonNoSignature = "no_signature" // a header is missing, repeated or malformed
	reasonStale       = "stale"        // the time of sending is too far off
	reasonMismatch    = "mismatch"     // no secret made this signature
	reasonNoSecret    = "no_secret"    // none is valid now, or none can be read
	maxSignatures     = 16             // looked at in one delivery: senders put two there while they rotate
	maxTimestamp      = 12             // digits: up to the year 33658
	maxHeader         = 4096           // bytes of a header that is looked at
)

// envelope is what a scheme's headers say about a delivery.
type envelope struct {
	id         string
	timestamp  string // as sent, "" where the scheme has none
	signatures [][]byte
}

// verified names the secret that made the signature and the id the scheme carries.
type verified struct {
	id     string
	secret string
}

// verify checks one delivery. reason is "" when a secret that is valid now made the signature and the time of sending is
// near enough. Every secret and every signature is tried, whichever fits, so that the time taken tells nothing.
func verify(s *config.Source, h http.Header, body []byte, now time.Time) (v verified, reason string) {
	e, ok := open(s, h)
	if !ok {
		return v, reasonNoSignature
	}
	if s.Timed() && !fresh(e.timestamp, now, s.Tolerance) {
		return v, reasonStale
	}
	message := signed(s, e, body)
	reason = reasonNoSecret
	for _, secret := range s.Secrets {
		text, err := secret.Secret.Get()
		if err != nil || !secret.Live(now) {
			continue
		}
		key, err := config.SourceKey(s.Scheme, text)
		if err != nil || len(key) < config.MinSourceSecret {
			continue // a file may have been changed since the start
		}
		if reason == reasonNoSecret {
			reason = reasonMismatch
		}
		mac := hmac.New(algorithm(s), key)
		for _, part := range message {
			mac.Write(part)
		}
		want := mac.Sum(nil)
		for _, got := range e.signatures {
			if hmac.Equal(got, want) && v.secret == "" {
				v = verified{id: e.id, secret: secret.Name}
			}
		}
	}
	if v.secret != "" {
		return v, ""
	}
	return v, reason
}

// open reads the headers of the source's scheme.
func open(s *config.Source, h http.Header) (envelope, bool) {
	switch s.Scheme {
	case config.SchemeStandard:
		return openStandard(h)
	case config.SchemeStripe:
		return openStripe(h)
	case config.SchemeGitHub:
		sig, ok := one(h, "X-Hub-Signature-256")
		e := envelope{signatures: decode(sig, "sha256=", hex.DecodeString)}
		e.id, _ = one(h, "X-GitHub-Delivery")
		return e, ok && len(e.signatures) > 0
	}
	return openHMAC(s.HMAC, h)
}

// openStandard: webhook-signature is a list of "v1,<base64>" parted by spaces; other versions are passed over.
func openStandard(h http.Header) (envelope, bool) {
	var e envelope
	var okID, okTime bool
	e.id, okID = one(h, "webhook-id")
	e.timestamp, okTime = one(h, "webhook-timestamp")
	list, okSig := one(h, "webhook-signature")
	for _, part := range strings.Fields(list) {
		e.signatures = append(e.signatures, decode(part, "v1,", base64.StdEncoding.DecodeString)...)
	}
	return e.bounded(), okID && okTime && okSig && len(e.signatures) > 0
}

// openStripe: "t=<seconds>,v1=<hex>,v1=<hex>,v0=...".
func openStripe(h http.Header) (envelope, bool) {
	var e envelope
	list, ok := one(h, "Stripe-Signature")
	for _, part := range strings.Split(list, ",") {
		part = strings.TrimSpace(part)
		if t, is := strings.CutPrefix(part, "t="); is {
			if e.timestamp != "" {
				return e, false
			}
			e.timestamp = t
			continue
		}
		e.signatures = append(e.signatures, decode(part, "v1=", hex.DecodeString)...)
	}
	return e.bounded(), ok && e.timestamp != "" && len(e.signatures) > 0
}

func openHMAC(r config.HMAC, h http.Header) (envelope, bool) {
	var e envelope
	from := hex.DecodeString
	if r.Encoding == "base64" {
		from = base64.StdEncoding.DecodeString
	}
	sig, ok := one(h, r.Header)
	e.signatures = decode(sig, r.Prefix, from)
	for name, dst := range map[string]*string{r.TimestampHeader: &e.timestamp, r.IDHeader: &e.id} {
		if name == "" {
			continue
		}
		var there bool
		if *dst, there = one(h, name); !there {
			return e, false
		}
	}
	return e, ok && len(e.signatures) > 0
}

func (e envelope) bounded() envelope {
	e.signatures = e.signatures[:min(len(e.signatures), maxSignatures)]
	return e
}

// one is the value of a header that came once, is not blank, and is not absurdly long.
func one(h http.Header, name string) (string, bool) {
	lines := h.Values(name)
	if len(lines) != 1 || len(lines[0]) > maxHeader {
		return "", false
	}
	v := strings.TrimSpace(lines[0])
	return v, v != ""
}

func decode(text, prefix string, from func(string) ([]byte, error)) [][]byte {
	rest, ok := strings.CutPrefix(text, prefix)
	if !ok || rest == "" {
		return nil
	}
	b, err := from(rest)
	if err != nil || len(b) == 0 {
		return nil
	}
	return [][]byte{b}
}

// fresh takes digits only: no sign, no blanks, no fraction.
func fresh(timestamp string, now time.Time, tolerance time.Duration) bool {
	if timestamp == "" || len(timestamp) > maxTimestamp || strings.Trim(timestamp, "0123456789") != "" {
		return false
	}
	n, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil {
		return false
	}
	return now.Sub(time.Unix(n, 0)).Abs() <= tolerance
}

// signed is what the signature covers, in parts, so that the body is not copied.
func signed(s *config.Source, e envelope, body []byte) [][]byte {
	form := s.HMAC.Signed
	switch s.Scheme {
	case config.SchemeStandard:
		form = "{id}.{timestamp}.{body}"
	case config.SchemeStripe:
		form = "{timestamp}.{body}"
	case config.SchemeGitHub:
		form = "{body}"
	}
	var parts [][]byte
	for form != "" {
		switch {
		case strings.HasPrefix(form, "{id}"):
			parts, form = append(parts, []byte(e.id)), form[len("{id}"):]
		case strings.HasPrefix(form, "{timestamp}"):
			parts, form = append(parts, []byte(e.timestamp)), form[len("{timestamp}"):]
		case strings.HasPrefix(form, "{body}"):
			parts, form = append(parts, body), form[len("{body}"):]
		default:
			parts, form = append(parts, []byte(form[:1])), form[1:]
		}
	}
	return parts
}

func algorithm(s *config.Source) func() hash.Hash {
	switch s.HMAC.Algorithm {
	case "sha512":
		return sha512.New
	case "sha1":
		return sha1.New
	}
	return sha256.New
}
