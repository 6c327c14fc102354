package canon

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
)

const (
	// Header carries the caller's idempotency key.
	Header = "Idempotency-Key"
	// HeaderAlias is read as well, for callers whose platform sets it.
	HeaderAlias = "X-Idempotency-Key"
	// MaxKeyBytes is the longest key. Under it the unique index stays far from
	// the 2,704 bytes at which Postgres refuses an index row.
	MaxKeyBytes = 255
	// ReservedPrefix begins the keys onefold makes itself. Callers cannot send
	// one, so no caller can take or guess the place of a follow-up task.
	ReservedPrefix = "onefold:"
)

// Key reads the idempotency key from the headers of a request: 1 to 255
// visible ASCII characters (0x21-0x7E), case-sensitive, in exactly one line of
// [Header] or [HeaderAlias]. White space around the value is no part of it. A
// value that starts with a quotation mark must be a well-formed quoted string
// (RFC 9651, section 3.3.3) and is unquoted first, so "abc" and abc are one
// key. Nothing else is decoded. With both headers, both must name one key.
// Found is false when neither header is present; a header that is present but
// blank is an error. The error is an [*Error].
func Key(h http.Header) (key string, found bool, err error) {
	for _, name := range []string{Header, HeaderAlias} {
		lines := h.Values(name)
		if len(lines) == 0 {
			continue
		}
		if len(lines) > 1 {
			return "", true, keyError(CodeKeyRepeated, "there is more than one "+name+" line", "Send exactly one.")
		}
		k, bad := headerKey(lines[0])
		if bad != nil {
			return "", true, bad
		}
		if found && k != key {
			return "", true, keyError(CodeKeyConflict, Header+" and "+HeaderAlias+" name different keys", "Send one of the two headers.")
		}
		key, found = k, true
	}
	return key, found, nil
}

// CheckKey checks a key given elsewhere than in a header: by a client, in a
// batch line, by a source. Nothing is trimmed or unquoted: the key is used
// exactly as given. The error is an [*Error].
func CheckKey(key string) error {
	if err := checkKey(key); err != nil {
		return err
	}
	return nil
}

// MissingKey is the error for a request without a key where one is required.
func MissingKey() *Error {
	return keyError(CodeKeyMissing, "there is no idempotency key",
		"Send an "+Header+" header. Make the key once, before the first try, and send the same one with every retry.")
}

// HeaderValue returns the value under which key is sent in [Header], so that
// [Key] reads exactly that key back. A key that starts with a quotation mark
// needs quoting; every other stands as it is.
func HeaderValue(key string) string {
	if !strings.HasPrefix(key, `"`) {
		return key
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
}

// ChildKey returns the key of the follow-up task that the effect name of one
// run of a task creates. The same three always give the same key, different
// ones different keys, and no caller can send it. It has at most [MaxKeyBytes]
// bytes: what does not fit, or is not visible ASCII, is replaced by a hash.
func ChildKey(taskID string, run int, name string) string {
	const plain, hashed = ReservedPrefix + "task:", ReservedPrefix + "task-sha256:"
	tail := ":" + strconv.Itoa(run) + ":" + name
	key := plain + taskID + tail
	// An id with a colon could shift the border between id and run.
	if len(key) <= MaxKeyBytes && strings.IndexByte(taskID, ':') < 0 && firstInvisible(key) < 0 {
		return key
	}
	sum := sha256.Sum256([]byte(strconv.Itoa(len(taskID)) + ":" + taskID + tail))
	return hashed + hex.EncodeToString(sum[:])
}

// FollowKey returns the key of the follow-up task that an effect with a key of
// its own creates: one task for each value of it. No caller can send it, and it
// is never a [ChildKey].
func FollowKey(own string) string {
	const plain, hashed = ReservedPrefix + "key:", ReservedPrefix + "key-sha256:"
	if key := plain + own; len(key) <= MaxKeyBytes && firstInvisible(key) < 0 {
		return key
	}
	sum := sha256.Sum256([]byte(own))
	return hashed + hex.EncodeToString(sum[:])
}

// headerKey reads the key from one header value.
func headerKey(value string) (string, *Error) {
	value = strings.Trim(value, " \t")
	if strings.HasPrefix(value, `"`) {
		unquoted, ok := unquote(value)
		if !ok {
			return "", keyError(CodeKeyMalformed, "the key starts with a quotation mark but is no well-formed quoted string",
				`Send the bare key, or quote all of it and write \" and \\ inside.`)
		}
		value = unquoted
	}
	if err := checkKey(value); err != nil {
		return "", err
	}
	return value, nil
}

// unquote reads a quoted string: only \" and \\ are escapes. What may stand in
// a key is for checkKey to say.
func unquote(value string) (string, bool) {
	if len(value) < 2 || value[len(value)-1] != '"' {
		return "", false
	}
	inner := value[1 : len(value)-1]
	if strings.IndexByte(inner, '\\') < 0 && strings.IndexByte(inner, '"') < 0 {
		return inner, true
	}
	var b strings.Builder
	for i := 0; i < len(inner); i++ {
		if inner[i] == '"' {
			return "", false
		}
		if inner[i] == '\\' {
			i++
			if i == len(inner) || (inner[i] != '"' && inner[i] != '\\') {
				return "", false
			}
		}
		b.WriteByte(inner[i])
	}
	return b.String(), true
}

// checkKey applies the rules in a fixed order, so that one bad key always
// gives the same code.
func checkKey(key string) *Error {
	if strings.Trim(key, " \t\r\n") == "" {
		return keyError(CodeKeyBlank, "the key is blank", "Send 1 to 255 visible ASCII characters.")
	}
	if len(key) > MaxKeyBytes {
		return keyError(CodeKeyTooLong, "the key is longer than 255 bytes", "Send at most 255; hash longer ones.")
	}
	if at := firstInvisible(key); at >= 0 {
		e := keyError(CodeKeyMalformed, "the key holds a character that is not visible ASCII",
			"Use only the characters from ! (0x21) to ~ (0x7E): no spaces, no accents.")
		e.Offset = int64(at)
		return e
	}
	if strings.HasPrefix(key, ReservedPrefix) {
		return keyError(CodeKeyReservedForm, "the key starts with "+ReservedPrefix+", which onefold keeps for itself", "Choose another beginning.")
	}
	return nil
}

// firstInvisible returns the offset of the first byte outside 0x21-0x7E, or -1.
func firstInvisible(key string) int {
	for i := range len(key) {
		if key[i] < 0x21 || key[i] > 0x7e {
			return i
		}
	}
	return -1
}

func keyError(code, message, fix string) *Error {
	return &Error{Code: code, Message: message, Fix: fix, Offset: -1}
}
