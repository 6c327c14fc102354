package outbox

import (
	"math"
	"net/http"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/gate"
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
	CodeCannotTell     = "cannot_tell"
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
	doubt   means = "doubt"   // it may have been done: again where that is safe, else asked, else a person looks
	busy    means = "busy"    // later, without using an attempt
	noEntry means = "noEntry" // our credential is at fault: held until that is mended, without using an attempt
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
	{401, 401, noEntry, string(api.CodeUnauthorized), "the receiver does not accept our signature or credential; the destination is held until that is mended"},
	{403, 403, noEntry, string(api.CodeUnauthorized), "the receiver does not accept our signature or credential; the destination is held until that is mended"},
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
	// Asks says that the destination can be asked whether a try arrived, AskAfter after it at the earliest.
	Asks     bool
	AskAfter time.Duration
}

// Verdict is what follows from a try.
type Verdict struct {
	To       api.EffectState
	After    time.Duration // with To waiting
	GiveBack bool          // the attempt does not count
	Misses   int16
	Unclear  bool
	Asked    int16         // checks since the last try of unknown outcome
	Delivery string        // the outcome on the delivery's own row
	Gate     gate.What     // what it says of the destination; "" says nothing
	Cool     time.Duration // how long the receiver asked everybody to wait, with Gate Refused
	Code     string
	Message  string
}

// Triage says what follows from the outcome of a try. rnd gives numbers in [0,1).
func Triage(s Standing, out Outcome, rnd func() float64) Verdict {
	v := Verdict{Misses: s.Misses, Unclear: s.Unclear, Code: out.Code, Message: out.Message}
	switch out.Class {
	case NotSent:
		v.Delivery = "not_sent"
		if out.Code != CodeNoSecret {
			v.Gate = gate.Failed
		}
		return s.again(v, 0, rnd)
	case Blocked:
		return s.refused(v)
	case withheld:
		v.Delivery, v.GiveBack = "deferred", true
		return s.wait(v, out.RetryAfter)
	case Answered:
		return s.answered(v, out, rnd)
	}
	v.Gate = gate.Failed
	return s.doubt(v, 0, rnd)
}

func (s Standing) answered(v Verdict, out Outcome, rnd func() float64) Verdict {
	v.Misses, v.Gate = 0, gate.Healthy
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
			v.Delivery, v.GiveBack, v.Gate, v.Cool = "deferred", true, gate.Refused, out.RetryAfter
			cool := out.RetryAfter
			if cool <= 0 {
				cool = coolFor
			}
			return s.wait(v, cool+time.Duration(rnd()*scheduleJitter*float64(cool)))
		case noEntry:
			v.To, v.Delivery, v.GiveBack, v.Gate = api.EffectHeld, "held", true, gate.Unauthorized
			return v
		case missing:
			v.Misses = s.Misses + 1
			if v.Misses >= missesNeeded && s.FirstGap >= missesOver {
				return s.refused(v)
			}
			return s.again(v, out.RetryAfter, rnd)
		case refused:
			if status == http.StatusGone {
				v.Gate = gate.Gone
			}
			return s.refused(v)
		}
		break
	}
	v.Gate = gate.Failed
	return s.doubt(v, out.RetryAfter, rnd)
}

// doubt: the receiver may have acted on this try.
func (s Standing) doubt(v Verdict, after time.Duration, rnd func() float64) Verdict {
	v.Unclear, v.Delivery = true, "retry"
	s.Unclear = true
	switch {
	case s.Safe:
		return s.again(v, after, rnd)
	case s.Asks && int(s.Attempts) < len(Schedule):
		v.Delivery = "unknown"
		v.Message += "; the destination will be asked whether it arrived"
		return s.wait(v, max(s.AskAfter, after))
	}
	return unknown(v)
}

// again waits for the next try of the schedule, and longer where the receiver asked for it.
func (s Standing) again(v Verdict, atLeast time.Duration, rnd func() float64) Verdict {
	if int(s.Attempts) < len(Schedule) {
		return s.wait(v, max(step(int(s.Attempts), rnd), atLeast))
	}
	if s.Unclear && !s.Safe {
		return unknown(v)
	}
	v.To, v.Delivery = api.EffectDead, "dead"
	v.Message = "all attempts are used up; the last one: " + v.Message
	v.Code = CodeAttemptsUsed
	return v
}

// step is how long the schedule waits before try n, counted from 0.
func step(n int, rnd func() float64) time.Duration {
	d := Schedule[n]
	return d + time.Duration((2*rnd()-1)*scheduleJitter*float64(d))
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

// Asked says what follows from a check that cannot tell whether an earlier try arrived, the asked-th in a row. The
// answer of one that can is acted on at once.
func Asked(s Standing, asked int16, out Outcome, rnd func() float64) Verdict {
	v := Verdict{
		Misses: s.Misses, Unclear: true, Asked: asked, GiveBack: true, Delivery: "deferred", Code: CodeCannotTell,
		Message: "whether an earlier delivery arrived cannot be told: the destination gives no clear answer",
	}
	switch status := out.Status; {
	case out.Class == Answered && status == http.StatusTooManyRequests:
		v.Gate, v.Cool = gate.Refused, out.RetryAfter
	case out.Class == Answered && (status == http.StatusUnauthorized || status == http.StatusForbidden):
		v.To, v.Delivery, v.Gate = api.EffectHeld, "held", gate.Unauthorized
		return v
	case out.Class == NotSent || out.Class == Unclear:
		v.Gate = gate.Failed
	}
	if int(asked) >= len(Schedule) {
		v.To, v.Delivery, v.Code = api.EffectUnknown, "unknown", CodeOutcomeUnknown
		return v
	}
	return s.wait(v, max(step(int(asked), rnd), out.RetryAfter))
}
