package wire

import (
	"context"
	"sync"
	"time"

	"github.com/onefold-dev/onefold/internal/provider"
)

// expired is the cause with which a layer of the timeouts ends a call.
type expired struct{ layer layer }

func (e *expired) Error() string { return "the " + string(e.layer) + " timeout ran out" }

type layer string

const (
	layerConnect   layer = "connect"
	layerFirstByte layer = "first-byte"
	layerIdle      layer = "idle"
	layerTotal     layer = "total"
	layerTail      layer = "tail" // waiting for what follows a terminal signal
)

// meter follows one call: its phase, its times, and the one deadline that counts now. The timer is not reset at each
// token: when it fires early it sets itself again, so progress costs one lock.
type meter struct {
	cancel  context.CancelCauseFunc
	limits  provider.Timeouts
	onPhase func(provider.Phase)

	mu       sync.Mutex
	phase    provider.Phase
	start    time.Time // of the call
	sent     time.Time // of the real send
	times    provider.Phases
	layer    layer     // the layer that deadline belongs to
	deadline time.Time // zero: none
	total    time.Time // zero: none
	timer    *time.Timer
	ended    bool
}

func newMeter(cancel context.CancelCauseFunc, limits provider.Timeouts, onPhase func(provider.Phase)) *meter {
	m := &meter{cancel: cancel, limits: limits, onPhase: onPhase, start: time.Now()}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wait(layerConnect, limits.Connect)
	return m
}

// advance moves the phase forward; hooks that come late (a dial that another connection overtook) change nothing.
func (m *meter) advance(p provider.Phase) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended || m.phase.AtLeast(p) {
		return
	}
	m.phase = p
	switch p {
	case provider.PhaseWriting:
		m.sent = time.Now()
		if m.limits.Total > 0 {
			m.total = m.sent.Add(m.limits.Total)
		}
		m.wait(layerFirstByte, m.limits.FirstByte)
	case provider.PhaseFirstToken:
		m.times.FirstByte = time.Since(m.sent)
		m.wait(layerIdle, m.limits.Idle)
	}
	if m.onPhase != nil {
		m.onPhase(p)
	}
}

// connected notes how long a fresh connection took.
func (m *meter) connected(reused bool) {
	m.mu.Lock()
	if !reused {
		m.times.Connect = time.Since(m.start)
	}
	m.mu.Unlock()
	m.advance(provider.PhaseWriting)
}

// progress moves the idle deadline. What comes after a terminal signal (of one choice of several) makes the call wait
// for tokens again.
func (m *meter) progress() {
	m.advance(provider.PhaseFirstToken)
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.layer == layerTail:
		m.wait(layerIdle, m.limits.Idle)
	case m.limits.Idle > 0:
		m.deadline = time.Now().Add(m.limits.Idle)
	}
}

// shorten waits at most d from now, in the given layer, unless the present deadline is nearer.
func (m *meter) shorten(l layer, d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.deadline.IsZero() && time.Until(m.deadline) < d {
		d = time.Until(m.deadline)
	}
	m.wait(l, d)
}

// wait sets the present layer; the caller holds mu.
func (m *meter) wait(l layer, d time.Duration) {
	m.layer, m.deadline = l, time.Time{}
	if d > 0 || l == layerTail {
		m.deadline = time.Now().Add(d)
	}
	m.arm()
}

// arm sets the timer to the nearer of the two deadlines; the caller holds mu.
func (m *meter) arm() {
	if m.ended {
		return
	}
	next := m.deadline
	if next.IsZero() || (!m.total.IsZero() && m.total.Before(next)) {
		next = m.total
	}
	switch {
	case next.IsZero() && m.timer != nil:
		m.timer.Stop()
	case next.IsZero():
	case m.timer == nil:
		m.timer = time.AfterFunc(time.Until(next), m.fire)
	default:
		m.timer.Reset(time.Until(next))
	}
}

func (m *meter) fire() {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	switch {
	case m.ended:
	case !m.total.IsZero() && !now.Before(m.total):
		m.cancel(&expired{layerTotal})
	case !m.deadline.IsZero() && !now.Before(m.deadline):
		m.cancel(&expired{m.layer})
	default:
		m.arm()
	}
}

// end stops the timer and fixes phase and times.
func (m *meter) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		return
	}
	m.ended = true
	if m.timer != nil {
		m.timer.Stop()
	}
	if !m.sent.IsZero() {
		m.times.Total = time.Since(m.sent)
	}
}

// seen returns the phase and the times so far.
func (m *meter) seen() (provider.Phase, provider.Phases) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.times
	if !m.ended && !m.sent.IsZero() {
		t.Total = time.Since(m.sent)
	}
	return m.phase, t
}
