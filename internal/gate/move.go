package gate

import (
	"bytes"
	"slices"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/store"
)

// fold moves a row by all that one transaction saw of it. Where something went
// well, nothing that only counts in a row has happened.
func fold(g *store.Gate, all []Observation, now time.Time, rnd func() float64) {
	well := slices.ContainsFunc(all, func(o Observation) bool { return o.What == Healthy })
	if well {
		healthy(g, now)
	}
	for _, o := range all {
		if overtaken(g, o) {
			continue
		}
		switch o.What {
		case Refused:
			refused(g, o, now, rnd)
		case Unauthorized, Quota:
			hold(g, o)
		case Suspect:
			if !well {
				suspect(g, o)
			}
		case Failed:
			if !well {
				failed(g, o, now)
			}
		case Gone:
			disable(g, o)
		}
	}
}

// overtaken says that a call speaks of a credential as it was before the gate
// was opened: of many calls that are turned away at once the last ones come back
// when an operator has released the gate already.
func overtaken(g *store.Gate, o Observation) bool {
	switch o.What {
	case Unauthorized, Quota, Suspect:
		return g.State == api.GateOpen && g.Epoch > 0 && !o.Begun.IsZero() && o.Begun.Before(g.Since)
	}
	return false
}

func closed(g *store.Gate) bool { return g.State == api.GateHeld || g.State == api.GateDisabled }

func to(g *store.Gate, s api.GateState, until *time.Time, code, reason string) {
	if g.State != s || s != api.GateCooling {
		g.Epoch++
	}
	g.State, g.Until, g.Code, g.Reason, g.Actor = s, until, code, reason, ""
}

// healthy forgets what counted in a row. What a call that was begun before a
// gate was held brings says nothing of the time after.
func healthy(g *store.Gate, now time.Time) {
	if closed(g) {
		return
	}
	g.Failures, g.Suspects, g.NeedsAttention = 0, nil, false
	if g.State == api.GateCooling && !g.Until.After(now) {
		to(g, api.GateOpen, nil, "", "")
	}
}

// refused cools until the time that was named, at most coolMost; a gate that
// closes again soon after it opened, without a time, cools twice as long.
func refused(g *store.Gate, o Observation, now time.Time, rnd func() float64) {
	if closed(g) {
		return
	}
	wait := min(o.RetryAfter, coolMost)
	if wait <= 0 {
		wait = coolBase
		if g.State == api.GateCooling && g.Until.After(now) {
			wait = 0 // one of many that were under way: the pause is there already
		} else if g.State == api.GateCooling {
			if last := g.Until.Sub(g.Since); now.Sub(*g.Until) < last {
				wait = min(2*last, coolCap)
			}
		}
		wait += time.Duration(rnd() * float64(wait) / 4)
	}
	until := now.Add(wait)
	switch {
	case g.State == api.GateCooling && g.Until.After(now):
		if until.After(*g.Until) {
			g.Until = &until
		}
	default:
		g.Epoch++ // another pause, even if nobody wrote down that the last one was over
		g.State, g.Until, g.Code, g.Reason, g.Actor = api.GateCooling, &until, or(o.Code, CodeRefused), o.Reason, ""
	}
}

func hold(g *store.Gate, o Observation) {
	if o.Credential != nil && !known(g.Refused, o.Credential) {
		g.Refused = append(g.Refused, o.Credential)
		g.Refused = g.Refused[max(0, len(g.Refused)-keepFew):]
	}
	if closed(g) {
		return
	}
	code := CodeUnauthorized
	if o.What == Quota {
		code = CodeQuota
	}
	to(g, api.GateHeld, nil, or(o.Code, code), o.Reason)
}

func suspect(g *store.Gate, o Observation) {
	if closed(g) || slices.Contains(g.Suspects, o.Task) {
		return
	}
	if g.Suspects = append(g.Suspects, o.Task); len(g.Suspects) < SuspectsNeeded {
		return
	}
	o.Code = CodeUnauthorized
	hold(g, o)
}

// failed counts, and opens the breaker: for longer with each failure after it
// let something through again.
func failed(g *store.Gate, o Observation, now time.Time) {
	if closed(g) || g.State == api.GateCooling && g.Until.After(now) {
		return
	}
	if g.Failures++; g.Failures < BreakerAfter {
		return
	}
	g.NeedsAttention = true
	until := now.Add(min(breakBase<<min(g.Failures-BreakerAfter, 10), breakCap))
	g.Epoch++
	g.State, g.Until, g.Code, g.Reason, g.Actor = api.GateCooling, &until, CodeBreaker, o.Reason, ""
}

func disable(g *store.Gate, o Observation) {
	if g.State == api.GateDisabled {
		return
	}
	to(g, api.GateDisabled, nil, or(o.Code, CodeGone), o.Reason)
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func known(all [][]byte, one []byte) bool {
	return slices.ContainsFunc(all, func(b []byte) bool { return bytes.Equal(b, one) })
}
