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
	c, err := o.marks.Do(context.WithoutCancel(ctx), &claim{id: id})
	if err != nil {
		o.Log.Error("effect not marked", "effect_id", id.String(), "error", err)
		return
	}
	if c == nil {
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

	began := o.Clock()
	out := o.send(ctx, c, to)
	took := o.Clock() - began
	standing := Standing{
		Attempts: c.Attempts, Misses: c.Misses, FirstGap: c.FirstGap + took, Unclear: c.Unclear, Safe: to.Repeat == config.RepeatSafe,
	}
	v := Triage(standing, out, o.Random)
	line.Add(slog.String("class", string(out.Class)), slog.String("state", string(v.To)), slog.Duration("total_ms", took))
	if out.Status != 0 {
		line.Add(slog.Int("status", out.Status))
	}
	if v.To != api.EffectDelivered {
		line.Add(slog.String("code", v.Code), slog.String("reason", v.Message))
		line.Raise(slog.LevelWarn)
	}
	if v.To == api.EffectWaiting {
		line.Add(slog.Duration("wait_ms", v.After))
	}
	recorded, err := o.record(ctx, newEnding(c, v, out, took))
	if err == nil && !recorded {
		line.Add(slog.Bool("fenced", true))
	}
	line.Fail(err)
}

// send makes one try. It never returns before the try is over.
func (o *Outbox) send(ctx context.Context, c *claimed, to *config.Destination) (out Outcome) {
	switch {
	case ctx.Err() != nil:
		return Outcome{Class: withheld, Code: CodeWithheld, Message: "the worker is stopping"}
	case !o.MaySend() || o.Clock()-c.began > sendWithin || failpoint.Hit(failpoint.SendBefore) != nil:
		return Outcome{
			Class: withheld, Code: CodeWithheld, RetryAfter: withheldFor,
			Message: "the worker had not heard from the database lately, so it did not begin",
		}
	}
	d, err := newDelivery(c, to)
	if err != nil {
		return Outcome{Class: NotSent, Code: CodeNoSecret, Message: telemetry.ScrubError(err)}
	}
	d.Traffic = o.traffic(c.Attempts)
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), SendLimit)
	defer cancel()
	if d.Safe {
		defer context.AfterFunc(ctx, cancel)()
	}
	defer func() {
		if r := recover(); r != nil {
			o.Log.Error("sender panicked", "effect_type", c.Type, "panic", fmt.Sprint(r))
			out = Outcome{Class: Unclear, Code: string(api.CodeInternal), Message: "the delivery ended in an internal error"}
		}
	}()
	out = o.Senders[c.Type].Send(limit, d)
	if failpoint.Hit(failpoint.SendAfter) != nil {
		out = Outcome{Class: Unclear, Code: string(api.CodeConnection), Message: "the answer was lost"}
	}
	if len(out.Reply) > MaxReply {
		out.Reply = out.Reply[:MaxReply]
	}
	return out
}

// traffic is a dictionary of RFC 9651: who calls, from where, and at which try of how many.
func (o *Outbox) traffic(attempt int32) string {
	parts := []string{`version=` + strconv.QuoteToASCII(o.Version)}
	if o.Region != "" {
		parts = append(parts, `region=`+strconv.QuoteToASCII(o.Region))
	}
	return strings.Join(append(parts, fmt.Sprintf("attempt=%d, of=%d", attempt, len(Schedule))), ", ")
}

func newDelivery(c *claimed, to *config.Destination) (Delivery, error) {
	d := Delivery{
		ID: c.ID, CreatedAt: c.CreatedAt, Attempt: int(c.Attempts), Method: c.Method, Path: c.Path, Body: c.Body,
		URL: telemetry.NewSecret(to.URL.Reveal()), AllowPrivate: to.AllowPrivate, Plaintext: to.Plaintext,
		User: to.Username, From: to.From, IdempotencyHeader: to.IdempotencyHeader, Safe: to.Repeat == config.RepeatSafe,
	}
	if len(c.Headers) > 0 {
		if err := json.Unmarshal(c.Headers, &d.Headers); err != nil {
			return d, fmt.Errorf("read stored headers: %w", err)
		}
	}
	if to.Auth != nil {
		s, err := to.Auth.Get()
		if err != nil {
			return d, err
		}
		d.Credential = s
		if !to.Mail() {
			d.CredentialHeader, d.Credential = to.AuthHeader, bearer(to.AuthHeader, s)
		}
	}
	if to.Secret != nil {
		s, err := to.Secret.Get()
		if err != nil {
			return d, err
		}
		d.Secrets = append(d.Secrets, s)
	}
	if to.Previous != nil { // one that has been taken away already signs nothing
		if s, err := to.Previous.Get(); err == nil && !s.Empty() {
			d.Secrets = append(d.Secrets, s)
		}
	}
	return d, nil
}

// bearer is how a credential of one word stands in Authorization; others stand as they are.
func bearer(header string, s telemetry.Secret) telemetry.Secret {
	if !strings.EqualFold(header, "Authorization") || strings.ContainsRune(s.Reveal(), ' ') {
		return s
	}
	return telemetry.NewSecret("Bearer " + s.Reveal())
}

func newEnding(c *claimed, v Verdict, out Outcome, took time.Duration) *ending {
	e := &ending{
		DeliveryEnd: store.DeliveryEnd{
			Fence: task.Fence{ID: c.ID, Epoch: c.Epoch, Token: c.Token},
			To:    v.To, After: v.After, GiveBack: v.GiveBack, Misses: v.Misses, Unclear: v.Unclear, Outcome: v.Delivery,
			Status: out.Status, Code: v.Code, Message: v.Message, Took: took,
		},
		destination: c.Destination, jobID: c.JobID, owner: c.owner, number: c.Attempts,
	}
	if k, ordered := c.OrderKey(); ordered {
		e.order = &k
	}
	if v.To != api.EffectDelivered {
		e.Reply = out.Reply
	}
	return e
}
