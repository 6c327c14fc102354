package config

import (
	"fmt"
	"strings"
	"time"
)

// The schedules that the longest retry span is made of.
var (
	// EffectSchedule is how long an effect waits before each delivery, ± EffectJitter.
	EffectSchedule = []time.Duration{
		0, 5 * time.Second, time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour, 10 * time.Hour,
	}
	// NotSentWaits is how long a task waits after each try that sent nothing, ± NotSentJitter.
	NotSentWaits = []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second}
)

const (
	// EffectJitter and NotSentJitter are in hundredths.
	EffectJitter  = 20
	NotSentJitter = 10
	// DeliveryLimit bounds one delivery.
	DeliveryLimit = 28 * time.Second
	// BackoffBase doubles with each attempt up to BackoffCap.
	BackoffBase = time.Second
	BackoffCap  = 60 * time.Second
)

func (d *decoder) retention(v *value) Retention {
	r := Retention{Tasks: DefaultRetention, Tombstones: DefaultTombstones, ClientSchedule: 24 * time.Hour, Compensation: 24 * time.Hour, ManualReplay: 72 * time.Hour}
	m := d.mapping(v, "retention")
	m.dur("tasks", &r.Tasks)
	m.dur("payload", &r.Payload)
	m.dur("tombstones", &r.Tombstones)
	m.durFrom(0, "client_schedule", &r.ClientSchedule) // 0s: nobody does
	m.durFrom(0, "compensation", &r.Compensation)
	m.durFrom(0, "manual_replay", &r.ManualReplay)
	m.done()
	if r.Payload > r.Tasks {
		m.fail("payload", "shorten it or raise tasks", "payload %s is longer than tasks %s", short(r.Payload), short(r.Tasks))
	}
	if r.Payload == 0 {
		r.Payload = r.Tasks
	}
	return r
}

// Part is one term of the longest retry span.
type Part struct {
	Name string
	Span time.Duration
}

// Span returns the parts of the longest time from a task's first try to the last moment anyone repeats something of
// it, and their sum. Further runs are no part of their own: they begin when a caller or a person tries again, and those
// are client_schedule and manual_replay.
func (c *Config) Span(k *Kind) (parts []Part, sum time.Duration) {
	t := c.TimeoutsOf(k)
	n := time.Duration(k.MaxAttempts)
	var waits, backoff time.Duration
	for _, w := range NotSentWaits {
		waits += w + w*NotSentJitter/100 + t.Connect
	}
	wait := BackoffBase
	for range k.MaxAttempts - 1 {
		backoff += wait
		wait = min(2*wait, BackoffCap)
	}
	parts = []Part{
		{"client_schedule", c.Retention.ClientSchedule},
		{fmt.Sprintf("%d attempts of connect and total timeout", k.MaxAttempts), n * (t.Connect + t.Total)},
		{"backoff between them", backoff},
		{"waits while nothing can be sent", n * waits},
	}
	if k.delivers() {
		var effects time.Duration
		for _, w := range EffectSchedule {
			effects += w + w*EffectJitter/100 + DeliveryLimit
		}
		parts = append(parts, Part{"effect schedule", effects})
	}
	parts = append(parts, Part{"compensation", c.Retention.Compensation}, Part{"manual_replay", c.Retention.ManualReplay})
	for _, p := range parts {
		sum += p.Span
	}
	return parts, sum
}

// delivers reports whether the kind has effects that leave through the outbox.
func (k *Kind) delivers() bool {
	for _, e := range k.Effects {
		if e.Type != "sql" && e.Type != "task" {
			return true
		}
	}
	return false
}

// checkSpans refuses a retention of less than twice the longest retry span: a retry that comes after its key was
// forgotten would be a second task.
func (d *decoder) checkSpans(c *Config) {
	for _, name := range names(c.Kinds) {
		k := c.Kinds[name]
		parts, sum := c.Span(k)
		keep := c.RetentionOf(k)
		if keep >= 2*sum {
			continue
		}
		path := "retention.tasks"
		if k.Retention > 0 {
			path = "kinds." + name + ".retention"
		}
		pos := d.pos[path]
		if pos == (Pos{}) {
			pos = d.pos["kinds."+name]
		}
		terms := make([]string, len(parts))
		for i, p := range parts {
			terms[i] = p.Name + " " + short(p.Span)
		}
		d.add(pos, path, fmt.Sprintf("%s is too short for kind %s: retries may go on for %s (%s)", short(keep), name, short(sum), strings.Join(terms, " + ")),
			fmt.Sprintf("keep tasks at least twice as long, %s, or shorten a part", short((2*sum+time.Hour-1).Truncate(time.Hour))))
	}
}

// short writes a duration without the zeros at its end: 720h, 1h30m.
func short(d time.Duration) string {
	s := d.Round(time.Second).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
