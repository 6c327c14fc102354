package httpcall

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
)

var errSecret = errors.New("the signing secret begins with whsec_, but what follows is not base64")

// sign signs a request by Standard Webhooks (https://www.standardwebhooks.com, version 1): one signature for each
// secret, so that a service that knows only one of two during a rotation accepts it.
func sign(h http.Header, secrets []string, id string, now time.Time, body []byte) error {
	stamp := strconv.FormatInt(now.Unix(), 10)
	var signatures []string
	for _, s := range secrets {
		key, coded := strings.CutPrefix(s, "whsec_")
		raw := []byte(key)
		if coded {
			b, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(key, "="))
			if err != nil || len(b) == 0 {
				return errSecret
			}
			raw = b
		}
		mac := hmac.New(sha256.New, raw)
		mac.Write([]byte(id + "." + stamp + "."))
		mac.Write(body)
		signatures = append(signatures, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	if len(signatures) > 0 {
		h.Set("Webhook-Id", id)
		h.Set("Webhook-Timestamp", stamp)
		h.Set("Webhook-Signature", strings.Join(signatures, " "))
	}
	return nil
}
