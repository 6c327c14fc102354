package outbox_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/gate"
	"github.com/onefold-dev/onefold/internal/outbox"
	"github.com/onefold-dev/onefold/internal/task"
)

func half() float64 { return 0.5 }

func answered(status int) outbox.Outcome {
	return outbox.Outcome{Class: outbox.Answered, Status: status}
}

// TestTriageByStatus is the table of design section 8, at the first try.
func TestTriageByStatus(t *testing.T) {
	t.Parallel()
	type row struct{ Safe, Once, Doubted string } // by repeat; and after an unclear delivery
	want := map[int]row{
		101: {"waiting retry", "unknown unknown", "unknown unknown"},
		200: {"delivered delivered", "delivered delivered", "delivered delivered"},
		204: {"delivered delivered", "delivered delivered", "delivered delivered"},
		301: {"dead dead", "dead dead", "unknown unknown"},
		304: {"dead dead", "dead dead", "unknown unknown"},
		400: {"dead dead", "dead dead", "unknown unknown"},
		401: {"held held", "held held", "held held"},
		403: {"held held", "held held", "held held"},
		404: {"waiting retry", "waiting retry", "waiting retry"},
		408: {"waiting retry", "unknown unknown", "unknown unknown"},
		409: {"dead dead", "dead dead", "unknown unknown"},
		410: {"dead dead", "dead dead", "unknown unknown"},
		413: {"dead dead", "dead dead", "unknown unknown"},
		422: {"dead dead", "dead dead", "unknown unknown"},
		429: {"waiting deferred", "waiting deferred", "waiting deferred"},
		500: {"waiting retry", "unknown unknown", "unknown unknown"},
		503: {"waiting retry", "unknown unknown", "unknown unknown"},
		599: {"waiting retry", "unknown unknown", "unknown unknown"},
		999: {"waiting retry", "unknown unknown", "unknown unknown"},
	}
	got := map[int]row{}
	for status := range want {
		say := func(s outbox.Standing) string {
			s.Attempts = 1
			v := outbox.Triage(s, answered(status), half)
			return string(v.To) + " " + v.Delivery
		}
		got[status] = row{say(outbox.Standing{Safe: true}), say(outbox.Standing{}), say(outbox.Standing{Unclear: true})}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestTriageWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		class    outbox.Class
		standing outbox.Standing
		want     string
	}{
		{outbox.NotSent, outbox.Standing{Attempts: 1}, "waiting not_sent unclear=false"},
		{outbox.NotSent, outbox.Standing{Attempts: 1, Unclear: true}, "waiting not_sent unclear=true"},
		{outbox.NotSent, outbox.Standing{Attempts: 8}, "dead dead unclear=false"},
		{outbox.NotSent, outbox.Standing{Attempts: 8, Unclear: true}, "unknown unknown unclear=true"},
		{outbox.NotSent, outbox.Standing{Attempts: 8, Unclear: true, Safe: true}, "dead dead unclear=true"},
		{outbox.Unclear, outbox.Standing{Attempts: 1}, "unknown unknown unclear=true"},
		{outbox.Unclear, outbox.Standing{Attempts: 1, Safe: true}, "waiting retry unclear=true"},
		{outbox.Unclear, outbox.Standing{Attempts: 8, Safe: true}, "dead dead unclear=true"},
		{outbox.Blocked, outbox.Standing{Attempts: 1, Safe: true}, "dead dead unclear=false"},
		{outbox.Blocked, outbox.Standing{Attempts: 1, Unclear: true}, "unknown unknown unclear=true"},
	} {
		v := outbox.Triage(c.standing, outbox.Outcome{Class: c.class, Code: "c", Message: "m"}, half)
		if got := fmt.Sprintf("%s %s unclear=%t", v.To, v.Delivery, v.Unclear); got != c.want {
			t.Errorf("%s %+v: got %s, want %s", c.class, c.standing, got, c.want)
		}
	}
}

// TestSchedule: 0, 5 s, 1 m, 5 m, 30 m, 2 h, 5 h, 10 h, each 20 % more or less.
func TestSchedule(t *testing.T) {
	t.Parallel()
	want := []time.Duration{5 * time.Second, time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour, 10 * time.Hour}
	for i, d := range want {
		s := outbox.Standing{Attempts: int32(i + 1), Safe: true}
		for rnd, factor := range map[float64]float64{0: 0.8, 0.5: 1, 0.999999: 1.2} {
			got := outbox.Triage(s, answered(500), func() float64 { return rnd }).After
			if off := got - time.Duration(factor*float64(d)); off < -time.Second || off > time.Second {
				t.Errorf("after attempt %d with %v: got %s, want %s", i+1, rnd, got, time.Duration(factor*float64(d)))
			}
		}
	}
	if v := outbox.Triage(outbox.Standing{Attempts: 8, Safe: true}, answered(500), half); v.To != api.EffectDead || v.Code != outbox.CodeAttemptsUsed {
		t.Errorf("after the eighth: got %+v, want dead, attempts used up", v)
	}
}

func TestRetryAfterIsKept(t *testing.T) {
	t.Parallel()
	out := answered(429)
	if v := outbox.Triage(outbox.Standing{Attempts: 1}, out, half); !v.GiveBack || v.After < 30*time.Second || v.After > 36*time.Second {
		t.Errorf("429 that names no time: got %+v, want about 30 s and the attempt given back", v)
	}
	out.RetryAfter = time.Hour
	for _, attempts := range []int32{1, 8} {
		v := outbox.Triage(outbox.Standing{Attempts: attempts, Unclear: true}, out, half)
		if v.To != api.EffectWaiting || !v.GiveBack || v.After < time.Hour || v.After > 72*time.Minute || !v.Unclear {
			t.Errorf("429 at attempt %d: got %+v, want to wait an hour and up to 20 %%, attempt given back", attempts, v)
		}
	}
	out.Status = 503
	if v := outbox.Triage(outbox.Standing{Attempts: 1, Safe: true}, out, half); v.After != time.Hour || v.GiveBack {
		t.Errorf("503: got %+v, want to wait an hour, attempt used", v)
	}
}

func TestNotFoundNeedsThreeOverAnHour(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		misses int16
		gap    time.Duration
		want   api.EffectState
	}{
		{0, 0, api.EffectWaiting},
		{1, 2 * time.Hour, api.EffectWaiting},
		{2, 59 * time.Minute, api.EffectWaiting},
		{2, time.Hour, api.EffectDead},
		{7, 50 * time.Minute, api.EffectWaiting},
	} {
		v := outbox.Triage(outbox.Standing{Attempts: 3, Misses: c.misses, FirstGap: c.gap}, answered(404), half)
		if v.To != c.want || v.Misses != c.misses+1 {
			t.Errorf("%d before, first %s ago: got %+v, want %s", c.misses, c.gap, v, c.want)
		}
	}
	if v := outbox.Triage(outbox.Standing{Attempts: 3, Misses: 2, FirstGap: time.Hour, Unclear: true}, answered(404), half); v.To != api.EffectUnknown {
		t.Errorf("after an unclear delivery: got %+v, want unknown", v)
	}
	if v := outbox.Triage(outbox.Standing{Attempts: 3, Misses: 2, Safe: true}, answered(500), half); v.Misses != 0 {
		t.Errorf("another answer: got %d misses, want them forgotten", v.Misses)
	}
	if v := outbox.Triage(outbox.Standing{Attempts: 3, Misses: 2}, outbox.Outcome{Class: outbox.NotSent}, half); v.Misses != 2 {
		t.Errorf("no answer: got %d misses, want 2 kept", v.Misses)
	}
}

func TestUnauthorizedHolds(t *testing.T) {
	t.Parallel()
	for attempts := int32(1); attempts < 100; attempts++ {
		v := outbox.Triage(outbox.Standing{Attempts: attempts, Unclear: true}, answered(401), half)
		if v.To != api.EffectHeld || v.Code != "unauthorized" || !v.GiveBack || !v.Unclear || v.Gate != gate.Unauthorized {
			t.Fatalf("attempt %d: got %+v, want held, the attempt given back", attempts, v)
		}
	}
}

// TestWhatTheGateSees: what each sort of outcome says of its destination.
func TestWhatTheGateSees(t *testing.T) {
	t.Parallel()
	got := map[string]gate.What{}
	for _, status := range []int{200, 301, 400, 401, 403, 404, 408, 410, 422, 429, 500, 503, 700} {
		got[fmt.Sprint(status)] = outbox.Triage(outbox.Standing{Attempts: 1}, answered(status), half).Gate
	}
	for _, out := range []outbox.Outcome{
		{Class: outbox.NotSent, Code: outbox.CodeConnect}, {Class: outbox.NotSent, Code: outbox.CodeNoSecret}, {Class: outbox.Unclear}, {Class: outbox.Blocked},
	} {
		got[string(out.Class)+" "+out.Code] = outbox.Triage(outbox.Standing{Attempts: 1}, out, half).Gate
	}
	want := map[string]gate.What{
		"200": gate.Healthy, "301": gate.Healthy, "400": gate.Healthy, "401": gate.Unauthorized, "403": gate.Unauthorized, "404": gate.Healthy,
		"408": gate.Failed, "410": gate.Gone, "422": gate.Healthy, "429": gate.Refused, "500": gate.Failed, "503": gate.Failed, "700": gate.Failed,
		"not_sent connect_failed": gate.Failed, "not_sent secret_unavailable": "", "unclear ": gate.Failed, "blocked ": "",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestDoubtWhereItCanBeAsked waits for the check instead of a person, within the attempts.
func TestDoubtWhereItCanBeAsked(t *testing.T) {
	t.Parallel()
	s := outbox.Standing{Attempts: 1, Asks: true, AskAfter: time.Minute}
	for _, out := range []outbox.Outcome{answered(500), {Class: outbox.Unclear}} {
		if v := outbox.Triage(s, out, half); v.To != api.EffectWaiting || v.After != time.Minute || !v.Unclear || v.Delivery != "unknown" {
			t.Errorf("%+v: got %+v, want to wait for the check", out, v)
		}
	}
	s.Attempts = 8
	if v := outbox.Triage(s, answered(500), half); v.To != api.EffectUnknown {
		t.Errorf("after the last attempt: got %+v, want unknown", v)
	}
	for asked := int16(1); asked <= 8; asked++ {
		v := outbox.Asked(s, asked, answered(200), half)
		if want := api.EffectWaiting; asked < 8 && (v.To != want || !v.GiveBack || v.Asked != asked || !v.Unclear) || asked == 8 && v.To != api.EffectUnknown {
			t.Errorf("asked %d times: got %+v", asked, v)
		}
	}
	if v := outbox.Asked(s, 1, answered(401), half); v.To != api.EffectHeld || v.Gate != gate.Unauthorized || !v.GiveBack {
		t.Errorf("401 to the question: got %+v, want held", v)
	}
}

// TestTriageProperties hold for everything that can come: legal moves only, nothing unclear sent again where that does
// harm, no wait that is negative or for ever, and doubt is not forgotten.
func TestTriageProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := outbox.Standing{
			Attempts: rapid.Int32Range(1, 20).Draw(t, "attempts"), Misses: rapid.Int16Range(0, 20).Draw(t, "misses"),
			FirstGap: time.Duration(rapid.Int64Range(0, int64(48*time.Hour)).Draw(t, "gap")),
			Unclear:  rapid.Bool().Draw(t, "unclear"), Safe: rapid.Bool().Draw(t, "safe"), Asks: rapid.Bool().Draw(t, "asks"),
		}
		out := outbox.Outcome{
			Class:      rapid.SampledFrom([]outbox.Class{outbox.Answered, outbox.NotSent, outbox.Blocked, outbox.Unclear, "?"}).Draw(t, "class"),
			Status:     rapid.IntRange(-1, 1200).Draw(t, "status"),
			RetryAfter: time.Duration(rapid.Int64Range(0, int64(outbox.MaxRetryAfter)).Draw(t, "retry after")),
		}
		rnd := rapid.Float64Range(0, 0.9999).Draw(t, "rnd")
		v := outbox.Triage(s, out, func() float64 { return rnd })
		legal := false
		for _, to := range task.EffectMoves[api.EffectDelivering] {
			legal = legal || to == v.To
		}
		if !legal || v.Delivery == "" {
			t.Fatalf("illegal: %+v", v)
		}
		if v.After < 0 || v.After > 30*time.Hour || v.To != api.EffectWaiting && v.After != 0 {
			t.Fatalf("wait: %+v", v)
		}
		doubt := out.Class == outbox.Unclear || out.Class == outbox.Answered && (out.Status >= 500 || out.Status == 408)
		if doubt && !s.Safe && !s.Asks && v.To != api.EffectUnknown {
			t.Fatalf("in doubt, and a repeat does harm: %+v", v)
		}
		if (s.Unclear || doubt) && v.To != api.EffectDelivered && !v.Unclear {
			t.Fatalf("doubt forgotten: %+v", v)
		}
		if s.Unclear && !s.Safe && v.To == api.EffectDead {
			t.Fatalf("dead, though it may have arrived: %+v", v)
		}
		if v.To != api.EffectDelivered && out.Class == outbox.Answered && (v.Code == "" || v.Message == "") {
			t.Fatalf("says not why: %+v", v)
		}
	})
}
