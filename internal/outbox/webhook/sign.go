package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strconv"
	"strings"

	"github.com/onefold-dev/onefold/internal/telemetry"
)

// The headers of Standard Webhooks (https://www.standardwebhooks.com, version 1).
const (
	headerID        = "webhook-id"
	headerTimestamp = "webhook-timestamp"
	headerSignature = "webhook-signature"
	secretPrefix    = "whsec_"
)

var errSecret = errors.New("the secret begins with whsec_, but what follows is not base64")

// key is the bytes a secret stands for: base64 after whsec_, the text itself otherwise.
func key(s telemetry.Secret) ([]byte, error) {
	text, encoded := strings.CutPrefix(s.Reveal(), secretPrefix)
	if !encoded {
		return []byte(text), nil
	}
	b, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(text, "="))
	if err != nil || len(b) == 0 {
		return nil, errSecret
	}
	return b, nil
}

// sign returns the value of webhook-signature: one signature for each secret, so that a receiver that knows only one
// of two during a rotation accepts it.
func sign(secrets []telemetry.Secret, id string, timestamp int64, body []byte) (string, error) {
	signatures := make([]string, 0, len(secrets))
	for _, s := range secrets {
		k, err := key(s)
		if err != nil {
			return "", err
		}
		mac := hmac.New(sha256.New, k)
		mac.Write([]byte(id + "." + strconv.FormatInt(timestamp, 10) + "."))
		mac.Write(body)
		signatures = append(signatures, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	return strings.Join(signatures, " "), nil
}
