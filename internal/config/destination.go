package config

import (
	"net/mail"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/onefold-dev/onefold/internal/egress"
)

// DestinationFromBody rebuilds a destination made through the API from the fields it was made with, a JSON object. Its
// secrets are kept apart. The error is [Errors].
func DestinationFromBody(name string, body []byte, o Opts) (*Destination, error) {
	p := &problems{file: "destination"}
	v, err := parseJSON(body)
	if err != nil {
		p.add(Pos{}, "", "is not JSON: "+jsonMessage(err), "")
		return nil, p.err()
	}
	if wrong := plainName(name); wrong != "" {
		p.add(Pos{}, "name", "cannot be the name of a destination", wrong)
	}
	d := newDecoder(p, o)
	d.stored = true
	to := d.destination(name, v, "")
	if err := p.err(); err != nil {
		return nil, err
	}
	return to, nil
}

func (d *decoder) destination(name string, v *value, path string) *Destination {
	m := d.mapping(v, path)
	to := &Destination{Name: name, Repeat: RepeatUnsafe, IdempotencyHeader: "Idempotency-Key", AuthHeader: "Authorization"}
	to.URL = m.url("url", v.t == tObject, "https", "http", "smtps", "smtp")
	if !d.stored {
		to.Secret = m.signing("secret")
		to.Previous = m.signing("previous_secret")
		to.Auth = m.secret("auth")
	}
	enum(m, "repeat", &to.Repeat, RepeatUnsafe, RepeatSafe)
	m.boolean("allow_private", &to.AllowPrivate)
	to.Tenants = m.strings("tenants")
	m.integer("concurrency", &to.Concurrency, 1, 100_000)
	m.rate("rate", &to.Rate)
	m.header("idempotency_header", &to.IdempotencyHeader)
	m.header("auth_header", &to.AuthHeader)
	m.str("username", &to.Username)
	if m.str("from", &to.From) {
		if _, err := mail.ParseAddress(to.From); err != nil {
			m.fail("from", `write it as in "Billing <billing@example.com>"`, "is no mail address")
		}
	}
	m.boolean("plaintext", &to.Plaintext)
	to.Check = d.check(m.take("check", tObject), join(path, "check"))
	m.done()
	m.destinationFits(to)
	return to
}

// header reads the name of a header.
func (m *mapping) header(name string, dst *string) {
	usual := *dst
	if !m.str(name, dst) {
		return
	}
	switch {
	case !isToken(*dst):
		m.fail(name, "write a header name, as in "+usual, "%q is no header name", clip(*dst))
	case slices.ContainsFunc(ours, func(s string) bool { return strings.EqualFold(s, *dst) }) && !strings.HasSuffix(strings.ToLower(*dst), "idempotency-key"):
		m.fail(name, "write another one, as in "+usual, "the header %s is set by the delivery itself", *dst)
	}
}

var ratePattern = regexp.MustCompile(`^([1-9][0-9]{0,5})/(s|m|h)$`)

// rate reads a number of deliveries per second, minute or hour.
func (m *mapping) rate(name string, dst *time.Duration) {
	v := m.take(name, tString)
	if v == nil {
		return
	}
	got := ratePattern.FindStringSubmatch(v.s)
	if got == nil {
		m.fail(name, "write a number per s, m or h, as in 10/s or 600/m", "%q is no rate", clip(v.s))
		return
	}
	n, _ := strconv.Atoi(got[1])
	*dst = map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour}[got[2]] / time.Duration(n)
}

// destinationFits checks what concerns several fields.
func (m *mapping) destinationFits(to *Destination) {
	if to.Previous != nil && to.Secret == nil {
		m.fail("", "add secret_env or secret_file with the new secret", "there is a previous secret but no secret")
	}
	u, err := url.Parse(to.URL.Reveal())
	if err != nil || to.URL.Reveal() == "" {
		return // complained about
	}
	if blocked, known := egress.New(to.AllowPrivate, nil).CheckLiteral(u.Hostname()); known && blocked != nil {
		m.fail("url", "use an address outside, or allow_private: true where loopback and private ranges are meant", "%s", blocked.Error())
	}
	if !to.Mail() {
		for _, name := range []string{"username", "from", "plaintext"} {
			if m.has(name) && (name != "plaintext" || to.Plaintext) {
				m.fail(name, "remove it, or write an address as smtp://host:587", "only a mail server (smtp:// or smtps://) has %s", name)
			}
		}
		return
	}
	for _, name := range []string{"secret_env", "secret_file", "idempotency_header", "auth_header", "check"} {
		if m.has(name) {
			m.fail(name, "remove it", "a mail server has no %s", name)
		}
	}
	switch {
	case to.From == "":
		m.fail("from", `add from: as in "Billing <billing@example.com>"`, "there is nobody the mails are from")
	case to.Plaintext && (u.Scheme != "smtp" || !to.AllowPrivate):
		m.fail("plaintext", "remove it; only smtp:// inside the own network (allow_private: true) can go without TLS", "mails cannot go without TLS there")
	case u.Path != "" && u.Path != "/" || u.RawQuery != "":
		m.fail("url", "write smtp://host:587 or smtps://host:465", "a mail server's address has no path and no query")
	case to.Username != "" && to.Auth == nil && !m.d.stored:
		m.fail("username", "add auth_env or auth_file with the password", "there is a user name but no password")
	}
}
