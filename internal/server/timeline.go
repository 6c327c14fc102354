package server

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/diagnose"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
)

// timeline tells everything that is known of a task, oldest first.
func (s *Server) timeline(ctx context.Context, x *exchange, in *ByID) (*answer, error) {
	_, t, err := s.readTimeline(ctx, x, in)
	if err != nil {
		return nil, err
	}
	return jsonAnswer(http.StatusOK, t)
}

// diagnosis says what a task's timeline and its neighbours look like.
func (s *Server) diagnosis(ctx context.Context, x *exchange, in *ByID) (*answer, error) {
	row, t, err := s.readTimeline(ctx, x, in)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	near, err := store.Neighbours(ctx, s.DB, row)
	if err != nil {
		return nil, err
	}
	var others []diagnose.Neighbour
	for _, n := range near {
		o := originOf(n.Origin)
		others = append(others, diagnose.Neighbour{
			ID: n.ID.String(), Key: n.Key, State: api.State(n.State), CreatedAt: n.CreatedAt.UTC(), SameInput: n.SameInput, SameTrace: n.SameTrace,
			Client: o.Client, UserAgent: o.UserAgent,
		})
	}
	return jsonAnswer(http.StatusOK, diagnose.Look(*t, others))
}

func (s *Server) readTimeline(ctx context.Context, x *exchange, in *ByID) (*task.Row, *api.Timeline, error) {
	id, err := s.which(ctx, x, *in)
	if err != nil {
		return nil, nil, err
	}
	row, err := s.find(ctx, x.who.Tenant, id, 0)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	t := &api.Timeline{
		TaskID: row.ID.String(), Kind: row.Kind, Key: row.Key, State: row.State, Run: int(row.Run), Provider: row.Provider, TraceID: row.TraceID,
		InputHash: hex.EncodeToString(row.InputHash), CreatedAt: row.CreatedAt.UTC(), RunAt: row.RunAt.UTC(), Deadline: row.Deadline.UTC(),
		FinishedAt: utc(row.FinishedAt), Error: wire(row).Error, Events: []api.Event{},
	}
	if err := s.tellSubmits(ctx, x.who.Tenant, row, t); err != nil {
		return nil, nil, err
	}
	attempts, err := store.Attempts(ctx, s.DB, x.who.Tenant, id, 0)
	if err != nil {
		return nil, nil, err
	}
	tellAttempts(t, attempts)
	if err := s.tellEffects(ctx, x.who.Tenant, row, t); err != nil {
		return nil, nil, err
	}
	if row.FinishedAt != nil {
		e := api.Event{At: row.FinishedAt.UTC(), What: api.EventSettled, State: row.State}
		if t.Error != nil {
			e.Reason = string(t.Error.Code)
		}
		t.Events = append(t.Events, e)
	}
	slices.SortStableFunc(t.Events, func(a, b api.Event) int {
		if c := a.At.Compare(b.At); c != 0 {
			return c
		}
		return cmp.Compare(slices.Index(api.EventWhats, a.What), slices.Index(api.EventWhats, b.What))
	})
	return row, t, nil
}

type origin struct {
	RequestID string `json:"request_id"`
	Client    string `json:"client"`
	UserAgent string `json:"user_agent"`
	Actor     string `json:"actor"`
}

// originOf reads what a task's row keeps of who made it; nothing, of tasks made before it was kept.
func originOf(text string) (o origin) {
	_ = json.Unmarshal([]byte(text), &o)
	return o
}

func (s *Server) tellSubmits(ctx context.Context, tenant string, row *task.Row, t *api.Timeline) error {
	text, folded, refused, _, err := store.Origin(ctx, s.DB, tenant, row.ID)
	if err != nil {
		return err
	}
	t.Duplicates, t.Refused = folded, refused
	o := originOf(text)
	t.Events = append(t.Events, api.Event{
		At: row.CreatedAt.UTC(), What: api.EventSubmitted, RequestID: o.RequestID, Client: o.Client, UserAgent: o.UserAgent, Actor: o.Actor, TraceID: row.TraceID,
	})
	more, err := store.Submits(ctx, s.DB, tenant, row.ID)
	for _, m := range more {
		t.Events = append(t.Events, api.Event{
			At: m.At.UTC(), What: api.EventWhat(m.What), RequestID: m.RequestID, Client: m.Client, UserAgent: m.UserAgent, Actor: m.Actor, TraceID: m.TraceID,
		})
	}
	return err
}

// tellAttempts adds the attempts. The first waited since the task was due, a later one since the one before it ended.
func tellAttempts(t *api.Timeline, rows []store.Attempt) {
	since := t.CreatedAt
	if len(rows) == 1 && t.RunAt.After(since) {
		since = t.RunAt
	}
	for _, a := range rows {
		w := wireAttempt(a)
		t.Events = append(t.Events, api.Event{At: w.ClaimedAt, What: api.EventAttempt, Attempt: &w, QueueMS: max(w.ClaimedAt.Sub(since).Milliseconds(), 0)})
		if w.ClosedAt != nil {
			since = *w.ClosedAt
		}
	}
}

// tellEffects adds effects and their deliveries, and what the audit has of all of it.
func (s *Server) tellEffects(ctx context.Context, tenant string, row *task.Row, t *api.Timeline) error {
	effects, err := store.EffectsOfTask(ctx, s.DB, tenant, row.ID)
	if err != nil {
		return err
	}
	tries, err := store.DeliveriesOfTask(ctx, s.DB, tenant, row.ID)
	if err != nil {
		return err
	}
	names := map[task.ID]string{}
	var ids []task.ID
	var destinations []string
	until := row.Now
	for _, e := range effects {
		w := wireEffect(e)
		names[e.ID], ids = e.Name, append(ids, e.ID)
		if e.Destination != "" && !slices.Contains(destinations, e.Destination) {
			destinations = append(destinations, e.Destination)
		}
		t.Events = append(t.Events, api.Event{At: w.CreatedAt, What: api.EventEffect, Target: e.Name, Effect: &w})
	}
	for _, d := range tries {
		w := wireDelivery(d)
		t.Events = append(t.Events, api.Event{At: w.StartedAt, What: api.EventDelivery, Target: names[d.EffectID], Delivery: &w})
	}
	return s.tellAudit(ctx, row, ids, destinations, until, t)
}

func (s *Server) tellAudit(ctx context.Context, row *task.Row, effects []task.ID, destinations []string, until time.Time, t *api.Timeline) error {
	if row.FinishedAt != nil && len(destinations) == 0 {
		until = *row.FinishedAt
	}
	acts, err := store.AuditAround(ctx, s.DB, row.ID, effects, row.Provider, destinations, row.CreatedAt.Add(-time.Minute), until)
	for _, a := range acts {
		e := api.Event{At: a.At.UTC(), What: api.EventAct, Actor: a.Actor, Action: a.Action, Reason: a.Reason, RequestID: a.RequestID}
		if a.TargetType == "provider" || a.TargetType == "destination" {
			// An operator's name is for those who operate the instance; a tenant reads that its gate moved.
			e.What, e.Target, e.Actor, e.RequestID = api.EventGate, a.TargetType+" "+a.TargetID, "", ""
		}
		t.Events = append(t.Events, e)
	}
	return err
}
