package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"regexp"
	"strings"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/store"
)

// AnyTenant is how the tenant of an instance key is shown.
const AnyTenant = "*"

// Key is an API key as it is shown: without its secret.
type Key struct {
	ID        string      `json:"id"`
	Tenant    string      `json:"tenant"` // AnyTenant for an instance key
	Name      string      `json:"name"`
	Scopes    []api.Scope `json:"scopes"`
	Live      bool        `json:"live"`
	CreatedAt time.Time   `json:"created_at"`
	ExpiresAt *time.Time  `json:"expires_at,omitempty"`
	RevokedAt *time.Time  `json:"revoked_at,omitempty"`
}

func shown(k *store.APIKey) Key {
	tenant := k.Tenant
	if tenant == "" {
		tenant = AnyTenant
	}
	return Key{
		ID: k.ID, Tenant: tenant, Name: k.Name, Scopes: k.Scopes, Live: k.Live,
		CreatedAt: k.CreatedAt.UTC(), ExpiresAt: utc(k.ExpiresAt), RevokedAt: utc(k.RevokedAt),
	}
}

func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}

// Sizes of what is drawn at random: 80 bits keep ids apart, 200 bits cannot be
// guessed.
const (
	idBytes     = 10
	secretBytes = 25
	prefix      = "of_"
)

var lower = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// draw makes a new id and secret. Both are base32 in lower case: nothing in
// them needs quoting, and a double click selects the whole key.
func draw() (id, secret string) {
	var raw [idBytes + secretBytes]byte
	_, _ = rand.Read(raw[:]) // never fails since Go 1.24
	return lower.EncodeToString(raw[:idBytes]), lower.EncodeToString(raw[idBytes:])
}

func format(id, secret string) string { return prefix + id + "_" + secret }

var (
	idGrammar     = regexp.MustCompile(`^[a-z0-9]{8,32}$`)
	secretGrammar = regexp.MustCompile(`^[A-Za-z0-9]{32,128}$`)
	nameGrammar   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)
	tenantGrammar = regexp.MustCompile(`^[a-z0-9][a-z0-9_.-]{0,62}$`)
)

// parse takes a key apart. What does not have the form of a key is not looked
// up.
func parse(text string) (id, secret string, ok bool) {
	rest, ok := strings.CutPrefix(text, prefix)
	if !ok {
		return "", "", false
	}
	id, secret, ok = strings.Cut(rest, "_")
	return id, secret, ok && idGrammar.MatchString(id) && secretGrammar.MatchString(secret)
}

func hash(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}
