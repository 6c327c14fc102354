package task_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/task"
)

func half() float64 { return 0.5 }

// What follows each class of ending, with room left and at the end of attempts.
func TestNext(t *testing.T) {
	t.Parallel()
	retry, review := task.Policy{MaxAttempts: 3, OnUnknown: task.Retry}, task.Policy{MaxAttempts: 3, OnUnknown: task.Review}
	day := 24 * time.Hour
	for name, c := range map[string]struct {
		p    task.Policy
		e    task.Ended
		want task.Verdict
	}{
		"not sent": {retry, task.Ended{Class: task.NotSent, Attempts: 1, Left: day}, task.Verdict{To: api.Pending, After: 2 * time.Second, GiveBack: true, NotSent: 1}},
		"not sent, the fifth in a row": {
			retry,
			task.Ended{Class: task.NotSent, Attempts: 1, NotSent: 4, Left: day},
			task.Verdict{To: api.Pending, After: 32 * time.Second, GiveBack: true, NotSent: 5},
		},
		"not sent, the sixth in a row counts": {
			retry,
			task.Ended{Class: task.NotSent, Attempts: 1, NotSent: 5, Left: day},
			task.Verdict{To: api.Pending, After: 32 * time.Second, Again: true, NotSent: 6},
		},
		"not sent, attempts used up": {
			retry,
			task.Ended{Class: task.NotSent, Attempts: 3, NotSent: 7, Left: day},
			task.Verdict{To: api.Failed, Code: api.CodeNotSent, NotSent: 8},
		},
		"refused, told to wait": {
			retry,
			task.Ended{Class: task.Refused, Attempts: 3, RetryAfter: time.Minute, Left: day},
			task.Verdict{To: api.Pending, After: time.Minute, GiveBack: true},
		},
		"refused, told nothing": {
			retry,
			task.Ended{Class: task.Refused, Attempts: 1, Left: day},
			task.Verdict{To: api.Pending, After: 3 * time.Second, GiveBack: true},
		},
		"refused beyond the deadline": {
			retry,
			task.Ended{Class: task.Refused, Attempts: 1, RetryAfter: day, Left: time.Hour},
			task.Verdict{To: api.Pending, After: time.Hour, GiveBack: true},
		},
		"rejected": {
			retry,
			task.Ended{Class: task.Rejected, Code: "no such word", Permanent: true, Attempts: 1, Left: day},
			task.Verdict{To: api.Failed, Code: api.CodeRejected, Permanent: true},
		},
		"quota": {
			retry,
			task.Ended{Class: task.Rejected, Code: "quota_exhausted", Attempts: 1, Left: day},
			task.Verdict{To: api.Failed, Code: api.CodeQuotaExhausted},
		},
		"quota, a batch's line": {
			retry,
			task.Ended{Class: task.Rejected, Code: "quota_exhausted", Patient: true, Attempts: 1, Left: day},
			task.Verdict{To: api.Pending, After: 3 * time.Second, GiveBack: true},
		},
		"rejected, a batch's line": {
			retry,
			task.Ended{Class: task.Rejected, Code: "no such word", Permanent: true, Patient: true, Attempts: 1, Left: day},
			task.Verdict{To: api.Failed, Code: api.CodeRejected, Permanent: true},
		},
		"unauthorized": {
			retry,
			task.Ended{Class: task.Unauthorized, Attempts: 1, Left: day},
			task.Verdict{To: api.Pending, After: time.Minute, GiveBack: true},
		},
		"unknown": {
			retry,
			task.Ended{Class: task.Unclear, Dispatched: true, Attempts: 1, Left: day},
			task.Verdict{To: api.Pending, After: 500 * time.Millisecond, Again: true, Unclear: true},
		},
		"unknown, told to wait": {
			retry,
			task.Ended{Class: task.Unclear, Dispatched: true, Attempts: 1, RetryAfter: 7 * time.Second, Left: day},
			task.Verdict{To: api.Pending, After: 7 * time.Second, Again: true, Unclear: true},
		},
		"unknown, attempts used up": {
			retry,
			task.Ended{Class: task.Unclear, Dispatched: true, Attempts: 3, Left: day},
			task.Verdict{To: api.Failed, Code: api.CodeAttemptsExhaust, Unclear: true},
		},
		"unknown, review": {
			review,
			task.Ended{Class: task.Unclear, Dispatched: true, Attempts: 1, Left: day},
			task.Verdict{To: api.Unknown, Code: api.CodeOutcomeUnknown, Unclear: true},
		},
		"bad output after an unknown call, review": {
			review,
			task.Ended{Class: task.BadOutput, Attempts: 3, Unclear: true, Left: day},
			task.Verdict{To: api.Unknown, Code: api.CodeOutcomeUnknown, Unclear: true, Same: 1},
		},
		"bad output, attempts used up": {
			retry,
			task.Ended{Class: task.BadOutput, Code: "bad_output", Attempts: 3, Left: day},
			task.Verdict{To: api.Failed, Code: api.CodeBadOutput, Same: 1},
		},
		"lost before the send": {
			review,
			task.Ended{Class: task.Lost, Attempts: 1, Left: day},
			task.Verdict{To: api.Pending, GiveBack: true, Lost: 1},
		},
		"lost after the send": {
			retry,
			task.Ended{Class: task.Lost, Dispatched: true, Attempts: 1, Left: day},
			task.Verdict{To: api.Pending, After: 500 * time.Millisecond, Again: true, Lost: 1, Unclear: true},
		},
		"lost after the send, review": {
			review,
			task.Ended{Class: task.Lost, Dispatched: true, Attempts: 1, Left: day},
			task.Verdict{To: api.Unknown, Code: api.CodeOutcomeUnknown, Lost: 1, Unclear: true},
		},
		"lost three times": {
			retry,
			task.Ended{Class: task.Lost, Dispatched: true, Attempts: 1, Lost: 2, Left: day},
			task.Verdict{To: api.Unknown, Code: api.CodeWorkerLost, Lost: 3, Unclear: true},
		},
		"released before the send": {
			retry,
			task.Ended{Class: task.Released, Attempts: 1, Released: 9, Left: day},
			task.Verdict{To: api.Pending, GiveBack: true, Released: 9},
		},
		"released after the send": {
			retry,
			task.Ended{Class: task.Released, Dispatched: true, Attempts: 1, Left: day},
			task.Verdict{To: api.Pending, GiveBack: true, Released: 1, Unclear: true},
		},
		"released too often": {
			retry,
			task.Ended{Class: task.Released, Dispatched: true, Attempts: 1, Released: 3, Left: day},
			task.Verdict{To: api.Pending, Again: true, Released: 4, Unclear: true},
		},
		"cut": {
			task.Policy{MaxAttempts: 3, OnUnknown: task.Review, OnCut: task.Regenerate},
			task.Ended{Class: task.Unclear, Dispatched: true, Cut: true, Attempts: 1, Left: day},
			task.Verdict{To: api.Pending, After: 500 * time.Millisecond, Again: true, Unclear: true},
		},
		"cut, review": {
			task.Policy{MaxAttempts: 3, OnUnknown: task.Retry, OnCut: task.CutReview},
			task.Ended{Class: task.Unclear, Dispatched: true, Cut: true, Attempts: 1, Left: day},
			task.Verdict{To: api.Unknown, Code: api.CodeCut, Unclear: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := task.Next(c.p, c.e, half)
			if diff := cmp.Diff(got, c.want, cmpopts.IgnoreFields(task.Verdict{}, "LastError", "Message")); diff != "" {
				t.Errorf("-got +want:\n%s", diff)
			}
		})
	}
}

// The waits when nothing can be sent, and the backoff: their bounds.
func TestWaits(t *testing.T) {
	t.Parallel()
	p := task.Policy{MaxAttempts: 3, OnUnknown: task.Retry}
	for i, base := range []time.Duration{2, 4, 8, 16, 32, 32, 32} {
		base *= time.Second
		for _, rnd := range []float64{0, 0.999} {
			v := task.Next(p, task.Ended{Class: task.NotSent, Attempts: 1, NotSent: int16(i), Left: time.Hour}, func() float64 { return rnd })
			if v.After < base*9/10 || v.After > base*11/10 {
				t.Errorf("wait %d: %v, want %v within a tenth", i+1, v.After, base)
			}
		}
	}
	for attempt, top := range map[int32]time.Duration{1: time.Second, 2: 2 * time.Second, 6: 32 * time.Second, 7: time.Minute, 50: time.Minute} {
		if d := task.Backoff(attempt, func() float64 { return 0 }); d != 250*time.Millisecond {
			t.Errorf("least backoff %v, want 250 ms", d)
		}
		if d := task.Backoff(attempt, func() float64 { return 0.9999999 }); d > top || d < top-time.Millisecond {
			t.Errorf("largest backoff %d: %v, want %v", attempt, d, top)
		}
	}
}

// A process calls again for a tenth of its calls, and for 5 a second where it
// makes few. The rest waits; a task near its deadline does not wait too long.
func TestRetries(t *testing.T) {
	t.Parallel()
	var now time.Duration
	r := task.NewRetries(func() time.Duration { return now })
	free := 0
	for r.Take() == 0 {
		free++
	}
	if free != 10 {
		t.Errorf("%d retries at once, want 10", free)
	}
	last := time.Duration(0)
	for range 49 {
		last = r.Take()
	}
	if last != 10*time.Second {
		t.Errorf("the fiftieth over waits %v, want 10 s at 5 a second", last)
	}
	if got := r.Pace(time.Second, time.Minute, 55*time.Second); got != 5*time.Second {
		t.Errorf("with a minute left for a call of 55 s: %v, want 5 s", got)
	}
	if got := r.Pace(30*time.Second, time.Minute, 55*time.Second); got != 30*time.Second {
		t.Errorf("what was due later stays: %v, want 30 s", got)
	}
	// 1,200 calls a second for a minute, 100 of them again: once the rate is known none waits.
	now += time.Minute
	for i := range 60 * 100 {
		now += 10 * time.Millisecond
		for range 12 {
			r.Called()
		}
		if d := r.Take(); d > 0 && i > 3000 {
			t.Fatalf("retry %d waits %v although there are fewer than a tenth of the calls", i, d)
		}
	}
	for range 1000 { // and as many as calls: they wait
		r.Take()
	}
	if got := r.Take(); got < 5*time.Second {
		t.Errorf("1,000 retries at once wait %v", got)
	}
}
