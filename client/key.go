package client

import (
	"crypto/sha256"
	"encoding"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/onefold-dev/onefold/api"
)

// NoKey submits without a key, for kinds whose dedupe mode is none. Such a
// submit is never sent again where the first might have arrived, for it would
// be a second task.
const NoKey = "\x00no key"

const (
	maxKey   = 255
	reserved = "onefold:" // begins the keys of follow-up tasks, which the server makes
)

// Key builds an idempotency key from the parts that name one intent, such as
// Key("order", orderID, "extract"): the parts' texts joined with ":".
//
// Different lists of texts never give the same key, and every key is valid:
// ":", "%", quotes and whatever is not visible ASCII are written as %XX, an
// empty part as "%", a first part "onefold" as "%6Fnefold" for that beginning
// is reserved, and a key that would be longer than 255 bytes is cut and ends in
// "%~" with the SHA-256 of the whole in hex.
//
// The text of a part is the string itself, a number's or bool's usual form,
// what MarshalText or String gives, a time as RFC 3339 in UTC, and JSON for all
// else. So Key(7) equals Key("7"): a caller that keeps ids as text meets one
// that keeps them as numbers. Key panics for nil and for what has no JSON: such
// a key would fold different intents onto one task.
//
// Leave out what differs between two tries of the same intent: the time of the
// try, a random number, the text of the prompt.
func Key(parts ...any) string {
	if len(parts) == 0 {
		return ":" // no list of one or more parts gives this
	}
	var b strings.Builder
	for i, p := range parts {
		if i > 0 {
			b.WriteByte(':')
		}
		escape(&b, text(p))
	}
	key := b.String()
	if strings.HasPrefix(key, reserved) {
		key = "%6F" + key[1:] // escape never writes an o like this
	}
	if len(key) <= maxKey {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	tail := "%~" + hex.EncodeToString(sum[:])
	return key[:maxKey-len(tail)] + tail
}

func escape(b *strings.Builder, s string) {
	if s == "" {
		b.WriteByte('%')
		return
	}
	for i := range len(s) {
		c := s[i]
		// A quoted string would be unquoted by the server, so quotes go too.
		if c < 0x21 || c > 0x7E || c == ':' || c == '%' || c == '"' {
			fmt.Fprintf(b, "%%%02X", c)
			continue
		}
		b.WriteByte(c)
	}
}

func text(part any) string {
	v := reflect.ValueOf(part)
	if !v.IsValid() || (v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface) && v.IsNil() {
		panic("client.Key: a part is nil; a key made of it would be the same for every missing value")
	}
	switch p := part.(type) {
	case string:
		return p
	case []byte:
		return string(p)
	case time.Time:
		return p.UTC().Format(time.RFC3339Nano)
	case encoding.TextMarshaler:
		t, err := p.MarshalText()
		if err != nil {
			panic(fmt.Sprintf("client.Key: text of a %T: %v", part, err))
		}
		return string(t)
	case fmt.Stringer:
		return p.String()
	}
	if v.Kind() == reflect.String {
		return v.String()
	}
	if v.CanFloat() { // JSON writes 1e21 where a reader of the key expects the shortest form
		return strconv.FormatFloat(v.Float(), 'g', -1, v.Type().Bits())
	}
	t, err := json.Marshal(part)
	if err != nil {
		panic(fmt.Sprintf("client.Key: a part of type %T has no text: %v", part, err))
	}
	return string(t)
}

// checkKey refuses here what the server would refuse, so that an unset
// variable is found before anything is sent.
func checkKey(key string) error {
	switch {
	case key == NoKey:
		return nil
	case key == "":
		return api.Errorf(api.CodeKeyMissing, "the key is empty").WithField("Idempotency-Key").
			WithFix("Build one from what names the intent, client.Key(\"order\", id, \"extract\"), once before the first try.")
	case len(key) > maxKey:
		return api.Errorf(api.CodeKeyTooLong, "the key has %d bytes, 255 are allowed", len(key)).WithField("Idempotency-Key").
			WithFix("Build it with client.Key, which shortens what is too long.")
	case !visible(key):
		return api.Errorf(api.CodeKeyMalformed, "the key holds a character that is not visible ASCII").WithField("Idempotency-Key").
			WithFix("Build it with client.Key, which escapes them.")
	case strings.HasPrefix(key, reserved):
		return api.Errorf(api.CodeKeyReserved, "keys that begin with %q are the server's own", reserved).WithField("Idempotency-Key")
	}
	return nil
}

// headerValue is what to send so that the server reads exactly key: it unquotes
// what starts with a quotation mark, so that is quoted here.
func headerValue(key string) string {
	if !strings.HasPrefix(key, `"`) {
		return key
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
}
