package outbox

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/destination"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/telemetry"
)

// How often tests are looked for, and what is counted is told.
const (
	testsEvery  = 500 * time.Millisecond
	signedEvery = 5 * time.Second
	tellFor     = 5 * time.Second
)

// Tend makes the tests that are asked for, one after the other, and tells what signed, until ctx ends.
func (o *Outbox) Tend(ctx context.Context) {
	tests, counts := time.NewTicker(testsEvery), time.NewTicker(signedEvery)
	defer tests.Stop()
	defer counts.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellFor)
			defer cancel()
			if err := o.CountSigned(last); err != nil {
				o.Log.Warn("signatures not counted", "error", err)
			}
			return
		case <-counts.C:
			err = o.CountSigned(ctx)
		case <-tests.C:
			for made := true; made && err == nil; {
				made, err = o.Test(ctx)
			}
		}
		if err != nil && ctx.Err() == nil {
			o.Log.Warn("tests of destinations not looked after", "error", err)
		}
	}
}

// testEvent is the body of a test.
type testEvent struct {
	Type      string    `json:"type"`
	Timestamp time.Time `json:"timestamp"`
	Data      struct {
		Destination string `json:"destination"`
		Test        string `json:"test"`
	} `json:"data"`
}

// Test makes one test that was asked for at a destination this process can send to; false where there is none. The row
// is taken first and what came of it is written last, each by itself: a process that dies in between leaves a test
// without an end, and nobody sends it again. Gates, breakers and effects are neither asked nor told.
func (o *Outbox) Test(ctx context.Context) (made bool, err error) {
	var usable []string
	for name := range maps.Keys(o.Destinations.All()) {
		if o.destination(name) != nil {
			usable = append(usable, name)
		}
	}
	slices.Sort(usable)
	if len(usable) == 0 {
		return false, nil
	}
	t, err := store.StartTest(ctx, o.Pool, usable, destination.TestBegin)
	if err != nil || t == nil {
		return false, err
	}
	to := o.destination(t.Destination)
	if to == nil {
		return true, nil // gone in this moment
	}
	began := o.Clock()
	out, signedBy := o.sendTest(ctx, t, to)
	t.Class, t.Status, t.Code, t.Message, t.Took, t.Signed = string(out.Class), out.Status, out.Code, out.Message, o.Clock()-began, signedBy
	if out.Status < 200 || out.Status > 299 {
		t.Reply = out.Reply[:min(len(out.Reply), MaxReply)]
	}
	o.Log.Info("destination tested", "destination", t.Destination, "class", string(out.Class), "status", out.Status, slog.Duration("total_ms", t.Took))
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellFor)
	defer cancel()
	return true, store.EndTest(limit, o.Pool, *t)
}

func (o *Outbox) sendTest(ctx context.Context, t *store.DestinationTest, to *config.Destination) (Outcome, []string) {
	e := testEvent{Type: "onefold.test", Timestamp: t.RequestedAt.UTC()}
	e.Data.Destination, e.Data.Test = t.Destination, t.ID.String()
	body, err := json.Marshal(e)
	if err != nil {
		return Outcome{Class: NotSent, Message: err.Error()}, nil
	}
	d := Delivery{ID: t.ID, CreatedAt: t.RequestedAt, Attempt: 1, Body: body, Traffic: o.traffic(1)}
	effectType := "webhook"
	if to.Mail() {
		effectType = typeEmail
		d.Headers = map[string]string{"To": t.Recipient, "Subject": "Test of the destination " + t.Destination}
		d.Body = fmt.Appendf(nil, "This mail was sent to test the destination %s of onefold. Nothing is to be done.\n", t.Destination)
	}
	if o.Senders[effectType] == nil {
		return Outcome{Class: NotSent, Message: "this process sends no effects of that type"}, nil
	}
	signedBy, err := o.address(&d, to)
	if err != nil {
		return Outcome{Class: NotSent, Code: CodeNoSecret, Message: telemetry.ScrubError(err)}, nil
	}
	return o.send(ctx, effectType, d), signedBy
}
