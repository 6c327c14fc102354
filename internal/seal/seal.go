// Package seal decides how a secret rests in the database: encrypted with AES-256-GCM under one key of a ring, bound to
// the place it belongs to, so that a sealed text moved to another row does not open.
//
// The first key of the ring seals, all of them open. A key is retired in three steps: put a new one first, rewrap what
// is stored, take the old one away.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/onefold-dev/onefold/internal/telemetry"
)

// version is the first byte of what Seal gives: version, length of the key's id, id, nonce, ciphertext with its tag.
const version = 1

// keyBytes is the length of an AES-256 key.
const keyBytes = 32

// The errors of Open. None tells anything of the text.
var (
	// ErrUnknownKey: it was sealed under a key that is not in this ring.
	ErrUnknownKey = errors.New("sealed under a key that is not in the key ring; add the key back, or store the secret anew")
	// ErrBroken: it is no sealed text, was changed, or belongs to another place.
	ErrBroken = errors.New("the sealed secret does not open: it was changed, or belongs to another place")
)

// Ring seals and opens. It is safe for concurrent use. The nil ring has no key.
type Ring struct{ keys []key }

type key struct {
	id   string
	aead cipher.AEAD
}

// Parse reads a ring: keys separated by commas or line breaks, each id:key, the key 32 bytes in base64 or hex. The
// first one seals. An empty text gives a nil ring.
func Parse(s telemetry.Secret) (*Ring, error) {
	parts := strings.FieldsFunc(s.Reveal(), func(r rune) bool { return r == ',' || r == '\n' || r == '\r' || r == ' ' })
	if len(parts) == 0 {
		return nil, nil
	}
	r := &Ring{}
	for i, p := range parts {
		id, text, ok := strings.Cut(p, ":")
		if !ok || id == "" || len(id) > 64 || strings.ContainsFunc(id, func(c rune) bool { return c <= ' ' || c > '~' }) {
			return nil, fmt.Errorf("key %d of the ring is not written id:key", i+1)
		}
		if slices.ContainsFunc(r.keys, func(k key) bool { return k.id == id }) {
			return nil, fmt.Errorf("two keys of the ring are named %s", id)
		}
		raw, err := decode(text)
		if err != nil {
			return nil, fmt.Errorf("key %s of the ring is not %d bytes in base64 or hex; 32 random bytes do", id, keyBytes)
		}
		block, err := aes.NewCipher(raw)
		if err != nil {
			return nil, fmt.Errorf("key %s of the ring: %w", id, err)
		}
		aead, err := cipher.NewGCM(block)
		if err != nil {
			return nil, fmt.Errorf("key %s of the ring: %w", id, err)
		}
		r.keys = append(r.keys, key{id: id, aead: aead})
	}
	return r, nil
}

func decode(text string) ([]byte, error) {
	for _, f := range []func(string) ([]byte, error){
		hex.DecodeString, base64.StdEncoding.DecodeString, base64.RawStdEncoding.DecodeString, base64.URLEncoding.DecodeString, base64.RawURLEncoding.DecodeString,
	} {
		if b, err := f(text); err == nil && len(b) == keyBytes {
			return b, nil
		}
	}
	return nil, errors.New("not a key")
}

// NewKey makes a key for a ring: id:key.
func NewKey(id string) string {
	raw := make([]byte, keyBytes)
	_, _ = rand.Read(raw) // never fails
	return id + ":" + base64.StdEncoding.EncodeToString(raw)
}

// Empty says that the ring has no key.
func (r *Ring) Empty() bool { return r == nil || len(r.keys) == 0 }

// Primary is the id of the key that seals, or "".
func (r *Ring) Primary() string {
	if r.Empty() {
		return ""
	}
	return r.keys[0].id
}

// Seal encrypts a secret for a place, a name that says where it belongs. The same secret gives another text each time.
func (r *Ring) Seal(place string, s telemetry.Secret) ([]byte, error) {
	if r.Empty() {
		return nil, errors.New("there is no key to seal secrets with")
	}
	k := r.keys[0]
	head := append([]byte{version, byte(len(k.id))}, k.id...)
	nonce := make([]byte, k.aead.NonceSize())
	_, _ = rand.Read(nonce)
	return k.aead.Seal(append(slices.Clone(head), nonce...), nonce, []byte(s.Reveal()), bind(head, place)), nil
}

// bind is what the text is bound to: its own head, and its place.
func bind(head []byte, place string) []byte { return append(slices.Clone(head), place...) }

// Open decrypts what Seal gave for the same place.
func (r *Ring) Open(place string, sealed []byte) (telemetry.Secret, error) {
	id, rest, ok := split(sealed)
	if !ok {
		return telemetry.Secret{}, ErrBroken
	}
	if r.Empty() {
		return telemetry.Secret{}, ErrUnknownKey
	}
	for _, k := range r.keys {
		if k.id != id {
			continue
		}
		n := k.aead.NonceSize()
		if len(rest) < n {
			return telemetry.Secret{}, ErrBroken
		}
		text, err := k.aead.Open(nil, rest[:n], rest[n:], bind(sealed[:2+len(id)], place))
		if err != nil {
			return telemetry.Secret{}, ErrBroken
		}
		return telemetry.NewSecret(string(text)), nil
	}
	return telemetry.Secret{}, ErrUnknownKey
}

// KeyID is the id of the key a text was sealed under, or "".
func KeyID(sealed []byte) string {
	id, _, _ := split(sealed)
	return id
}

func split(sealed []byte) (id string, rest []byte, ok bool) {
	if len(sealed) < 2 || sealed[0] != version || len(sealed) < 2+int(sealed[1]) {
		return "", nil, false
	}
	n := 2 + int(sealed[1])
	return string(sealed[2:n]), sealed[n:], true
}

// Rewrap seals anew under the ring's first key what was sealed under another. changed is false where it is already.
func (r *Ring) Rewrap(place string, sealed []byte) (again []byte, changed bool, err error) {
	if KeyID(sealed) == r.Primary() {
		return sealed, false, nil
	}
	s, err := r.Open(place, sealed)
	if err != nil {
		return nil, false, err
	}
	again, err = r.Seal(place, s)
	return again, err == nil, err
}
