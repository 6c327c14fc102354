package task

import (
	"encoding/hex"
	"time"

	"github.com/onefold-dev/onefold/api"
)

// Wire is the row as callers see it.
func (r *Row) Wire() *api.Task {
	deadline := r.Deadline.UTC()
	t := &api.Task{
		ID: r.ID.String(), Kind: r.Kind, Key: r.Key, State: r.State, Run: int(r.Run), Epoch: r.Epoch,
		InputHash: hex.EncodeToString(r.InputHash), Result: r.Result, FinishReason: r.FinishReason, Truncated: r.Truncated,
		Attempts: int(r.Attempts), Duplicates: r.Duplicates, Priority: int(r.Priority), CancelAsked: r.CancelRequested && r.State == api.Running,
		RunAt: r.RunAt.UTC(), Deadline: &deadline, CreatedAt: r.CreatedAt.UTC(), StartedAt: utc(r.StartedAt),
		FinishedAt: utc(r.FinishedAt), ExpiresAt: utc(r.ExpiresAt), TraceID: r.TraceID, Metadata: r.Metadata,
	}
	if r.ParentID != nil {
		t.ParentID = r.ParentID.String()
	}
	if r.DuplicateOf != nil {
		t.DuplicateOf = r.DuplicateOf.String()
	}
	if r.BatchID != nil {
		t.BatchID = r.BatchID.String()
	}
	if r.TotalAttempts > 0 {
		u := r.Usage
		t.Usage = &u
	}
	if r.PayloadPurgedAt != nil {
		t.PayloadPurgedAt = utc(r.PayloadPurgedAt)
		t.ResultExpired, t.ResultHash = r.ResultHash != nil, hex.EncodeToString(r.ResultHash)
	}
	if r.ErrorCode != "" {
		t.Error = WireError(r.ErrorCode, r.ErrorMessage, r.Permanent())
	}
	return t
}

// WireError is a task's error as callers see it.
func WireError(code, message string, permanent bool) *api.TaskError {
	return &api.TaskError{Code: code, Message: message, Permanent: permanent, Fix: api.Codes[api.Code(code)].Fix}
}

func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}
