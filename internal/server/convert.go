package server

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
)

// wire is a row as callers see it.
func wire(r *task.Row) *api.Task { return r.Wire() }

func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}

// etag names a state of a task: everything callers see of it but duplicates,
// which change while nothing of the task does. It is weak for that reason.
func etag(r *task.Row) (string, error) {
	t := wire(r)
	t.Duplicates, t.Result = 0, nil
	b, err := json.Marshal(t)
	if err != nil {
		return "", fmt.Errorf("encode task %s: %w", r.ID, err)
	}
	h := sha256.New()
	h.Write(b)
	h.Write(r.ResultHash)
	fmt.Fprint(h, r.PayloadPurgedAt != nil)
	return `W/"` + hex.EncodeToString(h.Sum(nil)[:16]) + `"`, nil
}

// strongTag names bytes that never change.
func strongTag(hash []byte) string { return `"` + hex.EncodeToString(hash) + `"` }

// wireEffect is an effect as callers see it.
func wireEffect(e store.Effect) api.Effect {
	w := api.Effect{
		ID: e.ID.String(), TaskID: e.TaskID.String(), Run: int(e.Run), Name: e.Name, Type: e.Type, Destination: e.Destination,
		Reference: e.Reference, State: e.State, Epoch: e.Epoch, Attempts: int(e.Attempts), CreatedAt: e.CreatedAt.UTC(), FinishedAt: utc(e.FinishedAt),
	}
	if e.State == api.EffectWaiting {
		w.NextAt = utc(e.NextAt) // none while it waits for another of its order
	}
	if e.ErrorCode != "" {
		w.Error = &api.TaskError{
			Code: e.ErrorCode, Message: e.ErrorMessage, Permanent: e.State == api.EffectDead, Fix: api.EffectCodes[api.Code(e.ErrorCode)].Fix,
		}
	}
	return w
}

// wireDelivery is a try at an effect as callers see it.
func wireDelivery(d store.Delivery) api.Delivery {
	return api.Delivery{
		Epoch: d.Epoch, Number: int(d.Number), Outcome: d.Outcome, Status: d.Status, Code: d.Code, Message: d.Message,
		StartedAt: d.StartedAt.UTC(), ClosedAt: utc(d.ClosedAt), TotalMS: int64(d.TotalMS), Answer: d.Answer, AnswerStatus: d.AnswerStatus,
		LateAt: utc(d.LateAt), LateOutcome: d.LateOutcome, LateStatus: d.LateStatus,
		Reply: text(d.Reply), ReplyBytes: d.ReplyBytes,
	}
}

// text is what a receiver said, as far as JSON can hold it.
func text(b []byte) string {
	return strings.ReplaceAll(strings.ToValidUTF8(string(b), "\uFFFD"), "\x00", "\uFFFD")
}
