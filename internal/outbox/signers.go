package outbox

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/telemetry"
)

// signer is one secret that signs.
type signer struct {
	id      string
	source  *telemetry.SecretSource
	present bool // the newest: without it nothing can be sent
}

// signers are the secrets that sign for a destination, the newest first. Those of the file are known by the beginning of
// a hash, so that a receiver's operator can tell which one a delivery was signed with.
func (o *Outbox) signers(to *config.Destination) []signer {
	var all []signer
	if to.Secret != nil {
		all = append(all, signer{id: secretID(to.Secret), source: to.Secret, present: true})
	}
	if to.Previous != nil {
		all = append(all, signer{id: secretID(to.Previous), source: to.Previous})
	}
	return all
}

// secretID names a secret of the file without telling it: 48 bits of a hash of its own kind.
func secretID(source *telemetry.SecretSource) string {
	s, err := source.Get()
	if err != nil || s.Empty() {
		return ""
	}
	sum := sha256.Sum256([]byte("onefold signing secret\x00" + s.Reveal()))
	return hex.EncodeToString(sum[:6])
}
