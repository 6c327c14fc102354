// Package diagnose decides what a task's timeline and its neighbours look like:
// which known way of doing something twice, with the evidence, or none of them.
package diagnose

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/onefold-dev/onefold/api"
)

// Neighbour is another task of the same kind within an hour, under another key,
// with the same input or in the same trace.
type Neighbour struct {
	ID        string
	Key       string
	State     api.State
	CreatedAt time.Time
	SameInput bool
	SameTrace bool
	Client    string
	UserAgent string
}

// subSecond and paced divide what repeats: a double submit comes at once, a
// retry after a pause.
const (
	subSecond = 2 * time.Second
	paced     = 5 * time.Second
	evidence  = 6 // lines of it
)

// row looks for one row of the table; found is nil where it does not fit.
type row func(t *api.Timeline, near []Neighbour) *api.Finding

// rows are in the order of how much each explains: the first is told first.
var rows = []row{newKeys, unauthorized, lateEffect, redelivered, severalInstances, gaveUp, afterRefusal, doubleSubmit, pacedRetries, reused}

// Look says which rows of the table a task looks like, the likeliest first, or
// that it cannot tell.
func Look(t api.Timeline, near []Neighbour) api.Diagnosis {
	d := api.Diagnosis{TaskID: t.TaskID, Kind: t.Kind, Key: t.Key, Findings: []api.Finding{}}
	for _, look := range rows {
		if f := look(&t, near); f != nil {
			f.Evidence = f.Evidence[:min(len(f.Evidence), evidence)]
			d.Findings = append(d.Findings, *f)
		}
	}
	if len(d.Findings) == 0 {
		d.CannotTell = "nothing in the timeline or around it looks like a known way of doing something twice"
		if t.Duplicates == 0 && len(near) == 0 {
			d.CannotTell += ": no duplicate came, and no other task of the kind had this input or trace within an hour"
		}
	}
	for _, n := range near {
		d.Neighbours = append(d.Neighbours, api.Neighbour{
			TaskID: n.ID, Key: n.Key, State: n.State, CreatedAt: n.CreatedAt, SameInput: n.SameInput, SameTrace: n.SameTrace, Client: n.Client, UserAgent: n.UserAgent,
		})
	}
	return d
}

func of(t *api.Timeline, what ...api.EventWhat) (out []api.Event) {
	for _, e := range t.Events {
		if slices.Contains(what, e.What) {
			out = append(out, e)
		}
	}
	return out
}

// newKeys is T5: the same work under other keys.
func newKeys(t *api.Timeline, near []Neighbour) *api.Finding {
	var lines []string
	for _, n := range near {
		if n.Key == t.Key || !n.SameInput {
			continue
		}
		why := "the same input"
		if n.SameTrace {
			why += " in the same trace"
		}
		lines = append(lines, fmt.Sprintf("key %s has %s, %s (task %s, %s)", n.Key, why, apart(t.CreatedAt, n.CreatedAt), n.ID, n.State))
	}
	if len(lines) == 0 {
		return nil
	}
	return &api.Finding{
		Row: "T5", Title: "the key is made anew for each try", Evidence: lines,
		Do: "Make the key once, before the first try, from what names the intent; inside the retry loop it is read-only. If they are several intents that look alike, nothing is wrong.",
	}
}

// unauthorized is T9: what was turned away for good is tried again, here or by the caller.
func unauthorized(t *api.Timeline, _ []Neighbour) *api.Finding {
	var lines []string
	for _, e := range of(t, api.EventAttempt) {
		if a := e.Attempt; a.Outcome == "unauthorized" || a.Outcome == "rejected" {
			lines = append(lines, fmt.Sprintf("attempt %d: status %d, %s", a.Number, a.Status, word(a.Code, a.Outcome)))
		}
	}
	for _, e := range of(t, api.EventGate) {
		if strings.Contains(e.Action, "held") {
			lines = append(lines, fmt.Sprintf("%s was held at %s: %s", e.Target, clock(e.At), e.Reason))
		}
	}
	for _, e := range of(t, api.EventDelivery) {
		if s := e.Delivery.Status; s == 401 || s == 403 || s == 422 {
			lines = append(lines, fmt.Sprintf("delivery %d of %s: status %d", e.Delivery.Number, e.Target, s))
		}
	}
	repeated := of(t, api.EventRefused)
	if len(lines) == 0 || len(lines) == 1 && len(repeated) == 0 && t.State != api.Pending && t.State != api.Failed {
		return nil
	}
	return &api.Finding{
		Row: "T9", Title: "the other side refuses the request or the credential", Evidence: lines,
		Do: "Renew the credential (what waits goes on by itself once it has changed), or mend the request and submit it under another key. Sending it unchanged changes nothing.",
	}
}

// lateEffect is T1: a timeout, and yet it happened.
func lateEffect(t *api.Timeline, _ []Neighbour) *api.Finding {
	var lines []string
	for _, e := range of(t, api.EventAttempt) {
		a := e.Attempt
		if a.LateAt != nil {
			lines = append(lines, fmt.Sprintf("attempt %d ended as %s; its reply came at %s", a.Number, word(a.Code, a.Outcome), clock(*a.LateAt)))
		} else if a.Outcome == "unknown" && a.SentAt != nil {
			lines = append(lines, fmt.Sprintf("attempt %d was sent and its outcome is not known (%s after %d ms); billed %s", a.Number, word(a.Code, a.Outcome), a.TotalMS, a.Billed))
		}
	}
	for _, e := range of(t, api.EventDelivery) {
		if d := e.Delivery; d.LateAt != nil || d.Outcome == "unknown" || d.Answer == "done" {
			lines = append(lines, fmt.Sprintf("delivery %d of %s ended as %s%s", d.Number, e.Target, d.Outcome, late(d)))
		}
	}
	if len(lines) == 0 {
		return nil
	}
	return &api.Finding{
		Row: "T1", Title: "a timeout or a broken connection, and it may have happened", Evidence: lines,
		Do: "Look for the effect under its stable id before anything is repeated; where the provider or receiver can be asked, configure status or check.",
	}
}

// redelivered is T3 within onefold: a worker was lost and another took over.
func redelivered(t *api.Timeline, _ []Neighbour) *api.Finding {
	var lines []string
	for _, e := range of(t, api.EventAttempt) {
		if a := e.Attempt; a.Outcome == "lost" || a.Outcome == "released" {
			lines = append(lines, fmt.Sprintf("attempt %d was %s (claimed %s); the next one was another worker's", a.Number, a.Outcome, clock(a.ClaimedAt)))
		}
	}
	if len(lines) == 0 {
		return nil
	}
	return &api.Finding{
		Row: "T3", Title: "the server executed it again: its worker was lost or stopped", Evidence: lines,
		Do: "One result was kept, whatever the first worker still said. Look at why workers die or hang (memory, CPU, the network to Postgres); the call of the first may have been billed.",
	}
}

// severalInstances is T4: the same work from different places at one time.
func severalInstances(t *api.Timeline, near []Neighbour) *api.Finding {
	first := of(t, api.EventSubmitted)
	if len(first) == 0 || first[0].Client == "" {
		return nil
	}
	var lines []string
	for _, e := range of(t, api.EventFolded) {
		if e.Client != "" && e.Client != first[0].Client && e.UserAgent == first[0].UserAgent && e.At.Sub(first[0].At) < subSecond {
			lines = append(lines, fmt.Sprintf("a duplicate came from another address (%s, first %s), %s after the first, from the same program (%s)", e.Client, first[0].Client, e.At.Sub(first[0].At).Round(time.Millisecond), word(e.UserAgent, "unnamed")))
		}
	}
	for _, n := range near {
		if n.SameInput && n.Client != "" && n.Client != first[0].Client && n.UserAgent == first[0].UserAgent && n.CreatedAt.Sub(t.CreatedAt).Abs() < subSecond {
			lines = append(lines, fmt.Sprintf("key %s with the same input came from another address, %s", n.Key, apart(t.CreatedAt, n.CreatedAt)))
		}
	}
	if len(lines) == 0 {
		return nil
	}
	return &api.Finding{
		Row: "T4", Title: "several instances submit it, each for itself", Evidence: lines,
		Do: "Give the schedule one owner, or a lock; with one key a run (the schedule's name and its time) the copies fold, as here.",
	}
}

// gaveUp is T7: a caller or gateway gave up while the work went on, and asked again.
func gaveUp(t *api.Timeline, _ []Neighbour) *api.Finding {
	var lines []string
	for _, e := range of(t, api.EventFolded) {
		for _, a := range of(t, api.EventAttempt) {
			end := t.FinishedAt
			if a.Attempt.ClosedAt != nil {
				end = a.Attempt.ClosedAt
			}
			if gap := e.At.Sub(t.CreatedAt); e.At.After(a.At) && end != nil && e.At.Before(*end) && gap >= paced {
				lines = append(lines, fmt.Sprintf("a duplicate came %s after the first, while attempt %d was at work", gap.Round(time.Second), a.Attempt.Number))
				break
			}
		}
	}
	if len(lines) == 0 {
		return nil
	}
	return &api.Finding{
		Row: "T7", Title: "somebody gave up waiting while the work went on, and asked again", Evidence: lines,
		Do: "Submit and poll instead of holding the request; or raise the gateway's and the client's timeout above what the kind takes (onefold doctor tells).",
	}
}

// afterRefusal is T8: 429 stands in the timeline.
func afterRefusal(t *api.Timeline, _ []Neighbour) *api.Finding {
	var lines []string
	for _, e := range of(t, api.EventAttempt) {
		if a := e.Attempt; a.Outcome == "refused" {
			lines = append(lines, fmt.Sprintf("attempt %d was turned away (%d %s): nothing was done, no attempt used", a.Number, a.Status, a.Code))
		}
	}
	if len(lines) == 0 {
		return nil
	}
	return &api.Finding{
		Row: "T8", Title: "the provider asked to wait", Evidence: lines,
		Do: "If there is an extra result, look elsewhere: what was refused did not run. Bound the provider's rate in onefold.yaml if this is frequent.",
	}
}

// doubleSubmit is T2: duplicates at once.
func doubleSubmit(t *api.Timeline, _ []Neighbour) *api.Finding {
	var lines []string
	for _, e := range of(t, api.EventFolded) {
		if gap := e.At.Sub(t.CreatedAt); gap < subSecond {
			lines = append(lines, fmt.Sprintf("a duplicate %s after the first (request %s, client %s, %s)", gap.Round(time.Millisecond), word(e.RequestID, "-"), word(e.Client, "-"), word(e.UserAgent, "unnamed")))
		}
	}
	if len(lines) == 0 {
		return nil
	}
	return &api.Finding{
		Row: "T2", Title: "a double submit, or two layers that retry", Evidence: lines,
		Do: "Nothing was done twice here. Compare request ids and user agents to find the second layer; leave retries to one of them.",
	}
}

// pacedRetries is T3 of callers: duplicates at regular gaps.
func pacedRetries(t *api.Timeline, _ []Neighbour) *api.Finding {
	at := []time.Time{t.CreatedAt}
	for _, e := range of(t, api.EventFolded, api.EventReopened) {
		at = append(at, e.At)
	}
	var lines []string
	for i := 1; i < len(at); i++ {
		if gap := at[i].Sub(at[i-1]); gap >= subSecond {
			lines = append(lines, fmt.Sprintf("duplicate %d came %s after the one before", i, gap.Round(100*time.Millisecond)))
		}
	}
	if len(lines) == 0 {
		return nil
	}
	return &api.Finding{
		Row: "T3", Title: "retries of a caller, or redeliveries of its queue", Evidence: lines,
		Do: "Compare the gaps with the caller's backoff and the queue's visibility timeout. The retention must exceed the longest span (onefold doctor tells).",
	}
}

// reused is a key that means two things.
func reused(t *api.Timeline, _ []Neighbour) *api.Finding {
	if t.Refused == 0 {
		return nil
	}
	return &api.Finding{
		Row: "K14", Title: "the key was used for another payload, which was refused", Evidence: []string{fmt.Sprintf("%d submits with another payload were refused", t.Refused)},
		Do: "Give each intent its own key; if it is one intent, find what differs from try to try (the 422 names the fields) and take it out of the payload.",
	}
}

func late(d *api.Delivery) string {
	switch {
	case d.LateAt != nil:
		return fmt.Sprintf("; what came of it was heard at %s: %s", clock(*d.LateAt), d.LateOutcome)
	case d.Answer != "":
		return "; the destination was asked and said " + d.Answer
	}
	return ""
}

func word(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05.000") }

func apart(a, b time.Time) string {
	d := b.Sub(a).Round(time.Millisecond)
	if d < 0 {
		return (-d).String() + " before"
	}
	return d.String() + " after"
}
