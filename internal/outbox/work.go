package outbox

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/failpoint"
	"github.com/onefold-dev/onefold/internal/gate"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
	"github.com/onefold-dev/onefold/internal/telemetry"
)

// withheld: this process chose not to begin (it is stopping, or its heartbeat is too old); nothing was sent.
const withheld Class = "withheld"

// sendWithin is how old a mark may be when its send begins: the reaper counts from the mark, and SendLimit plus this
// must stay below what it waits (SendLimit plus a lease).
const sendWithin = 5 * time.Second

// Work delivers the effect a wake-up names: it marks it, sends it with no transaction open and records the outcome. It
// is the job.Handler of effect wake-ups and returns when this process is done with the effect, whatever came of it.
//
// When ctx ends, nothing new is begun, and a delivery that may be repeated is cut short; one that may not runs to its
// end, at most SendLimit.
func (o *Outbox) Work(ctx context.Context, id uuid.UUID) {
	if failpoint.Hit(failpoint.EffectFetched) != nil || ctx.Err() != nil {
		return
	}
	pass, full, err := o.enter(ctx, id)
	if err != nil {
		o.Log.Error("effect not looked at", "effect_id", id.String(), "error", err)
		return
	}
	defer pass.Leave()
	c, err := o.marks.Do(context.WithoutCancel(ctx), &claim{id: id, full: full})
	if err != nil || c == nil {
		pass.Unused()
		if err != nil {
			o.Log.Error("effect not marked", "effect_id", id.String(), "error", err)
		}
		return
	}
	defer o.flights.end(id)
	o.deliver(ctx, c)
}

func (o *Outbox) deliver(ctx context.Context, c *claimed) {
	to := o.destination(c.Destination)
	line := telemetry.NewLine(o.Log, telemetry.MsgDelivery,
		slog.String("tenant", c.Tenant), slog.String("task_id", c.TaskID.String()), slog.Int("run", int(c.Run)),
		slog.String("effect_id", c.ID.String()), slog.String("effect_name", c.Name), slog.String("effect_type", c.Type),
		slog.String("destination", c.Destination), slog.Int("attempt", int(c.Attempts)), slog.Int64("epoch", c.Epoch))
	defer line.Emit(ctx)

	ctx, span := o.trace(ctx, c)
	began := o.Clock()
	t := o.try(ctx, c, to)
	took := o.Clock() - began
	standing := Standing{
		Attempts: c.Attempts, Misses: c.Misses, FirstGap: c.FirstGap + took, Unclear: c.Unclear && t.answer != config.CheckNotDone,
		Safe: to.Repeat == config.RepeatSafe,
	}
	if to.Check != nil {
		standing.Asks, standing.AskAfter = true, to.Check.After
	}
	v := o.verdict(standing, c, t)
	line.Add(slog.String("class", string(t.out.Class)), slog.String("state", string(v.To)), slog.Duration("total_ms", took))
	if t.out.Status != 0 {
		line.Add(slog.Int("status", t.out.Status))
	}
	if t.answer != "" {
		line.Add(slog.String("answer", string(t.answer)))
	}
	if v.To != api.EffectDelivered {
		line.Add(slog.String("code", v.Code), slog.String("reason", v.Message))
		line.Raise(slog.LevelWarn)
	}
	if v.To == api.EffectWaiting {
		line.Add(slog.Duration("wait_ms", v.After))
	}
	defer delivered(span, v, t.answer)
	e := newEnding(c, v, t, took)
	recorded, err := o.record(ctx, e)
	if err == nil && recorded {
		e.count(c.Type, t.out.Status, span)
	}
	if err == nil && !recorded {
		fencedTotal.WithLabelValues(c.Destination).Inc()
		line.Add(slog.Bool("fenced", true))
	}
	line.Fail(err)
}

// verdict is what follows from a try, or from a check that ended it.
func (o *Outbox) verdict(s Standing, c *claimed, t tried) (v Verdict) {
	switch t.answer {
	case config.CheckDone:
		v = Verdict{
			To: api.EffectDelivered, Delivery: "delivered", Gate: gate.Healthy, Code: CodeArrived, GiveBack: true,
			Message: "an earlier delivery had arrived: the destination says so",
		}
	case config.CheckCannotTell:
		v = Asked(s, c.Asked+1, t.out, o.Random)
	default:
		v = Triage(s, t.out, o.Random)
	}
	if v.To == api.EffectHeld && o.Gates == nil { // nobody would release it
		v.To, v.GiveBack, v.Delivery = api.EffectWaiting, false, "retry"
		v.After = step(min(int(c.Attempts), len(Schedule)-1), o.Random)
	}
	return v
}

// tried is what came of one try: of the send, or of the check before it where that ended the try.
type tried struct {
	out      Outcome
	answer   config.Answer // "" where nothing was asked
	asked    int           // the status of the answer
	signedBy []string
	// credential is the fingerprint of the one that was used.
	credential []byte
}

// try makes one try. It never returns before the try is over.
func (o *Outbox) try(ctx context.Context, c *claimed, to *config.Destination) (t tried) {
	if out := o.withhold(ctx, c); out != nil {
		return tried{out: *out}
	}
	t.credential = o.Gates.Fingerprint(gate.Destination(c.Destination))
	d, signedBy, err := o.newDelivery(c, to)
	if err != nil {
		t.out = Outcome{Class: NotSent, Code: CodeNoSecret, Message: telemetry.ScrubError(err)}
		return t
	}
	if c.Unclear && !d.Safe && to.Check != nil {
		t.answer, t.out = o.ask(ctx, c, to, d)
		t.asked = t.out.Status
		if t.answer != config.CheckNotDone {
			return t
		}
		// The question took its time: what may be begun is looked at again.
		if out := o.withhold(ctx, c); out != nil {
			t.out = *out
			return t
		}
	}
	t.signedBy = signedBy
	t.out = o.send(ctx, c.Type, d)
	if t.out.Class == Answered || t.out.Class == Unclear {
		o.signed.add(c.Destination, signedBy)
	}
	return t
}

// withhold says why nothing may be begun now, or nil.
func (o *Outbox) withhold(ctx context.Context, c *claimed) *Outcome {
	switch {
	case ctx.Err() != nil:
		return &Outcome{Class: withheld, Code: CodeWithheld, Message: "the worker is stopping"}
	case !o.MaySend() || o.Clock()-c.began > sendWithin || failpoint.Hit(failpoint.SendBefore) != nil:
		return &Outcome{
			Class: withheld, Code: CodeWithheld, RetryAfter: withheldFor,
			Message: "the worker had not heard from the database lately, so it did not begin",
		}
	}
	return nil
}

// send makes one send.
func (o *Outbox) send(ctx context.Context, effectType string, d Delivery) (out Outcome) {
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), SendLimit)
	defer cancel()
	if d.Safe {
		defer context.AfterFunc(ctx, cancel)()
	}
	defer func() {
		if r := recover(); r != nil {
			o.Log.Error("sender panicked", "effect_type", effectType, "panic", fmt.Sprint(r))
			out = Outcome{Class: Unclear, Code: string(api.CodeInternal), Message: "the delivery ended in an internal error"}
		}
	}()
	limit, span := o.traceSend(limit, effectType, d)
	defer func() { sent(span, out) }()
	out = o.Senders[effectType].Send(limit, d)
	if failpoint.Hit(failpoint.SendAfter) != nil {
		out = Outcome{Class: Unclear, Code: string(api.CodeConnection), Message: "the answer was lost"}
	}
	if len(out.Reply) > MaxReply && !d.Check {
		out.Reply = out.Reply[:MaxReply]
	}
	return out
}

// newDelivery is the send of a marked effect, and the ids of the secrets that sign it.
func (o *Outbox) newDelivery(c *claimed, to *config.Destination) (d Delivery, signedBy []string, err error) {
	d = Delivery{
		ID: c.ID, CreatedAt: c.CreatedAt, Attempt: int(c.Attempts), Method: c.Method, Path: c.Path, Body: c.Body, Traffic: o.traffic(c.Attempts),
	}
	if len(c.Headers) > 0 {
		if err := json.Unmarshal(c.Headers, &d.Headers); err != nil {
			return d, nil, fmt.Errorf("read stored headers: %w", err)
		}
	}
	signedBy, err = o.address(&d, to)
	return d, signedBy, err
}

// address fills in what a delivery takes from its destination.
func (o *Outbox) address(d *Delivery, to *config.Destination) (signedBy []string, err error) {
	d.URL = telemetry.NewSecret(to.URL.Reveal())
	d.AllowPrivate, d.Plaintext, d.Safe = to.AllowPrivate, to.Plaintext, to.Repeat == config.RepeatSafe
	d.User, d.From, d.IdempotencyHeader = to.Username, to.From, to.IdempotencyHeader
	if to.Auth != nil {
		s, err := to.Auth.Get()
		if err != nil {
			return nil, err
		}
		d.Credential = s
		if !to.Mail() {
			d.CredentialHeader, d.Credential = to.AuthHeader, bearer(to.AuthHeader, s)
		}
	}
	for _, s := range o.Destinations.Signers(to) {
		secret, err := s.Source.Get()
		if err != nil && s.Present {
			return nil, err
		}
		if err != nil || secret.Empty() { // a former one that has been taken away signs nothing
			continue
		}
		d.Secrets, signedBy = append(d.Secrets, secret), append(signedBy, s.ID)
	}
	return signedBy, nil
}

// traffic is a dictionary of RFC 9651: who calls, from where, and at which try of how many.
func (o *Outbox) traffic(attempt int32) string {
	parts := []string{`version=` + strconv.QuoteToASCII(o.Version)}
	if o.Region != "" {
		parts = append(parts, `region=`+strconv.QuoteToASCII(o.Region))
	}
	return strings.Join(append(parts, fmt.Sprintf("attempt=%d, of=%d", attempt, len(Schedule))), ", ")
}

// bearer is how a credential of one word stands in Authorization; others stand as they are.
func bearer(header string, s telemetry.Secret) telemetry.Secret {
	if !strings.EqualFold(header, "Authorization") || strings.ContainsRune(s.Reveal(), ' ') {
		return s
	}
	return telemetry.NewSecret("Bearer " + s.Reveal())
}

func newEnding(c *claimed, v Verdict, t tried, took time.Duration) *ending {
	e := &ending{
		DeliveryEnd: store.DeliveryEnd{
			Fence: task.Fence{ID: c.ID, Epoch: c.Epoch, Token: c.Token},
			To:    v.To, After: v.After, GiveBack: v.GiveBack, Misses: v.Misses, Unclear: v.Unclear, Asked: v.Asked, Outcome: v.Delivery,
			Status: t.out.Status, Code: v.Code, Message: v.Message, Took: took, Answer: string(t.answer), AnswerStatus: t.asked, Signed: t.signedBy,
		},
		destination: c.Destination, jobID: c.JobID, owner: c.owner, number: c.Attempts,
	}
	if t.answer != "" && t.signedBy == nil && t.answer != config.CheckNotDone {
		e.Status = 0 // nothing was delivered; the status is the answer's
	}
	if k, ordered := c.OrderKey(); ordered {
		e.order = &k
	}
	if v.To != api.EffectDelivered {
		e.Reply = t.out.Reply[:min(len(t.out.Reply), MaxReply)]
	}
	if v.Gate != "" {
		e.seen = &gate.Observation{
			Gate: gate.Destination(c.Destination), What: v.Gate, Reason: v.Message, RetryAfter: v.Cool, Task: c.TaskID, Credential: t.credential,
		}
	}
	return e
}
