package task

import (
	"math/rand/v2"
	"time"

	"github.com/onefold-dev/onefold/api"
)

// Class is what is known after an attempt went wrong (design: failure classes),
// plus the two ways an attempt can end without its worker: Lost and Released.
type Class string

// The classes.
const (
	NotSent      Class = "not_sent"     // the provider cannot have acted
	Refused      Class = "refused"      // turned away at the gate, try later
	Rejected     Class = "rejected"     // the request itself is at fault
	Unauthorized Class = "unauthorized" // the credential is at fault
	Unclear      Class = "unknown"      // sent, outcome not known
	BadOutput    Class = "bad_output"   // answered, but not with what was asked
	Lost         Class = "lost"         // the worker's lease ran out
	Released     Class = "released"     // the worker stopped on purpose
)

// OnUnknown says what follows when a call's outcome is not known.
type OnUnknown string

// The choices: call again within the attempts, or stop for a person or a check.
const (
	Retry  OnUnknown = "retry"
	Review OnUnknown = "review"
)

// Limits from design section 7 and protocols sections 5 and 6.
const (
	BackoffBase   = time.Second
	BackoffCap    = 60 * time.Second
	BackoffFloor  = 250 * time.Millisecond
	notSentFree   = 5 // in a row; the next ones each use an attempt
	lostLimit     = 3 // in a row; then a person looks
	refusedWait   = 2 * time.Second
	unauthWait    = 60 * time.Second
	notSentJitter = 10 // percent
)

// Policy is what the kind's configuration says of failures.
type Policy struct {
	MaxAttempts int32
	OnUnknown   OnUnknown
}

// Ended is how one attempt ended, with where the task stood.
type Ended struct {
	Class      Class
	Code       string
	Message    string
	RetryAfter time.Duration
	Permanent  bool // with Rejected: the request itself was at fault
	Dispatched bool // false only when it is certain that nothing was sent

	Attempts int32 // counted, this one included
	NotSent  int16
	Released int16
	Lost     int16
	Unclear  bool // an earlier call of this run has no known outcome
	Left     time.Duration
}

// Verdict is the move that follows an attempt without a result.
type Verdict struct {
	To        api.State
	Code      api.Code
	Message   string
	Permanent bool
	After     time.Duration // with To == Pending
	GiveBack  bool          // the attempt does not count
	NotSent   int16
	Released  int16
	Lost      int16
	Unclear   bool
}

// Next says what follows an attempt that brought no result. rnd gives numbers
// in [0,1).
func Next(p Policy, e Ended, rnd func() float64) Verdict {
	v := Verdict{Message: e.Message, Unclear: e.Unclear}
	switch e.Class {
	case Rejected:
		return e.rejected(v)
	case Refused:
		wait := e.RetryAfter
		if wait <= 0 {
			wait = refusedWait + time.Duration(rnd()*float64(refusedWait))
		}
		v.GiveBack = true
		return e.again(v, wait)
	case Unauthorized:
		v.GiveBack = true
		return e.again(v, unauthWait)
	case NotSent:
		return e.notSent(p, v, rnd)
	case BadOutput:
		return e.retry(p, v, api.CodeBadOutput, Backoff(e.Attempts, rnd))
	case Lost:
		return e.lost(p, v, rnd)
	case Released:
		return e.released(p, v)
	default:
		v.Unclear = true
		return e.unknown(p, v, Backoff(e.Attempts, rnd))
	}
}

// Backoff is exponential with full jitter: base 1 s, cap 60 s, floor 250 ms.
func Backoff(attempt int32, rnd func() float64) time.Duration {
	top := BackoffBase << min(max(attempt-1, 0), 10)
	return max(BackoffFloor, time.Duration(rnd()*float64(min(top, BackoffCap))))
}

// Random is the source of jitter outside tests.
func Random() float64 { return rand.Float64() }

func (e Ended) rejected(v Verdict) Verdict {
	v.To, v.Code, v.Permanent = api.Failed, api.CodeRejected, e.Permanent
	if _, listed := api.Codes[api.Code(e.Code)]; listed {
		v.Code = api.Code(e.Code)
	}
	return v
}

func (e Ended) again(v Verdict, wait time.Duration) Verdict {
	v.To, v.After = api.Pending, max(0, min(wait, e.Left))
	return v
}

func (e Ended) notSent(p Policy, v Verdict, rnd func() float64) Verdict {
	v.NotSent = e.NotSent + 1
	v.GiveBack = v.NotSent <= notSentFree
	wait := 2 * time.Second << min(v.NotSent-1, 4)
	wait += time.Duration((rnd()*2 - 1) * float64(wait) * notSentJitter / 100)
	if v.GiveBack {
		return e.again(v, wait)
	}
	return e.retry(p, v, api.CodeNotSent, wait)
}

// retry tries again within the attempts; used up, the task fails by the
// system's fault, or is unknown where an earlier call may have done harm.
func (e Ended) retry(p Policy, v Verdict, code api.Code, wait time.Duration) Verdict {
	if e.Attempts < p.MaxAttempts {
		return e.again(v, wait)
	}
	if v.Unclear && p.OnUnknown == Review {
		v.To, v.Code = api.Unknown, api.CodeOutcomeUnknown
		return v
	}
	v.To, v.Code = api.Failed, code
	return v
}

func (e Ended) unknown(p Policy, v Verdict, wait time.Duration) Verdict {
	if p.OnUnknown == Review {
		v.To, v.Code = api.Unknown, api.CodeOutcomeUnknown
		return v
	}
	return e.retry(p, v, api.CodeAttemptsExhaust, wait)
}

func (e Ended) lost(p Policy, v Verdict, rnd func() float64) Verdict {
	v.Lost = e.Lost + 1
	v.Unclear = v.Unclear || e.Dispatched
	if v.Lost >= lostLimit {
		v.To, v.Code = api.Unknown, api.CodeWorkerLost
		return v
	}
	if !e.Dispatched {
		v.GiveBack = true
		return e.again(v, 0)
	}
	return e.unknown(p, v, Backoff(1, rnd))
}

func (e Ended) released(p Policy, v Verdict) Verdict {
	v.Released = e.Released + 1
	if !e.Dispatched {
		v.GiveBack, v.Released = true, e.Released
		return e.again(v, 0)
	}
	v.Unclear = true
	v.GiveBack = p.OnUnknown != Review && v.Released <= int16(p.MaxAttempts)
	if v.GiveBack {
		return e.again(v, 0)
	}
	return e.unknown(p, v, 0)
}

// Expire is the verdict on a task whose deadline passed while it waited.
func Expire(p Policy, unclear bool) Verdict {
	v := Verdict{Unclear: unclear, Message: "the deadline passed before a result was there"}
	if unclear && p.OnUnknown == Review {
		v.To, v.Code = api.Unknown, api.CodeOutcomeUnknown
		v.Message = "the deadline passed while a call of this run has no known outcome"
		return v
	}
	v.To, v.Code = api.Failed, api.CodeDeadline
	return v
}
