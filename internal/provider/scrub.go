package provider

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxMessage is the longest message of an Error, in bytes: long enough for a provider's own words, short enough for
// every log line and row that carries it.
const maxMessage = 1 << 10

var (
	urlPattern = regexp.MustCompile(`(?i)\b([a-z][a-z0-9+.-]*)://(?:[^\s/@"'<>]*@)?([^\s/?#"'<>]+)[^\s"'<>]*`)
	keyPattern = regexp.MustCompile(`(?i)\b(?:bearer\s+\S+|(?:sk|pk|rk|xai|gsk|key|of)[-_][a-z0-9_*-]{6,}|AIza[\w-]{20,}|eyJ[\w-]{8,}\.[\w.-]+)`)
	tagPattern = regexp.MustCompile(`(?s)<(?:script|style)\b.*?</(?:script|style)>|<[!/a-zA-Z][^>]*>`)
)

// Scrub makes a message safe to store, log and show: it masks the given secrets and what looks like a key, cuts URLs
// down to scheme and host, drops HTML tags and control characters (U+0000 among them), masks passages of the request's
// text that the provider quotes back, and cuts at 1 KiB.
func Scrub(message string, request []byte, secrets ...string) string {
	if len(message) > 16*maxMessage {
		message = message[:16*maxMessage]
	}
	s := strings.ToValidUTF8(message, "\uFFFD")
	for _, secret := range secrets {
		if len(secret) >= 4 {
			s = strings.ReplaceAll(s, secret, "***")
		}
	}
	s = tagPattern.ReplaceAllString(s, " ")
	s = urlPattern.ReplaceAllString(s, "$1://$2")
	s = keyPattern.ReplaceAllString(s, "***")
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
			return ' '
		}
		return r
	}, s)
	s = strings.Join(strings.Fields(s), " ")
	s = maskQuotes(s, request)
	return cut(s, maxMessage)
}

func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	n -= len("…")
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}
