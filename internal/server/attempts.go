package server

import (
	"context"
	"net/http"
	"strings"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/store"
)

// partialShown is how much of a cut reply's text stands in a list of attempts.
const partialShown = 64 << 10

// attempts lists the ledger's entries of a task.
func (s *Server) attempts(ctx context.Context, x *exchange, in *ByID) (*answer, error) {
	id, err := s.which(ctx, x, *in)
	if err != nil {
		return nil, err
	}
	if _, err := s.find(ctx, x.who.Tenant, id, 0); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	rows, err := store.Attempts(ctx, s.DB, x.who.Tenant, id, partialShown)
	if err != nil {
		return nil, err
	}
	page := api.List[api.Attempt]{Items: make([]api.Attempt, len(rows))}
	for i, a := range rows {
		page.Items[i] = wireAttempt(a)
	}
	return jsonAnswer(http.StatusOK, page)
}

type partParams struct {
	ByID
	Epoch int64  `path:"epoch" minimum:"0" doc:"The attempt's epoch."`
	Part  string `path:"part" enum:"partial,reply,late_result,kept_result" doc:"What is kept of the attempt."`
}

// attemptPart answers with what is kept of an attempt. It is a provider's or a
// model's word, so no browser may take it for a page.
func (s *Server) attemptPart(ctx context.Context, x *exchange, in *partParams) (*answer, error) {
	id, err := s.which(ctx, x, in.ByID)
	if err != nil {
		return nil, err
	}
	if _, err := s.find(ctx, x.who.Tenant, id, 0); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	body, err := store.AttemptPart(ctx, s.DB, x.who.Tenant, id, in.Epoch, in.Part)
	if err != nil {
		return nil, err
	}
	if body == nil {
		return nil, api.Errorf(api.CodeNotFound, "of this attempt there is no %s", in.Part).
			WithFix("The list of attempts names in parts what is kept of each.")
	}
	a := &answer{status: http.StatusOK, body: body}
	a.set("Content-Type", bytesType)
	return a, nil
}

func wireAttempt(a store.Attempt) api.Attempt {
	w := api.Attempt{
		Epoch: a.Epoch, Run: int(a.Run), Number: int(a.Number), Outcome: a.Outcome, Counted: a.Counted, Provider: a.Provider, Model: a.Model,
		Code: a.Code, Message: a.Message, Status: int(a.Status), Phase: a.Phase, RequestID: a.RequestID, ProviderJob: a.ProviderJob,
		ClaimedAt: a.ClaimedAt.UTC(), SentAt: utc(a.DispatchedAt), ClosedAt: utc(a.ClosedAt), ConnectMS: a.ConnectMS, FirstByteMS: a.FirstByteMS,
		TotalMS: a.TotalMS, Bytes: a.Bytes, Usage: a.Usage, Billed: a.Billed, Sends: int(a.Sends), Regeneration: a.Regeneration,
		Orphaned: a.Orphaned, FinishReason: a.FinishReason, Truncated: a.Truncated,
		Partial: strings.ToValidUTF8(string(a.Partial), ""), PartialBytes: a.PartialBytes, LateAt: utc(a.LateAt),
	}
	for _, p := range a.Parts {
		w.Parts = append(w.Parts, api.AttemptPart(p))
	}
	return w
}
