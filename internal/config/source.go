package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/onefold-dev/onefold/internal/telemetry"
)

// Scheme says how a source signs what it sends.
type Scheme string

// The schemes of sources.
const (
	SchemeStandard Scheme = "standard-webhooks" // Standard Webhooks 1.0: webhook-id, webhook-timestamp, webhook-signature
	SchemeStripe   Scheme = "stripe"            // Stripe-Signature: t=..., v1=...
	SchemeGitHub   Scheme = "github"            // X-Hub-Signature-256, X-GitHub-Delivery
	SchemeHMAC     Scheme = "hmac"              // as the source's hmac section says
)

// Timed reports whether the scheme signs the time of sending, so that an old delivery can be told.
func (s *Source) Timed() bool {
	return s.Scheme == SchemeStandard || s.Scheme == SchemeStripe || s.HMAC.TimestampHeader != ""
}

// Source is a sender of inbound webhooks: how it proves who it is, and what its events become.
type Source struct {
	Name, Tenant, Kind string
	Scheme             Scheme
	// HMAC is set for SchemeHMAC only.
	HMAC HMAC
	// Secrets are those that may sign, in the order of the file.
	Secrets []SourceSecret
	// Tolerance is how far the time of sending may lie from now, both ways. Default 5m.
	Tolerance time.Duration
	// DocumentKey makes the key from the event's own content: the hash of what Input gives.
	DocumentKey bool
	// DuplicateStatus is answered to a delivery that had come before. Default 200.
	DuplicateStatus int
	// Rate bounds the deliveries a second that one process takes, Concurrency those it works on at a time.
	Rate, Concurrency int
	// MaxBody bounds a delivery's body, in bytes. Default 1 MiB.
	MaxBody int
	// RotateEvery is the age at which the newest secret should be replaced. Default 90 days.
	RotateEvery time.Duration

	key      *leaf // nil: the scheme's own id, or DocumentKey
	input    *tree // nil: the event as it came
	occurred *leaf
	path     string
}

// SourceSecret is one secret of a source and when it holds.
type SourceSecret struct {
	// Name tells it from the others, in logs and metrics: the place it is read from.
	Name   string
	Secret *telemetry.SecretSource
	// From and Until bound its validity; a zero time is no bound.
	From, Until time.Time
}

// Live reports whether the secret may sign at now.
func (s SourceSecret) Live(now time.Time) bool {
	return (s.From.IsZero() || !now.Before(s.From)) && (s.Until.IsZero() || now.Before(s.Until))
}

// HMAC says where an hmac source puts its signature and what it signs.
type HMAC struct {
	// Header holds the signature, after Prefix.
	Header, Prefix string
	// Algorithm is sha256, sha512 or sha1; Encoding hex or base64.
	Algorithm, Encoding string
	// Signed is what is signed: {body}, {timestamp} and {id} in it are replaced. Default {body}.
	Signed string
	// TimestampHeader holds seconds since 1970, IDHeader the delivery's id. Either may be "".
	TimestampHeader, IDHeader string
}

// The defaults and bounds of sources.
const (
	defaultTolerance   = 5 * time.Minute // Standard Webhooks
	maxTolerance       = 72 * time.Hour
	defaultRotation    = 90 * 24 * time.Hour
	defaultRate        = 50
	defaultConcurrency = 16
	defaultMaxBody     = 1 << 20
	maxBody            = 8 << 20
	// MinSourceSecret is the fewest bytes of a secret that may verify: 128 bits.
	MinSourceSecret = 16
)

func (d *decoder) source(name string, v *value, path string) *Source {
	m := d.mapping(v, path)
	s := &Source{
		Name: name, path: path, Tolerance: defaultTolerance, DuplicateStatus: 200, Rate: defaultRate, Concurrency: defaultConcurrency,
		MaxBody: defaultMaxBody, RotateEvery: defaultRotation,
	}
	enum(m, "scheme", &s.Scheme, SchemeStandard, SchemeStripe, SchemeGitHub, SchemeHMAC)
	if !m.has("scheme") && v.t == tObject {
		m.fail("scheme", "add scheme: standard-webhooks | stripe | github | hmac", "there is no scheme")
	}
	for field, dst := range map[string]*string{"tenant": &s.Tenant, "kind": &s.Kind} {
		if !m.str(field, dst) && !m.has(field) && v.t == tObject {
			m.fail(field, "add "+field+": NAME", "there is no %s", field)
		}
	}
	if wrong := tenantName(s.Tenant); s.Tenant != "" && wrong != "" {
		m.fail("tenant", wrong, "%q cannot be the name of a tenant", clip(s.Tenant))
	}
	s.HMAC = d.hmac(m, s.Scheme)
	s.Secrets = d.sourceSecrets(m, s.Scheme)
	if m.dur("tolerance", &s.Tolerance); m.has("tolerance") && !s.Timed() && s.Scheme != "" {
		m.fail("tolerance", "remove it", "this source signs no time, so the age of a delivery cannot be told")
	}
	if s.Tolerance > maxTolerance {
		m.fail("tolerance", "shorten it", "%s is longer than %s", short(s.Tolerance), short(maxTolerance))
	}
	m.integer("rate", &s.Rate, 1, 100_000)
	m.integer("concurrency", &s.Concurrency, 1, 10_000)
	m.integer("max_body", &s.MaxBody, 1, maxBody)
	m.dur("rotate_every", &s.RotateEvery)
	s.status(m)
	d.sourceContent(m, s, v.t == tObject)
	m.done()
	return s
}

// status reads duplicate_status. Senders take any 2xx for delivered; 409 and 410 are for platforms that go on sending
// until they see one.
func (s *Source) status(m *mapping) {
	m.integer("duplicate_status", &s.DuplicateStatus, 200, 410)
	if st := s.DuplicateStatus; st > 299 && st != 409 && st != 410 {
		m.fail("duplicate_status", "write 200 to 299, 409 or 410", "%d would tell the sender something else than that it is done", st)
	}
}

func (d *decoder) hmac(m *mapping, scheme Scheme) HMAC {
	v := m.take("hmac", tObject)
	h := HMAC{Algorithm: "sha256", Encoding: "hex", Signed: "{body}"}
	switch {
	case v == nil:
		if scheme == SchemeHMAC && !m.has("hmac") {
			m.fail("hmac", "add hmac: {header: X-Signature}", "an hmac source must say where its signature stands")
		}
		return HMAC{}
	case scheme != SchemeHMAC:
		m.fail("hmac", "remove it, or write scheme: hmac", "only the scheme hmac takes it")
	}
	s := d.mapping(v, join(m.path, "hmac"))
	for name, dst := range map[string]*string{"header": &h.Header, "timestamp_header": &h.TimestampHeader, "id_header": &h.IDHeader} {
		if s.str(name, dst) && !isToken(*dst) {
			s.fail(name, "write a header name, as in X-Signature", "%q is no header name", clip(*dst))
		}
	}
	if !s.has("header") {
		s.fail("header", "add header: X-Signature", "there is no header")
	}
	s.str("prefix", &h.Prefix)
	enum(s, "algorithm", &h.Algorithm, "sha256", "sha512", "sha1")
	enum(s, "encoding", &h.Encoding, "hex", "base64")
	s.str("signed", &h.Signed)
	for part, header := range map[string]string{"{timestamp}": h.TimestampHeader, "{id}": h.IDHeader} {
		if in := strings.Contains(h.Signed, part); in && header == "" {
			name := strings.Trim(part, "{}") + "_header"
			s.fail("signed", "add "+name, "%s is signed, but %s does not say where it stands", part, name)
		}
	}
	switch {
	case !strings.Contains(h.Signed, "{body}"):
		s.fail("signed", `write signed: "{body}" or "{timestamp}.{body}"`, "the body is not signed, so anybody could change it")
	case h.TimestampHeader != "" && !strings.Contains(h.Signed, "{timestamp}"):
		s.fail("timestamp_header", "remove it, or sign it: signed: \"{timestamp}.{body}\"", "the time is not signed, so anybody could change it")
	}
	s.done()
	return h
}

// sourceSecrets reads secret_env/secret_file, previous_secret_env/..., or the list secrets.
func (d *decoder) sourceSecrets(m *mapping, scheme Scheme) []SourceSecret {
	var out []SourceSecret
	for _, name := range []string{"secret", "previous_secret"} {
		if src := m.secretUnless(d.o.SkipSources, name); src != nil {
			out = append(out, SourceSecret{Name: src.Place(), Secret: src})
			d.checkSourceSecret(m, name, src, scheme)
		}
	}
	list := m.take("secrets", tList)
	if list != nil && len(out) > 0 {
		m.fail("secrets", "keep one of the two ways", "both secrets and secret_env or secret_file are given")
		return out
	}
	if list != nil {
		for i, item := range list.items {
			out = append(out, d.sourceSecret(item, fmt.Sprintf("%s[%d]", join(m.path, "secrets"), i), scheme))
		}
	}
	if len(out) == 0 && len(m.byKey) > 0 && !m.has("secret_env") && !m.has("secret_file") {
		m.fail("secret_env", "add secret_env: NAME", "there is no secret, so nothing could be verified")
	}
	return out
}

func (d *decoder) sourceSecret(v *value, path string, scheme Scheme) SourceSecret {
	m := d.mapping(v, path)
	s := SourceSecret{Secret: m.secretUnless(d.o.SkipSources, "secret")}
	if s.Secret == nil && !m.has("secret_env") && !m.has("secret_file") {
		m.fail("secret_env", "add secret_env: NAME", "there is no secret")
	}
	s.Name = s.Secret.Place()
	d.checkSourceSecret(m, "secret", s.Secret, scheme)
	m.moment("from", &s.From)
	m.moment("until", &s.Until)
	if !s.From.IsZero() && !s.Until.IsZero() && !s.From.Before(s.Until) {
		m.fail("until", "write a time after from", "it ends before it begins")
	}
	m.done()
	return s
}

// checkSourceSecret refuses secrets that anybody could guess.
func (d *decoder) checkSourceSecret(m *mapping, name string, src *telemetry.SecretSource, scheme Scheme) {
	if src == nil || d.o.SkipSources {
		return
	}
	s, err := src.Get()
	if err != nil {
		return // complained about where it was read
	}
	field := name + "_env"
	if !m.has(field) {
		field = name + "_file"
	}
	key, err := SourceKey(scheme, s)
	switch {
	case err != nil:
		m.fail(field, "use the secret as the sender shows it", "the secret %s", err)
	case len(key) < MinSourceSecret:
		m.fail(field, fmt.Sprintf("use one of at least %d bytes", MinSourceSecret), "the secret has %d bytes, which can be guessed", len(key))
	}
}

func (m *mapping) moment(name string, dst *time.Time) {
	v := m.take(name, tString)
	if v == nil {
		return
	}
	t, err := time.Parse(time.RFC3339, v.s)
	if err != nil {
		m.fail(name, `write a time with its zone: "2026-11-01T00:00:00Z"`, "%q is not a time", clip(v.s))
		return
	}
	*dst = t
}

// tenantName repeats the rule of the tenants table.
func tenantName(s string) string {
	ok := s != "" && len(s) <= 63
	for i := range len(s) {
		c := s[i]
		word := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		ok = ok && (word || i > 0 && strings.IndexByte("_.-", c) >= 0)
	}
	if ok {
		return ""
	}
	return "use up to 63 of a-z, 0-9, _ . and -, beginning with a letter or digit"
}

// sourceReferences checks what a source names, and that what could be replayed is still known.
func (d *decoder) sourceReferences(s *Source, c *Config, root *mapping) {
	k := c.Kinds[s.Kind]
	if k == nil {
		given := root.byKey["kinds"] != nil && hasField(root.byKey["kinds"].v, s.Kind)
		if s.Kind != "" && !given {
			d.add(d.pos[s.path+".kind"], s.path+".kind", fmt.Sprintf("there is no kind %q", clip(s.Kind)), suggest(s.Kind, names(c.Kinds), "add it under kinds:"))
		}
		return
	}
	if keep := c.RetentionOf(k); s.Timed() && keep <= 2*s.Tolerance {
		d.add(d.pos[s.path], s.path+".tolerance", fmt.Sprintf("a delivery counts as fresh for %s, but kind %s forgets its keys after %s: one that was captured could be played again", short(2*s.Tolerance), k.Name, short(keep)),
			"shorten tolerance, or keep the tasks longer")
	}
	if k.Dedupe.Mode == DedupeWindow && s.occurred == nil {
		d.add(d.pos[s.path], s.path+".occurred_at", "kind "+k.Name+" dedupes by a window of the event's own time", `add occurred_at: "{{.created}}"`)
	}
	if k.Dedupe.Mode == DedupeNone {
		d.add(d.pos[s.path], s.path+".kind", "kind "+k.Name+" dedupes nothing, and senders deliver more than once", "use a kind with dedupe: key")
	}
}

// sortedSources gives problems in a fixed order.
func sortedSources(c *Config) []*Source {
	out := make([]*Source, 0, len(c.Sources))
	for _, name := range slices.Sorted(maps.Keys(c.Sources)) {
		out = append(out, c.Sources[name])
	}
	return out
}
