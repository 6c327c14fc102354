package task

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/onefold-dev/onefold/api"
)

// Class is what is known after an attempt went wrong (design: failure classes),
// plus the two ways an attempt can end without its worker, Lost and Released,
// and what a status check can add to an unknown outcome, NotDone and Working.
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
	NotDone      Class = "not_done"     // sent, and a check says it was not and will not be carried out
	Working      Class = "working"      // a check says it is being carried out
)

// OnUnknown says what follows when a call's outcome is not known.
type OnUnknown string

// The choices: call again within the attempts, or stop for a person or a check.
const (
	Retry  OnUnknown = "retry"
	Review OnUnknown = "review"
)

// OnCut says what follows when a reply broke off in the middle.
type OnCut string

// The choices: call again from the start, or stop for a person. What came being
// taken as the result is decided before a verdict is asked for.
const (
	Regenerate OnCut = "regenerate"
	CutReview  OnCut = "review"
)

// Limits from design section 7 and protocols sections 5 and 6.
const (
	BackoffBase   = time.Second
	BackoffCap    = 60 * time.Second
	BackoffFloor  = 250 * time.Millisecond
	notSentFree   = 5 // in a row; the next ones each use an attempt
	lostLimit     = 3 // in a row; then a person looks
	sameLimit     = 3 // equal final-looking errors in a row; then no more tries
	refusedWait   = 2 * time.Second
	unauthWait    = 60 * time.Second
	workingWait   = 2 * time.Second // between two checks of work under way
	notSentJitter = 10              // percent
)

// Policy is what the kind's configuration says of failures.
type Policy struct {
	MaxAttempts int32
	OnUnknown   OnUnknown
	OnCut       OnCut // "" is Regenerate
}

// Ended is how one attempt ended, with where the task stood.
type Ended struct {
	Class      Class
	Code       string
	Message    string
	RetryAfter time.Duration
	Permanent  bool // with Rejected: the request itself was at fault
	Status     int  // the provider's HTTP status, 0 where there was none
	Dispatched bool // false only when it is certain that nothing was sent
	Cut        bool // with Unclear: the reply broke off after something of it had come
	// Checkable says that the provider will be asked what became of the calls (a
	// status request, a background job) before anything is sent again.
	Checkable bool
	// Patient tasks wait where the provider's quota is used up: lines of a batch,
	// whose hundreds of calls under way would otherwise fail with the first one.
	Patient bool

	Attempts  int32 // counted, this one included
	NotSent   int16
	Released  int16
	Lost      int16
	Unclear   bool   // an earlier call of this run has no known outcome
	LastError string // of the attempt before, as Verdict.LastError told
	Same      int16
	Left      time.Duration
}

// Verdict is the move that follows an attempt without a result.
type Verdict struct {
	To        api.State
	Code      api.Code
	Message   string
	Permanent bool
	After     time.Duration // with To == Pending
	GiveBack  bool          // the attempt does not count
	Again     bool          // with To == Pending: the provider is called once more for what it was called before
	NotSent   int16
	Released  int16
	Lost      int16
	Unclear   bool
	LastError string // code and message of this attempt, for the next one to compare with
	Same      int16  // how many attempts in a row ended with this LastError, where it looks final
}

// Next says what follows an attempt that brought no result. rnd gives numbers
// in [0,1).
func Next(p Policy, e Ended, rnd func() float64) Verdict {
	v := Verdict{Message: e.Message, Unclear: e.Unclear, LastError: e.LastError, Same: e.Same}
	if e.Class != Lost && e.Class != Released {
		v.LastError, v.Same = e.remember()
	}
	switch e.Class {
	case Rejected:
		if e.Patient && e.listed(api.CodeRejected) == api.CodeQuotaExhausted {
			v.GiveBack = true
			return e.again(v, refusedWait+time.Duration(rnd()*float64(refusedWait))) // by then the provider is held
		}
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
		return e.retry(p, v, e.listed(api.CodeBadOutput), max(e.RetryAfter, Backoff(e.Attempts, rnd)))
	case Lost:
		return e.lost(p, v, rnd)
	case Released:
		return e.released(p, v)
	case NotDone:
		v.Unclear = false
		return e.retry(p, v, api.CodeAttemptsExhaust, Backoff(e.Attempts, rnd))
	case Working:
		v.Unclear, v.GiveBack = true, true
		return e.again(v, max(e.RetryAfter, workingWait))
	default:
		v.Unclear = true
		return e.unknown(p, v, max(e.RetryAfter, Backoff(e.Attempts, rnd)))
	}
}

// lastError bounds what is remembered of an attempt's error, in bytes.
const lastError = 300

// remember is the attempt's error as text, and how many in a row it now makes
// where it looks final: the provider answered, and said the same again.
func (e Ended) remember() (text string, same int16) {
	text = e.Code + ": " + e.Message
	if len(text) > lastError {
		text = strings.ToValidUTF8(text[:lastError], "")
	}
	if e.Class != BadOutput && (e.Class != Unclear || e.Status < 400 || e.Status > 499) {
		return text, 0
	}
	if e.Same > 0 && text == e.LastError {
		return text, e.Same + 1
	}
	return text, 1
}

// Backoff is exponential with full jitter: base 1 s, cap 60 s, floor 250 ms.
func Backoff(attempt int32, rnd func() float64) time.Duration {
	top := BackoffBase << min(max(attempt-1, 0), 10)
	return max(BackoffFloor, time.Duration(rnd()*float64(min(top, BackoffCap))))
}

// Random is the source of jitter outside tests.
func Random() float64 { return rand.Float64() }

func (e Ended) rejected(v Verdict) Verdict {
	v.To, v.Code, v.Permanent = api.Failed, e.listed(api.CodeRejected), e.Permanent
	return v
}

// listed is the attempt's own code where callers know it, else the general one.
func (e Ended) listed(general api.Code) api.Code {
	// Some words stand for a refused request, too: those mean something else there.
	if row, ok := api.Codes[api.Code(e.Code)]; ok && row.Class == api.ErrFailed {
		return api.Code(e.Code)
	}
	return general
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
	if e.Attempts < p.MaxAttempts && v.Same < sameLimit {
		v.Again = true
		return e.again(v, wait)
	}
	if v.Same >= sameLimit && e.Attempts < p.MaxAttempts {
		v.Message = "the same answer came three times in a row: " + v.Message
	}
	if v.Unclear && p.OnUnknown == Review {
		v.To, v.Code = api.Unknown, e.unclearCode()
		return v
	}
	v.To, v.Code = api.Failed, code
	return v
}

func (e Ended) unclearCode() api.Code {
	if e.Cut {
		return api.CodeCut
	}
	return api.CodeOutcomeUnknown
}

// unknown follows a call whose outcome nobody knows. Of a reply that was cut the
// kind says apart what is to be done: whoever lets those be made anew means it.
func (e Ended) unknown(p Policy, v Verdict, wait time.Duration) Verdict {
	review := p.OnUnknown == Review
	if e.Cut {
		review = p.OnCut == CutReview
	}
	if review && !e.Checkable {
		v.To, v.Code = api.Unknown, e.unclearCode()
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
	if !e.Dispatched || e.Checkable {
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
	if e.Checkable {
		v.GiveBack, v.Released = true, e.Released // what follows is a question, not a send
		return e.again(v, 0)
	}
	v.GiveBack = p.OnUnknown != Review && v.Released <= int16(p.MaxAttempts)
	if v.GiveBack {
		return e.again(v, 0)
	}
	return e.unknown(p, v, 0)
}

// Spend is the verdict on a task whose named budget is used up: no call is made
// for it. An earlier call of the run that nobody knows the outcome of stays what
// it is where a person is to decide.
func Spend(p Policy, unclear bool, budget string, sends int32, last string) Verdict {
	v := Verdict{
		Unclear: unclear, LastError: last, To: api.Failed, Code: api.CodeBudgetExhausted,
		Message: "the budget " + budget + " is used up: all " + strconv.Itoa(int(sends)) + " sends were made",
	}
	if unclear && p.OnUnknown == Review {
		v.To, v.Code = api.Unknown, api.CodeOutcomeUnknown
		v.Message += ", and a call of this run has no known outcome"
	}
	return v
}

// Expire is the verdict on a task whose deadline passed while it waited. last is
// the error of its last attempt, "" where there was none.
func Expire(p Policy, unclear bool, last string) Verdict {
	v := Verdict{Unclear: unclear, LastError: last, Message: "the deadline passed before a result was there"}
	if unclear && p.OnUnknown == Review {
		v.To, v.Code = api.Unknown, api.CodeOutcomeUnknown
		v.Message = "the deadline passed while a call of this run has no known outcome"
		return v
	}
	if last != "" {
		v.Message += "; the last attempt ended with " + last
	}
	v.To, v.Code = api.Failed, api.CodeDeadline
	return v
}
