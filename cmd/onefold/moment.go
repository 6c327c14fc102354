package main

import (
	"fmt"
	"time"
)

// moment is a time on the command line: RFC 3339, or so much from or before
// now, as the flag says.
type moment struct {
	at    time.Time
	after time.Duration
	set   bool
}

// UnmarshalText reads s; kong calls it.
func (m *moment) UnmarshalText(s []byte) error {
	m.set = true
	var err error
	if m.after, err = time.ParseDuration(string(s)); err == nil && m.after >= 0 {
		return nil
	}
	if m.at, err = time.Parse(time.RFC3339, string(s)); err != nil {
		return fmt.Errorf("%q is neither a time such as 2026-03-01T12:00:00Z nor a duration such as 90s or 2h", s)
	}
	return nil
}

// ahead is the time meant, a duration counted from now; nil when none is given.
// Durations go by this machine's clock.
func (m *moment) ahead(now time.Time) *time.Time { return m.from(now.Add(m.after)) }

// ago is the time meant, a duration counted back from now.
func (m *moment) ago(now time.Time) *time.Time { return m.from(now.Add(-m.after)) }

func (m *moment) from(relative time.Time) *time.Time {
	if !m.set {
		return nil
	}
	at := m.at
	if at.IsZero() {
		at = relative
	}
	at = at.UTC()
	return &at
}
