// Package outboxtest decides what every effect kind must do: one suite, run by the tests of each kind against a real
// receiver of its protocol.
package outboxtest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onefold-dev/onefold/internal/outbox"
	"github.com/onefold-dev/onefold/internal/task"
	"github.com/onefold-dev/onefold/internal/telemetry"
)

// Behaviour is what a receiver does with a delivery.
type Behaviour string

// The behaviours.
const (
	Accept Behaviour = "accept" // take it and say so
	Refuse Behaviour = "refuse" // take it and say that it is not wanted as it is
	Fail   Behaviour = "fail"   // take it and report a failure of one's own
	Hang   Behaviour = "hang"   // take it and never answer
	Reset  Behaviour = "reset"  // take it and cut the connection
	Shout  Behaviour = "shout"  // refuse it at endless length
	Dead   Behaviour = "dead"   // nobody listens
)

// Received is one delivery as the receiver got it.
type Received struct {
	ID   string // the stable id, wherever the protocol carries it
	Body []byte
}

// Receiver is a running receiver.
type Receiver struct {
	URL    string
	Secret string // what the sender signs or logs in with

	mu  sync.Mutex
	got []Received
	one chan struct{} // rung at each delivery
}

// NewReceiver makes a receiver that a kind's test fills with life.
func NewReceiver() *Receiver { return &Receiver{one: make(chan struct{}, 1000)} }

// Take notes a delivery.
func (r *Receiver) Take(got Received) {
	r.mu.Lock()
	r.got = append(r.got, got)
	r.mu.Unlock()
	r.one <- struct{}{}
}

// Got returns the deliveries so far.
func (r *Receiver) Got() []Received {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Received(nil), r.got...)
}

// Await waits for the next delivery.
func (r *Receiver) Await(ctx context.Context) error {
	select {
	case <-r.one:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Kind is what a kind brings to the suite.
type Kind struct {
	Sender outbox.Sender
	// Start starts a receiver on loopback that behaves as told and is stopped when t ends.
	Start func(t *testing.T, b Behaviour) *Receiver
	// Header is the name of a header of its own a delivery may carry; "" where the kind has none.
	Header string
	// Prepare fills in what the kind needs of a delivery beside the usual. Nil: nothing.
	Prepare func(d *outbox.Delivery, r *Receiver)
	// Fails and Endless are the classes of Fail and Shout. Default Answered.
	Fails, Endless outbox.Class
	// Lines says that the protocol carries lines of text, so that one without a break at its end gets one.
	Lines bool
}

// delivery is one for r, as this kind sends it.
func (k Kind) delivery(r *Receiver, body string) outbox.Delivery {
	d := outbox.Delivery{
		ID: task.NewID(), CreatedAt: time.Now(), Attempt: 1, Body: []byte(body), URL: telemetry.NewSecret(r.URL), AllowPrivate: true,
	}
	if r.Secret != "" {
		d.Secrets = []telemetry.Secret{telemetry.NewSecret(r.Secret)}
	}
	if k.Prepare != nil {
		k.Prepare(&d, r)
	}
	return d
}

// Run runs the suite.
func Run(t *testing.T, k Kind) {
	for _, c := range []struct {
		name string
		run  func(*testing.T, Kind)
	}{
		{"accepted", accepted},
		{"the same id again", sameID},
		{"classes", classes},
		{"ends with its context", endsWithContext},
		{"never repeats by itself", neverRepeats},
		{"own network", ownNetwork},
		{"endless answer", endlessAnswer},
		{"tells no secret", tellsNoSecret},
		{"many at once", manyAtOnce},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, k)
		})
	}
}

// limit is far beyond what anything here takes.
const limit = 60 * time.Second

func success(out outbox.Outcome) bool {
	return out.Class == outbox.Answered && out.Status >= 200 && out.Status < 300
}

func accepted(t *testing.T, k Kind) {
	r := k.Start(t, Accept)
	for _, body := range []string{`{"a": 1.10}`, "<b>& 😀 1.10\n", strings.Repeat("x", 1<<20)} {
		d := k.delivery(r, body)
		if out := k.Sender.Send(t.Context(), d); !success(out) {
			t.Fatalf("got %+v, want success", out)
		}
		got := r.Got()
		last := got[len(got)-1]
		if k.Lines && !strings.HasSuffix(body, "\n") {
			last.Body = bytes.TrimSuffix(last.Body, []byte("\n"))
		}
		if last.ID != d.ID.String() || !bytes.Equal(last.Body, d.Body) {
			t.Errorf("received id %s and %d bytes, want id %s and the %d bytes sent", last.ID, len(last.Body), d.ID, len(d.Body))
		}
	}
}

func sameID(t *testing.T, k Kind) {
	r := k.Start(t, Accept)
	d := k.delivery(r, `{}`)
	d.Safe = true
	for d.Attempt = 1; d.Attempt <= 3; d.Attempt++ {
		if out := k.Sender.Send(t.Context(), d); !success(out) {
			t.Fatalf("attempt %d: got %+v, want success", d.Attempt, out)
		}
	}
	got := r.Got()
	if len(got) != 3 || got[0].ID != got[1].ID || got[1].ID != got[2].ID {
		t.Errorf("got %d deliveries with ids %v, want three of one id", len(got), got)
	}
}

func classes(t *testing.T, k Kind) {
	for b, want := range map[Behaviour]outbox.Class{
		Accept: outbox.Answered, Refuse: outbox.Answered, Fail: cmp.Or(k.Fails, outbox.Answered), Reset: outbox.Unclear, Dead: outbox.NotSent,
	} {
		for _, safe := range []bool{false, true} {
			r := k.Start(t, b)
			d := k.delivery(r, `{}`)
			d.Safe = safe
			out := k.Sender.Send(t.Context(), d)
			if out.Class != want {
				t.Errorf("%s, safe %t: got %+v, want class %s", b, safe, out, want)
			}
			if out.Class != outbox.Answered && (out.Code == "" || out.Message == "") {
				t.Errorf("%s: got %+v, want a code and a message", b, out)
			}
			if (b == Refuse || b == Fail) && success(out) {
				t.Errorf("%s: got %+v, want no success", b, out)
			}
		}
	}
}

func endsWithContext(t *testing.T, k Kind) {
	r := k.Start(t, Hang)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan outbox.Outcome, 1)
	go func() { done <- k.Sender.Send(ctx, k.delivery(r, `{}`)) }()
	waiting, stop := context.WithTimeout(t.Context(), limit)
	defer stop()
	if err := r.Await(waiting); err != nil {
		t.Fatalf("the delivery never arrived: %v", err)
	}
	cancel()
	select {
	case out := <-done:
		if out.Class != outbox.Unclear {
			t.Errorf("got %+v, want unclear: it had arrived", out)
		}
	case <-waiting.Done():
		t.Error("Send did not return after its context had ended")
	}
}

// neverRepeats warms a connection first: what a kept one hides is what repeats.
func neverRepeats(t *testing.T, k Kind) {
	for _, b := range []Behaviour{Reset, Fail, Refuse} {
		r := k.Start(t, b)
		for i := range 3 {
			d := k.delivery(r, fmt.Sprintf(`{"n":%d}`, i))
			d.Safe = true
			k.Sender.Send(t.Context(), d)
		}
		if got := len(r.Got()); got != 3 {
			t.Errorf("%s: got %d deliveries of three sends, want 3", b, got)
		}
	}
}

func ownNetwork(t *testing.T, k Kind) {
	r := k.Start(t, Accept)
	d := k.delivery(r, `{}`)
	d.AllowPrivate = false
	out := k.Sender.Send(t.Context(), d)
	if out.Class != outbox.Blocked || len(r.Got()) != 0 {
		t.Errorf("got %+v and %d deliveries, want blocked and none", out, len(r.Got()))
	}
}

func endlessAnswer(t *testing.T, k Kind) {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	out := k.Sender.Send(ctx, k.delivery(k.Start(t, Shout), `{}`))
	if out.Class != cmp.Or(k.Endless, outbox.Answered) || success(out) || len(out.Reply) > outbox.MaxReply {
		t.Errorf("got class %s, status %d, %d bytes; want an answer that is no success, at most %d bytes",
			out.Class, out.Status, len(out.Reply), outbox.MaxReply)
	}
}

func tellsNoSecret(t *testing.T, k Kind) {
	const canary = "CANARY-7f3a"
	for _, b := range []Behaviour{Accept, Refuse, Reset, Dead} {
		r := k.Start(t, b)
		d := k.delivery(r, `{"body":"`+canary+`"}`)
		d.URL = telemetry.NewSecret(r.URL + "?token=" + canary)
		if k.Header != "" {
			d.Headers = map[string]string{k.Header: canary}
		}
		out := k.Sender.Send(t.Context(), d)
		text := fmt.Sprintf("%+v", out)
		if strings.Contains(text, canary) || r.Secret != "" && strings.Contains(text, r.Secret) {
			t.Errorf("%s: the outcome tells a secret: %s", b, text)
		}
	}
}

func manyAtOnce(t *testing.T, k Kind) {
	r := k.Start(t, Accept)
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if out := k.Sender.Send(t.Context(), k.delivery(r, `{}`)); !success(out) {
				t.Errorf("got %+v, want success", out)
			}
		})
	}
	all.Wait()
	ids := map[string]bool{}
	for _, g := range r.Got() {
		ids[g.ID] = true
	}
	if len(ids) != 50 || len(r.Got()) != 50 {
		t.Errorf("got %d deliveries of %d ids, want 50 of 50", len(r.Got()), len(ids))
	}
}
