package destination

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/telemetry"
)

// fileID names a secret of the file without telling it: 48 bits of a hash of its own kind.
func fileID(source *telemetry.SecretSource) string {
	s, err := source.Get()
	if err != nil || s.Empty() {
		return ""
	}
	sum := sha256.Sum256([]byte("onefold signing secret\x00" + s.Reveal()))
	return hex.EncodeToString(sum[:6])
}

// newID names a stored secret.
func newID() string {
	raw := make([]byte, 6)
	_, _ = rand.Read(raw) // never fails
	return hex.EncodeToString(raw)
}

// newSecret makes a signing secret in the form of Standard Webhooks: 256 random bits.
func newSecret() telemetry.Secret {
	raw := make([]byte, 32)
	_, _ = rand.Read(raw) // never fails
	return telemetry.NewSecret("whsec_" + base64.StdEncoding.EncodeToString(raw))
}

// minSecret is how short a signing secret may be: 24 bytes in base64, as Standard Webhooks asks for.
const minSecret = 24

// signing makes or checks a secret that is to sign. made says that nobody knows it yet.
func signing(given string) (s telemetry.Secret, made bool, err error) {
	if given == "" {
		return newSecret(), true, nil
	}
	s = telemetry.NewSecret(given)
	if len(given) < minSecret || len(given) > 1024 {
		return s, false, api.Errorf(api.CodeInvalidField, "the secret has %d characters", len(given)).WithField("secret").
			WithFix("Send %d to 1024 characters, or none: then one is made.", minSecret)
	}
	if err := config.CheckSecret(s, true); err != nil {
		return s, false, api.Errorf(api.CodeInvalidField, "%s", err.Error()).WithField("secret").WithFix("Send the secret as the receiver has it.")
	}
	return s, false, nil
}
