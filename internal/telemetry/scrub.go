package telemetry

import (
	"errors"
	"net/url"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgconn"
)

// maxScrubbed bounds a scrubbed text, in bytes: long enough for any honest error, too short for a document.
const maxScrubbed = 1024

// ScrubURL returns raw without user name, password, query and fragment. What is not a URL gives "[redacted]".
func ScrubURL(raw string) string {
	u, err := url.Parse(strings.TrimSpace(raw))
	if err != nil || u.Opaque != "" && u.Host == "" {
		return redacted
	}
	clean := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}
	return cut(printable(clean.String()))
}

// ScrubError returns the text of err without what must not be seen: credentials, queries of URLs, connection strings,
// and everything Postgres says about the data (DETAIL, and messages that quote values).
func ScrubError(err error) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	for _, sub := range tellers(err, nil) {
		if sub.raw != "" {
			text = strings.ReplaceAll(text, sub.raw, sub.clean)
		}
	}
	return ScrubText(text)
}

type teller = struct{ raw, clean string }

// tellers finds the errors in the tree below err whose text is known to tell too much, outermost first, with what to
// say instead.
func tellers(err error, out []teller) []teller {
	switch e := err.(type) { //nolint:errorlint // the tree is walked here by hand
	case nil:
		return out
	case *url.Error:
		clean := e.Op + " " + ScrubURL(e.URL)
		if e.Err != nil {
			clean += ": " + ScrubError(e.Err)
		}
		return append(out, teller{e.Error(), clean})
	case *pgconn.PgError:
		return append(out, teller{e.Error(), scrubPg(e)})
	case *pgconn.ConnectError:
		return append(out, teller{e.Error(), "connect to the database: " + ScrubError(errors.Unwrap(e))})
	case *pgconn.ParseConfigError:
		return append(out, teller{e.Error(), "the database URL is malformed"})
	}
	switch e := err.(type) { //nolint:errorlint // as above
	case interface{ Unwrap() error }:
		return tellers(e.Unwrap(), out)
	case interface{ Unwrap() []error }:
		for _, sub := range e.Unwrap() {
			out = tellers(sub, out)
		}
	}
	return out
}

// quotesNoData lists the SQLSTATE classes whose primary message names only objects of the schema. The message of any
// other class may quote a value of a row (22P02 "invalid input syntax for type integer: ...", what a trigger raises).
var quotesNoData = setOf("08", "23", "25", "26", "28", "40", "42", "53", "54", "55", "57", "58", "XX")

func scrubPg(e *pgconn.PgError) string {
	text := "postgres error " + e.Code
	if len(e.Code) == 5 && quotesNoData[e.Code[:2]] {
		text += ": " + e.Message
	}
	if e.ConstraintName != "" && !strings.Contains(text, e.ConstraintName) {
		text += " (constraint " + e.ConstraintName + ")"
	}
	return text
}

// What stands in running text and looks like a credential. Each pattern replaces only the secret part, so that the
// rest of the message still helps.
var (
	reURL    = regexp.MustCompile(`(?i)\b[a-z][a-z0-9+.\-]*://[^\s"'<>` + "`" + `]+`)
	reBearer = regexp.MustCompile(`(?i)\b(bearer|basic)\s+[A-Za-z0-9\-._~+/*]+=*`)
	reKeys   = regexp.MustCompile(`\b(?:(?:sk|pk|rk|xai|gsk)[-_]|of_|whsec_|ghp_|github_pat_|xox[a-z]-|AKIA|AIza|hf_|eyJ)[A-Za-z0-9\-._*+/=]{3,}`)
	rePairs  = regexp.MustCompile(`(?i)\b((?:x-)?api[-_ ]?key|authorization|password|passwd|pwd|secret|access[-_]?token|token|sslpassword)(["']?\s*[=:]\s*)("[^"]*"|'[^']*'|[^\s,;&"']+)`)
)

// ScrubText removes from s what looks like a credential, the query of any URL in it, control characters, NUL and
// ill-formed UTF-8, and cuts it to 1 KiB. It is the second line of defence: the first is not to log foreign text.
func ScrubText(s string) string {
	if len(s) > 4*maxScrubbed {
		s = s[:4*maxScrubbed]
	}
	s = printable(s)
	if strings.Contains(s, "://") {
		s = reURL.ReplaceAllStringFunc(s, scrubFoundURL)
	}
	s = reBearer.ReplaceAllString(s, "${1} "+redacted)
	if strings.ContainsAny(s, "=:") {
		s = rePairs.ReplaceAllString(s, "${1}${2}"+redacted)
	}
	s = reKeys.ReplaceAllString(s, redacted)
	return cut(s)
}

// scrubFoundURL scrubs a URL found in running text, where punctuation may follow it.
func scrubFoundURL(s string) string {
	trimmed := strings.TrimRight(s, ".,;:!?)]}")
	return ScrubURL(trimmed) + s[len(trimmed):]
}

// printable makes s fit for a log line and for a Postgres text column.
func printable(s string) string {
	clean := true
	for i := 0; i < len(s) && clean; i++ {
		clean = s[i] >= 0x20 && s[i] < 0x7f
	}
	if clean {
		return s
	}
	s = strings.ToValidUTF8(s, "\uFFFD")
	return strings.Map(func(r rune) rune {
		switch {
		case r == 0:
			return -1
		case r == '\n', r == '\t', r == '\r':
			return ' '
		case r < 0x20, r >= 0x7f && r < 0xa0, r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
			return '\uFFFD'
		}
		return r
	}, s)
}

func cut(s string) string {
	if len(s) <= maxScrubbed {
		return s
	}
	end := maxScrubbed - len("...")
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "..."
}
