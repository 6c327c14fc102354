package outbox

import (
	"context"

	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/telemetry"
)

// CodeArrived is the code of a delivery that was not made, for the destination says that an earlier one arrived.
const CodeArrived = "arrived_before"

// ask asks the destination whether an earlier delivery of unknown outcome arrived. Only an answer that the destination's
// rules know says anything; all else, an error included, cannot tell.
func (o *Outbox) ask(ctx context.Context, c *claimed, to *config.Destination, d Delivery) (config.Answer, Outcome) {
	key, kind, err := store.TaskKey(ctx, o.Pool, c.TaskID)
	if err != nil {
		return config.CheckCannotTell, Outcome{Class: NotSent, Code: CodeWithheld, Message: telemetry.ScrubError(err)}
	}
	in := config.CheckData{
		EffectID: c.ID.String(), EffectName: c.Name, Reference: c.Reference,
		Task: config.TaskData{ID: c.TaskID.String(), Key: key, Kind: kind, Tenant: c.Tenant, Run: int(c.Run)},
	}
	if in.Reference == "" {
		in.Reference = in.EffectID
	}
	r, err := to.Check.Request(in)
	if err != nil {
		return config.CheckCannotTell, Outcome{Class: NotSent, Code: CodeNoSecret, Message: message(err)}
	}
	d.Check, d.Method, d.Path, d.Headers, d.Body, d.Secrets = true, r.Method, r.Path, r.Headers, r.Body, nil
	out := o.send(ctx, c.Type, d)
	if out.Class != Answered {
		return config.CheckCannotTell, out
	}
	return to.Check.Says(out.Status, out.Reply), out
}
