package config

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/onefold-dev/onefold/internal/telemetry"
)

// URL is an address from the configuration. Printing it leaves out user name, password and query, which may be secret.
type URL struct{ raw *string }

// NewURL returns s as a URL that prints without its secret parts.
func NewURL(s string) URL { return URL{raw: &s} }

// Reveal returns the whole address.
func (u URL) Reveal() string {
	if u.raw == nil {
		return ""
	}
	return *u.raw
}

func (u URL) String() string {
	if u.Reveal() == "" {
		return ""
	}
	return telemetry.ScrubURL(u.Reveal())
}

// GoString is String, for %#v.
func (u URL) GoString() string { return u.String() }

// MarshalText is String, for JSON and YAML.
func (u URL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// ProviderTypes and EffectTypes are all that the design knows, whether built or not.
var (
	designProviders = []string{"openai", "anthropic", "httpcall", "fake"}
	designEffects   = []string{"webhook", "sql", "http", "email", "task"}
)

// available complains when the type of m is unknown, or known but not built into this program.
func (m *mapping) available(what string, known []string, built map[string]bool) string {
	v := m.take("type", tString)
	if v == nil {
		if !m.has("type") {
			m.fail("type", "add type: "+strings.Join(known, " | "), "the %s has no type", what)
		}
		return ""
	}
	var have []string
	for _, t := range known {
		if built == nil || built[t] {
			have = append(have, t)
		}
	}
	switch {
	case slices.Contains(have, v.s):
		return v.s
	case slices.Contains(known, v.s):
		m.fail("type", "use one of: "+strings.Join(have, ", "), "%s type %s is not available in this version", what, v.s)
	default:
		m.fail("type", "use one of: "+strings.Join(have, ", "), "%q is no %s type", clip(v.s), what)
	}
	return ""
}

func (d *decoder) provider(name string, v *value, path string) *Provider {
	m := d.mapping(v, path)
	p := &Provider{Name: name, Stream: true}
	p.Type = m.available("provider", designProviders, d.o.ProviderTypes)
	p.Stream = p.Type != "httpcall"
	p.BaseURL = m.url("base_url", v.t == tObject && p.Type != "fake", "https", "http")
	p.APIKey = m.secret("api_key")
	m.boolean("stream", &p.Stream)
	m.integer("concurrency", &p.Concurrency, 1, 100_000)
	m.integer("requests_per_minute", &p.RequestsPerMinute, 1, 1_000_000)
	m.integer("tokens_per_minute", &p.TokensPerMinute, 1, 1_000_000_000)
	p.Prices = d.prices(m.take("prices"), join(path, "prices"))
	if m.str("status", &p.Status) && p.Type != "httpcall" {
		m.fail("status", "remove it", "only an httpcall provider has a status")
	}
	d.providerDialect(m, p)
	p.Timeouts = d.timeouts(m.take("timeouts"), join(path, "timeouts"), defaultTimeouts(p.Stream))
	m.done()
	body := object()
	body.set("base_url", str(p.BaseURL.Reveal()))
	body.set("stream", boolean(p.Stream))
	body.set("timeouts", p.Timeouts.value())
	body.set("type", str(p.Type))
	if p.Background {
		body.set("mode", str(modeBackground))
	}
	if p.API == APIResponses {
		body.set("api", str(p.API))
	}
	p.hash = hashOf(body.appendJSON(nil))
	return p
}

// The values of Provider.API.
const (
	APIChat      = "chat"
	APIResponses = "responses"

	modeDirect     = "direct"
	modeBackground = "background"
)

// providerDialect reads the fields that only some types have.
func (d *decoder) providerDialect(m *mapping, p *Provider) {
	p.API = APIChat
	if m.has("api") && p.Type != "openai" {
		m.fail("api", "remove it", "only an openai provider has a choice of APIs")
	}
	enum(m, "api", &p.API, APIChat, APIResponses)
	mode := modeDirect
	enum(m, "mode", &mode, modeDirect, modeBackground)
	if p.Background = mode == modeBackground; p.Background {
		p.Stream = false
		switch {
		case p.Type != "openai":
			m.fail("mode", "remove it", "only an openai provider works in the background")
		case p.API != APIResponses:
			m.fail("mode", "add api: responses", "only the responses API works in the background")
		}
	}
	for _, name := range []string{"secret_env", "secret_file", "previous_secret_env", "previous_secret_file"} {
		if m.has(name) && p.Type != "httpcall" {
			m.fail(name, "remove it", "only an httpcall provider has this field")
		}
	}
	p.Signing, p.PreviousSigning = m.signing("secret"), m.signing("previous_secret")
	if p.PreviousSigning != nil && p.Signing == nil {
		m.fail("", "add secret_env or secret_file with the new secret", "there is a previous secret but no secret")
	}
	if m.boolean("allow_private", &p.AllowPrivate); p.AllowPrivate && p.Type != "httpcall" {
		m.fail("allow_private", "remove it", "only an httpcall provider has guarded addresses")
	}
	if p.Stream && p.Type == "httpcall" {
		m.fail("stream", "remove it", "an httpcall service is not streamed")
	}
	if m.str("version", &p.Version) && p.Type != "anthropic" {
		m.fail("version", "remove it", "only an anthropic provider has a version")
	}
}

// ProviderHash is the hash of a provider by name, "" where there is none.
func (c *Config) ProviderHash(name string) string {
	if p := c.Providers[name]; p != nil {
		return p.hash
	}
	return ""
}

func hashOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func (m *mapping) url(name string, required bool, schemes ...string) URL {
	v := m.take(name, tString)
	if v == nil {
		if required && !m.has(name) {
			m.fail(name, "add "+name+": https://...", "there is no %s", name)
		}
		return URL{}
	}
	u, err := url.Parse(v.s)
	switch {
	case err != nil || u.Host == "" || u.Hostname() == "":
		m.fail(name, "write a whole address, as in https://api.example.com/v1", "is not a URL")
	case !slices.Contains(schemes, u.Scheme):
		m.fail(name, "begin it with "+strings.Join(schemes, ":// or ")+"://", "%q is not a scheme that can be used", clip(u.Scheme))
	case u.Fragment != "" || strings.Contains(v.s, "#"):
		m.fail(name, "remove # and what follows", "a fragment is never sent")
	case u.User != nil:
		m.fail(name, "put the credential into an environment variable or a file and name that", "a user name or password does not belong into the address")
	default:
		return NewURL(v.s)
	}
	return URL{}
}

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// secret reads NAME_env and NAME_file, of which one may be given, and tries it once.
func (m *mapping) secret(name string) *telemetry.SecretSource {
	return m.secretUnless(m.d.o.SkipSecrets, name)
}

// secretUnless is secret, but does not try it when skip.
func (m *mapping) secretUnless(skip bool, name string) *telemetry.SecretSource {
	var env, file string
	hasEnv, hasFile := m.str(name+"_env", &env), m.str(name+"_file", &file)
	var src *telemetry.SecretSource
	field := name + "_env"
	switch {
	case hasEnv && hasFile:
		m.fail(name+"_file", "keep one of the two", "both %s_env and %s_file are given", name, name)
		return nil
	case hasEnv && !envName.MatchString(env):
		m.fail(field, "write the name of the variable, not its value", "this is not the name of an environment variable")
		return nil
	case hasEnv:
		src = telemetry.SecretFromEnv(env, m.d.o.getenv)
	case hasFile:
		field = name + "_file"
		if !filepath.IsAbs(file) {
			file = filepath.Join(filepath.Dir(m.d.file), file)
		}
		src = telemetry.SecretFromFile(file)
	default:
		return nil
	}
	if skip {
		return src
	}
	if _, err := src.Get(); err != nil {
		fix := "set it before starting"
		if hasFile {
			fix = "write the secret into the file, and let this program read it"
		}
		m.fail(field, fix, "%s", telemetry.ScrubError(err))
	}
	return src
}

// signing reads a secret that signs webhooks: what stands after whsec_ must be base64 (Standard Webhooks).
func (m *mapping) signing(name string) *telemetry.SecretSource {
	src := m.secret(name)
	if m.d.o.SkipSecrets {
		return src
	}
	s, _ := src.Get() // one that cannot be read has been complained about
	if err := CheckSecret(s, true); err != nil {
		field := name + "_env"
		if !m.has(field) {
			field = name + "_file"
		}
		m.fail(field, "use the secret as the receiver gives it", "%s", err.Error())
	}
	return src
}

// CheckSecret says what keeps a secret from being sent in a header or, where it signs, from being a key. The error does
// not tell it.
func CheckSecret(s telemetry.Secret, signs bool) error {
	if !utf8.ValidString(s.Reveal()) || strings.ContainsFunc(s.Reveal(), func(r rune) bool { return r < 0x20 || r == 0x7f }) {
		return errors.New("the secret holds a line break or another control character")
	}
	text, coded := strings.CutPrefix(s.Reveal(), "whsec_")
	if !coded || !signs {
		return nil
	}
	if b, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(text, "=")); err != nil || len(b) == 0 {
		return errors.New("the secret begins with whsec_, but what follows is not base64")
	}
	return nil
}

func (d *decoder) timeouts(v *value, path string, base Timeouts) Timeouts {
	if v == nil {
		return base
	}
	m := d.mapping(v, path)
	t := m.timeoutFields()
	d.saneTimeouts(m, t, base)
	return t.over(base)
}

func (m *mapping) timeoutFields() (t Timeouts) {
	m.dur("connect", &t.Connect)
	m.dur("first_byte", &t.FirstByte)
	m.dur("idle", &t.Idle)
	m.dur("total", &t.Total)
	m.done()
	return t
}

// saneTimeouts refuses layers that contradict each other.
func (d *decoder) saneTimeouts(m *mapping, t, base Timeouts) {
	all := t.over(base)
	longer := func(name string, a time.Duration, than string, b time.Duration) {
		if a <= b {
			return
		}
		at := name
		if !m.has(name) {
			at = than
		}
		m.fail(at, "shorten "+name+" or raise "+than, "%s %s is longer than %s %s", name, short(a), than, short(b))
	}
	longer("first_byte", all.FirstByte, "total", all.Total)
	longer("idle", all.Idle, "total", all.Total)
	longer("connect", all.Connect, "first_byte", all.FirstByte)
}

func (t Timeouts) value() *value {
	v := object()
	for _, f := range []struct {
		name string
		d    time.Duration
	}{{"connect", t.Connect}, {"first_byte", t.FirstByte}, {"idle", t.Idle}, {"total", t.Total}} {
		if f.d > 0 {
			v.set(f.name, str(f.d.String()))
		}
	}
	return v
}

// River's grammar of queue names, of which p-<provider> must be one.
var queueName = regexp.MustCompile(`^[a-z0-9]+([_-][a-z0-9]+)*$`)

func providerName(s string) string {
	if len(s) <= 60 && queueName.MatchString(s) {
		return ""
	}
	return "use up to 60 of a-z, 0-9, with single - or _ between them"
}

func plainName(s string) string { return providerName(s) }

var kindPattern = regexp.MustCompile(`^[a-z0-9]+([._-][a-z0-9]+)*$`)

func kindName(s string) string {
	if len(s) <= 100 && kindPattern.MatchString(s) {
		return ""
	}
	return "use up to 100 of a-z, 0-9, with single . - or _ between them"
}

func isToken(s string) bool {
	if s == "" || len(s) > 100 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0) {
			return false
		}
	}
	return true
}
