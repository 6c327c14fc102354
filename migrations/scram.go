package migrations

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"

	"golang.org/x/text/secure/precis"
)

// What Postgres itself uses for a new password.
const (
	scramIterations = 4096
	scramSalt       = 16
)

// scramVerifier is what Postgres stores of a password (RFC 5803). Made here, the
// password itself is never sent, and stands in no log of the server.
func scramVerifier(password string) (string, error) {
	salt := make([]byte, scramSalt)
	_, _ = rand.Read(salt) // never fails
	return scramWith(password, salt)
}

func scramWith(password string, salt []byte) (string, error) {
	// As clients do it before they prove that they know the password.
	if prepared, err := precis.OpaqueString.String(password); err == nil {
		password = prepared
	}
	salted, err := pbkdf2.Key(sha256.New, password, salt, scramIterations, sha256.Size)
	if err != nil {
		return "", fmt.Errorf("derive the verifier of the password: %w", err)
	}
	mac := func(key []byte, text string) []byte {
		h := hmac.New(sha256.New, key)
		h.Write([]byte(text))
		return h.Sum(nil)
	}
	stored := sha256.Sum256(mac(salted, "Client Key"))
	b64 := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("SCRAM-SHA-256$%d:%s$%s:%s", scramIterations, b64(salt), b64(stored[:]), b64(mac(salted, "Server Key"))), nil
}
