package config

import (
	"strings"
	"time"

	"github.com/onefold-dev/onefold/internal/telemetry"
)

// Opts says what the calling program can do and where it reads its environment. The zero value admits every provider
// and effect type of the design and sees an empty environment.
type Opts struct {
	// ProviderTypes and EffectTypes are what this program has built in. A configuration that uses another type is
	// refused. Nil admits all.
	ProviderTypes, EffectTypes map[string]bool
	// Getenv reads an environment variable. Nil means that none is set.
	Getenv func(string) string
	// SkipSecrets leaves the secrets of providers and destinations unread and unchecked, for programs that send nothing
	// (the API) and for checking a file away from where it runs.
	SkipSecrets bool
	// SkipSources does the same for the secrets of sources, for programs that take no webhooks (the worker).
	SkipSources bool
}

func (o Opts) getenv(name string) string {
	if o.Getenv == nil {
		return ""
	}
	return o.Getenv(name)
}

// Config is a checked onefold.yaml. It is not changed after loading.
type Config struct {
	File         string
	Retention    Retention
	Providers    map[string]*Provider
	Destinations map[string]*Destination
	Kinds        map[string]*Kind
	Sources      map[string]*Source

	pos map[string]Pos
	// at makes errors with a line of the file. A function, because fmt would print the file out of a struct.
	at func(pos Pos, path, message, fix string) *Error
}

// Kind returns the kind of that name.
func (c *Config) Kind(name string) (*Kind, bool) {
	k, ok := c.Kinds[name]
	return k, ok
}

// Pos returns where the field at path stands in the file, as in "kinds.invoice.extract.effects[0].statement"; the zero
// Pos when it does not stand there.
func (c *Config) Pos(path string) Pos { return c.pos[path] }

// At makes an error about the field at path, with file, line and column, for checks made after loading.
func (c *Config) At(path, message, fix string) *Error {
	return c.at(c.pos[path], path, message, fix)
}

// Retention says how long things are kept, and how long others may go on retrying: the first must be at least twice
// the second, so that no retry meets a key that was forgotten.
type Retention struct {
	// Tasks is how long a task, its key and its result are kept after it is final. Default 720h.
	Tasks time.Duration
	// Payload is how long input, result and replies are kept, at most Tasks. Default Tasks.
	Payload time.Duration
	// Tombstones is how long id, outcome and the result's hash are kept after the task was purged. Default 2160h.
	Tombstones time.Duration
	// ClientSchedule is the time from a caller's first try to its last. Default 24h.
	ClientSchedule time.Duration
	// Compensation is how long after the fact a scan may submit again what seems missing. Default 24h.
	Compensation time.Duration
	// ManualReplay is how long after the fact a person may retry or redeliver. Default 72h.
	ManualReplay time.Duration
}

// Timeouts are the layers of one upstream call. In a kind, zero means that the provider's applies.
type Timeouts struct {
	// Connect covers name resolution, dial and TLS. Default 5s.
	Connect time.Duration
	// FirstByte covers send to first token (streamed, default 120s) or first byte (not streamed, default 10m).
	FirstByte time.Duration
	// Idle is the longest silence between tokens. Default 60s.
	Idle time.Duration
	// Total covers the send to the end of the reply. Default 10m.
	Total time.Duration
}

// Provider is a model upstream, or an HTTP service that does the work.
type Provider struct {
	Name string
	// Type is openai, anthropic, httpcall or fake.
	Type string
	// API is what an openai provider speaks: chat (completions) or responses.
	API string
	// Background has an openai provider make responses in the background: their id is stored and polled after a crash.
	Background bool
	// Signing signs the requests to an httpcall service, PreviousSigning too while the secret is rotated. Nil: unsigned.
	Signing, PreviousSigning *telemetry.SecretSource
	// AllowPrivate lets an httpcall service have a loopback or private address.
	AllowPrivate bool
	// Version is the anthropic-version that is asked for; "" is the one this build knows.
	Version string
	// BaseURL is where requests go. It may carry a secret in its query and prints without it.
	BaseURL URL
	// APIKey is nil when the provider needs none.
	APIKey *telemetry.SecretSource
	// Timeouts are complete.
	Timeouts Timeouts
	// Stream asks the upstream to stream, so that the first token and stalls are seen. Default true, false for httpcall.
	Stream bool
	// Concurrency bounds the calls in flight over all workers; 0 = no bound.
	Concurrency int
	// RequestsPerMinute and TokensPerMinute bound how fast calls begin, over all workers; 0 = no bound.
	RequestsPerMinute, TokensPerMinute int
	// Status is where an httpcall service tells whether it did a task; "" = it cannot be asked.
	Status string
	// Prices by model.
	Prices map[string]Price

	hash string
}

// Hash identifies what may change the provider's timing: type, address, streaming and timeouts. Measured percentiles
// start anew when it changes.
func (p *Provider) Hash() string { return p.hash }

// Destination is where effects go.
type Destination struct {
	Name string
	// URL is the receiver. It may carry a secret in its query and prints without it.
	URL URL
	// Secret signs deliveries; Previous signs them too while a secret is being rotated. Nil = none.
	Secret, Previous *telemetry.SecretSource
	// Repeat says whether a delivery of unknown outcome may be sent again unasked. Default unsafe.
	Repeat Repeat
	// AllowPrivate lets the URL lead to loopback and private addresses.
	AllowPrivate bool
	// Tenants may name this destination in a submit. Empty = none may; a kind's own effects always can.
	Tenants []string
	// Concurrency bounds the deliveries in flight over all workers; 0 = no bound.
	Concurrency int
	// Rate is the least time between two deliveries over all workers, in the mean; 0 = no bound.
	Rate time.Duration
	// Check asks whether a delivery of unknown outcome arrived. Nil = it cannot be asked.
	Check *Check
	// Auth is the credential: what the header AuthHeader carries, or Username's password. Nil = none.
	Auth *telemetry.SecretSource
	// AuthHeader is the header that carries Auth. Default Authorization, where a value of one word is sent as Bearer.
	AuthHeader string
	// Username, From and Plaintext are a mail server's: who logs in, who the mails are from, and that they go without TLS.
	Username, From string
	Plaintext      bool
	// IdempotencyHeader is the header that carries the effect id to an http destination. Default Idempotency-Key.
	IdempotencyHeader string
}

// Mail says that the destination is a mail server.
func (d *Destination) Mail() bool { return strings.HasPrefix(d.URL.Reveal(), "smtp") }

// Takes says whether effects of that type can go there.
func (d *Destination) Takes(effectType string) bool { return d.Mail() == (effectType == "email") }

// Allows reports whether a submit of that tenant may name the destination.
func (d *Destination) Allows(tenant string) bool {
	for _, t := range d.Tenants {
		if t == tenant || t == "*" {
			return true
		}
	}
	return false
}

// The words a kind's and a destination's fields may hold.
type (
	// Output says what of the provider's reply becomes the task's result.
	Output string
	// OnUnknown says what to do when the outcome of a call is not known.
	OnUnknown string
	// OnCut says what to do with a reply that was cut in the middle.
	OnCut string
	// DedupeMode says how long a key holds.
	DedupeMode string
	// Repeat says whether sending an effect twice does harm.
	Repeat string
)

// See the types above. The first of each group is the default.
const (
	OutputResponse Output = "response" // the whole reply, verbatim
	OutputText     Output = "text"     // the text of the model's message, as a JSON string
	OutputJSON     Output = "json"     // the JSON in the model's message

	UnknownRetry  OnUnknown = "retry"  // call again
	UnknownReview OnUnknown = "review" // stop and let a person or a check decide

	CutRegenerate OnCut = "regenerate" // call again from the start
	CutKeep       OnCut = "keep"       // take what came as the result
	CutReview     OnCut = "review"     // stop and let a person decide

	DedupeKey    DedupeMode = "key"    // while the task is kept
	DedupeOpen   DedupeMode = "open"   // while the task is unfinished
	DedupeWindow DedupeMode = "window" // within one window of the event's own time
	DedupeNone   DedupeMode = "none"   // not at all

	RepeatUnsafe Repeat = "unsafe"
	RepeatSafe   Repeat = "safe"
)

// Dedupe is a kind's dedupe mode; Window only counts with DedupeWindow.
type Dedupe struct {
	Mode   DedupeMode
	Window time.Duration
}

// The defaults of a kind.
const (
	DefaultMaxAttempts = 3
	DefaultMaxRuns     = 3
	DefaultDeadline    = 24 * time.Hour
	DefaultRetention   = 720 * time.Hour
	DefaultTombstones  = 2160 * time.Hour
)

// RetentionOf returns how long tasks of k are kept once final.
func (c *Config) RetentionOf(k *Kind) time.Duration {
	if k.Retention > 0 {
		return k.Retention
	}
	return c.Retention.Tasks
}

// PayloadRetentionOf returns how long inputs, results and replies of k are kept once final.
func (c *Config) PayloadRetentionOf(k *Kind) time.Duration {
	switch {
	case k.PayloadRetention > 0:
		return k.PayloadRetention
	case c.Retention.Payload > 0:
		return min(c.Retention.Payload, c.RetentionOf(k))
	}
	return c.RetentionOf(k)
}

// TimeoutsOf returns the timeouts of a call of k: its own, where it has none the provider's.
func (c *Config) TimeoutsOf(k *Kind) Timeouts {
	if p, ok := c.Providers[k.Provider]; ok {
		return k.Timeouts.over(p.Timeouts)
	}
	return k.Timeouts.over(defaultTimeouts(true))
}

// over fills what t leaves open from base. An inherited layer gives way to a shorter one that t sets around it: who
// writes total: 30s need not repeat it for first_byte.
func (t Timeouts) over(base Timeouts) Timeouts {
	pick := func(own, inherited time.Duration, around ...time.Duration) time.Duration {
		if own > 0 {
			return own
		}
		for _, d := range around {
			if d > 0 {
				inherited = min(inherited, d)
			}
		}
		return inherited
	}
	return Timeouts{
		Connect:   pick(t.Connect, base.Connect, t.FirstByte, t.Total),
		FirstByte: pick(t.FirstByte, base.FirstByte, t.Total),
		Idle:      pick(t.Idle, base.Idle, t.Total),
		Total:     pick(t.Total, base.Total),
	}
}

func defaultTimeouts(stream bool) Timeouts {
	t := Timeouts{Connect: 5 * time.Second, FirstByte: 120 * time.Second, Idle: 60 * time.Second, Total: 10 * time.Minute}
	if !stream {
		t.FirstByte = 10 * time.Minute
	}
	return t
}
