package outbox

import (
	"math"
	"time"

	"github.com/onefold-dev/onefold/api"
)

// Schedule is when the tries of an effect come, each counted from the end of the one before (design section 8).
var Schedule = []time.Duration{
	0, 5 * time.Second, time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour, 10 * time.Hour,
}

const (
	scheduleJitter = 0.2              // of each step, both ways
	coolFor        = 30 * time.Second // after a 429 that names no time
	missesNeeded   = 3                // 404 in a row before an address counts as gone,
	missesOver     = time.Hour        // over at least this long
	withheldFor    = 2 * time.Second  // until a try that was not begun may be begun by another process
)

// The codes of effects and deliveries, besides those of package api.
const (
	CodeReceiverError  = "receiver_error"
	CodeRedirected     = "redirected"
	CodeMissing        = "not_found"
	CodeGone           = "gone"
	CodeBadAnswer      = "bad_answer"
	CodeAttemptsUsed   = "attempts_exhausted"
	CodeOutcomeUnknown = "outcome_unknown"
	CodeSenderLost     = "worker_lost"
	CodeNoSecret       = "secret_unavailable"
	CodeBlocked        = "blocked"
	CodeWithheld       = "withheld"
	CodeBadURL         = "invalid_url"
	CodeResolve        = "resolve_failed"
	CodeConnect        = "connect_failed"
	CodeTLS            = "tls_failed"
	CodeWrite          = "write_failed"
)

// means is what an answer means for the effect.
type means string

const (
	done    means = "done"
	doubt   means = "doubt"   // it may have been done: again where that is safe, else a person looks
	busy    means = "busy"    // later, without using an attempt
	noEntry means = "noEntry" // our credential is at fault: again, however long it takes to mend
	missing means = "missing" // again; refused after missesNeeded in a row over missesOver
	refused means = "refused" // never again as it is
)

// answers is the table of design section 8: what a status means. The first row that holds the status counts.
var answers = []struct {
	from, to int
	means    means
	code     string
	message  string
}{
	{200, 299, done, "", ""},
	{300, 399, refused, CodeRedirected, "the receiver redirects; deliveries follow no redirect: put the new address into the destination"},
	{401, 401, noEntry, string(api.CodeUnauthorized), "the receiver does not accept our signature or credential"},
	{403, 403, noEntry, string(api.CodeUnauthorized), "the receiver does not accept our signature or credential"},
	{404, 404, missing, CodeMissing, "the receiver does not know the address"},
	{408, 408, doubt, string(api.CodeRequestTimeout), "the receiver gave up waiting for the request"},
	{410, 410, refused, CodeGone, "the receiver says that the address is gone for good"},
	{429, 429, busy, string(api.CodeRateLimited), "the receiver asks to wait"},
	{400, 499, refused, string(api.CodeRejected), "the receiver refuses the request as it stands"},
	{500, 599, doubt, CodeReceiverError, "the receiver failed"},
	{math.MinInt, math.MaxInt, doubt, CodeBadAnswer, "the receiver answered with a status that means nothing"},
}

// Standing is where an effect stands when a try at it has ended.
type Standing struct {
	Attempts int32         // counted, this one included
	Misses   int16         // 404 in a row before this try
	FirstGap time.Duration // since the first of them
	Unclear  bool          // an earlier try has no known outcome
	Safe     bool          // the destination says that a repeat does no harm
}

// Verdict is what follows from a try.
type Verdict struct {
	To       api.EffectState
	After    time.Duration // with To waiting
	GiveBack bool          // the attempt does not count
	Misses   int16
	Unclear  bool
	Delivery string // the outcome on the delivery's own row
	Code     string
	Message  string
}

// Triage says what follows from the outcome of a try. rnd gives numbers in [0,1).
func Triage(s Standing, out Outcome, rnd func() float64) Verdict {
	v := Verdict{Misses: s.Misses, Unclear: s.Unclear, Code: out.Code, Message: out.Message}
	switch out.Class {
	case NotSent:
		v.Delivery = "not_sent"
		return s.again(v, 0, rnd)
	case Blocked:
		return s.refused(v)
	case withheld:
		v.Delivery, v.GiveBack = "deferred", true
		return s.wait(v, out.RetryAfter)
	case Answered:
		return s.answered(v, out, rnd)
	}
	return s.doubt(v, 0, rnd)
}

func (s Standing) answered(v Verdict, out Outcome, rnd func() float64) Verdict {
	v.Misses = 0
	status := out.Status
	if out.Like != 0 {
		status = out.Like
	}
	for _, a := range answers {
		if status < a.from || status > a.to {
			continue
		}
		v.Delivery = "retry"
		if v.Code == "" {
			v.Code, v.Message = a.code, a.message
		}
		switch a.means {
		case done:
			v.To, v.Delivery, v.Unclear = api.EffectDelivered, "delivered", false
			return v
		case busy:
			v.Delivery, v.GiveBack = "deferred", true
			cool := out.RetryAfter
			if cool <= 0 {
				cool = coolFor
			}
			return s.wait(v, cool+time.Duration(rnd()*scheduleJitter*float64(cool)))
		case noEntry:
			s.Attempts = min(s.Attempts, int32(len(Schedule))-1)
			return s.again(v, out.RetryAfter, rnd)
		case missing:
			v.Misses = s.Misses + 1
			if v.Misses >= missesNeeded && s.FirstGap >= missesOver {
				return s.refused(v)
			}
			return s.again(v, out.RetryAfter, rnd)
		case refused:
			return s.refused(v)
		}
		break
	}
	return s.doubt(v, out.RetryAfter, rnd)
}

// doubt: the receiver may have acted on this try.
func (s Standing) doubt(v Verdict, after time.Duration, rnd func() float64) Verdict {
	v.Unclear, v.Delivery = true, "retry"
	if !s.Safe {
		return unknown(v)
	}
	s.Unclear = true
	return s.again(v, after, rnd)
}

// again waits for the next try of the schedule, and longer where the receiver asked for it.
func (s Standing) again(v Verdict, atLeast time.Duration, rnd func() float64) Verdict {
	if int(s.Attempts) < len(Schedule) {
		step := Schedule[s.Attempts]
		step += time.Duration((2*rnd() - 1) * scheduleJitter * float64(step))
		return s.wait(v, max(step, atLeast))
	}
	if s.Unclear && !s.Safe {
		return unknown(v)
	}
	v.To, v.Delivery = api.EffectDead, "dead"
	v.Message = "all attempts are used up; the last one: " + v.Message
	v.Code = CodeAttemptsUsed
	return v
}

func (s Standing) wait(v Verdict, after time.Duration) Verdict {
	v.To, v.After = api.EffectWaiting, after
	return v
}

// refused ends the effect, unless an earlier try may have done what this one was refused: then nobody knows.
func (s Standing) refused(v Verdict) Verdict {
	if s.Unclear {
		v.Message += "; an earlier delivery may have arrived"
		return unknown(v)
	}
	v.To, v.Delivery = api.EffectDead, "dead"
	return v
}

func unknown(v Verdict) Verdict {
	v.To, v.Delivery = api.EffectUnknown, "unknown"
	v.Code = CodeOutcomeUnknown
	return v
}
