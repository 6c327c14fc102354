package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/canon"
	"github.com/onefold-dev/onefold/internal/review"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/submission"
	"github.com/onefold-dev/onefold/internal/submit"
	"github.com/onefold-dev/onefold/internal/task"
)

type reviewParams struct {
	What        string    `query:"what" enum:"task,effect" doc:"Only tasks, or only effects."`
	Kind        string    `query:"kind" maxLength:"255" doc:"Only this kind, or effects of its tasks."`
	Destination string    `query:"destination" maxLength:"100" doc:"Only effects to this destination."`
	Reason      string    `query:"reason" enum:"unknown,dead,exhausted,overdue,stuck" doc:"Only for this reason."`
	Age         string    `query:"age" enum:"1h,24h,older" doc:"Only what has been in the queue for up to an hour, up to a day, or longer."`
	Since       time.Time `query:"since" doc:"Only what came into the queue at this time or after it (RFC 3339)."`
	Until       time.Time `query:"until" doc:"Only what came into the queue before this time."`
	Tenant      string    `query:"tenant" maxLength:"63" doc:"Only this tenant's; for instance keys."`
	Count       bool      `query:"count" doc:"Also count what the filters find, by reason and age."`
	Limit       int       `query:"limit" minimum:"1" maximum:"200" default:"50" doc:"Items a page."`
	Cursor      string    `query:"cursor" maxLength:"100" doc:"The next of the page before, with the same filters."`
}

func (s *Server) review(ctx context.Context, x *exchange, in *reviewParams) (*answer, error) {
	f, err := in.filter(x.who.Tenant, time.Now())
	if err != nil {
		return nil, err
	}
	mark := in.mark(x.who.Tenant)
	if f.From, err = readPlace(in.Cursor, mark); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*readTimeout)
	defer cancel()
	items, next, err := s.Review.List(ctx, f, api.ReviewWhat(in.What), in.Limit)
	if err != nil {
		return nil, err
	}
	page := api.ReviewPage{Items: make([]api.ReviewItem, len(items))}
	for i := range items {
		page.Items[i] = wireReview(&items[i])
	}
	if next != nil {
		cursor := writePlace(*next, mark)
		page.Next = &cursor
	}
	if in.Count {
		if page.Count, err = s.countReview(ctx, f, in.What); err != nil {
			return nil, err
		}
	}
	return jsonAnswer(http.StatusOK, page)
}

func (s *Server) countReview(ctx context.Context, f store.ReviewFilter, what string) (*api.ReviewCount, error) {
	f.From = nil
	rows, atLeast, err := store.CountReview(ctx, s.DB, f)
	if err != nil {
		return nil, err
	}
	c := &api.ReviewCount{AtLeast: atLeast, Ages: []api.ReviewCountByAge{}}
	for _, r := range rows {
		if what == "" || what == string(r.What) {
			c.Total += r.Count
			c.Ages = append(c.Ages, api.ReviewCountByAge{What: r.What, Reason: r.Reason, Age: r.Age, Count: r.Count})
		}
	}
	return c, nil
}

func (p *reviewParams) filter(tenant string, now time.Time) (store.ReviewFilter, error) {
	f := store.ReviewFilter{
		Tenant: tenant, Kind: p.Kind, Destination: p.Destination, Reason: api.ReviewReason(p.Reason), Since: p.Since, Until: p.Until,
	}
	for name, text := range map[string]string{"kind": p.Kind, "destination": p.Destination, "tenant": p.Tenant} {
		if !storable(text) {
			return f, api.Errorf(api.CodeInvalidParam, "%s holds characters that no %s has", name, name).WithField(name)
		}
	}
	if p.Tenant != "" {
		if tenant != "" && tenant != p.Tenant {
			return f, api.Errorf(api.CodeForbidden, "this key sees its own tenant only").WithField("tenant")
		}
		f.Tenant = p.Tenant
	}
	later := func(t time.Time) {
		if f.Since.Before(t) {
			f.Since = t
		}
	}
	sooner := func(t time.Time) {
		if f.Until.IsZero() || f.Until.After(t) {
			f.Until = t
		}
	}
	switch api.ReviewAge(p.Age) {
	case api.AgeHour:
		later(now.Add(-time.Hour))
	case api.AgeDay:
		later(now.Add(-24 * time.Hour))
		sooner(now.Add(-time.Hour))
	case api.AgeOlder:
		sooner(now.Add(-24 * time.Hour))
	}
	return f, nil
}

// mark ties a cursor to what it is a place in: the tenant and the filters.
func (p *reviewParams) mark(tenant string) []byte {
	what := *p
	what.Limit, what.Cursor, what.Count = 0, "", false
	b, err := json.Marshal(struct {
		Key string
		reviewParams
	}{tenant, what})
	if err != nil {
		panic(err) // texts and times only
	}
	sum := sha256.Sum256(b)
	return sum[:8]
}

// writePlace and readPlace do for the review queue what writeCursor does for
// lists of tasks.
func writePlace(p store.ReviewPlace, mark []byte) string {
	b := binary.BigEndian.AppendUint64(nil, uint64(p.Since.UnixMicro()))
	b = append(append(b, p.ID[:]...), mark...)
	sum := sha256.Sum256(b)
	return base64.RawURLEncoding.EncodeToString(append(b, sum[:16]...))
}

func readPlace(text string, mark []byte) (*store.ReviewPlace, error) {
	if text == "" {
		return nil, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil && len(b) == 48 {
		sum := sha256.Sum256(b[:32])
		if bytes.Equal(sum[:16], b[32:]) && bytes.Equal(b[24:32], mark) {
			return &store.ReviewPlace{Since: time.UnixMicro(int64(binary.BigEndian.Uint64(b))), ID: task.ID(b[8:24])}, nil
		}
	}
	return nil, api.Errorf(api.CodeInvalidParam, "the cursor is not one of this list").WithField("cursor").
		WithFix("Send next of the page before as it was, with the same filters and API key; or begin again without a cursor.")
}

type reviewByID struct {
	ID string `path:"id" doc:"The id of a task or an effect."`
}

func (p reviewByID) parse() (task.ID, error) {
	id, err := uuid.Parse(p.ID)
	if err != nil || len(p.ID) != 36 {
		return id, noEffect()
	}
	return id, nil
}

func noEffect() error { return api.Errorf(api.CodeNotFound, "there is no such effect") }

func (s *Server) reviewItem(ctx context.Context, x *exchange, in *reviewByID) (*answer, error) {
	none := api.Errorf(api.CodeNotFound, "it is not in the review queue").WithFix("Read the task, or its effects: GET /v1/tasks/{id}/effects.")
	id, err := in.parse()
	if err != nil {
		return nil, none
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	item, err := s.Review.Find(ctx, x.who.Tenant, id)
	if err != nil {
		return nil, err
	}
	if item == nil {
		return nil, none
	}
	d := api.ReviewDetail{ReviewItem: wireReview(item), Acts: []api.AuditEntry{}}
	if item.What == api.ReviewTask {
		rows, err := store.Attempts(ctx, s.DB, x.who.Tenant, id, partialShown)
		if err != nil {
			return nil, err
		}
		for _, a := range rows {
			d.TriedAttempts = append(d.TriedAttempts, wireAttempt(a))
		}
	} else {
		rows, err := store.Deliveries(ctx, s.DB, []task.ID{id}, 100)
		if err != nil {
			return nil, err
		}
		for _, r := range rows[id] {
			d.Deliveries = append(d.Deliveries, wireDelivery(r))
		}
	}
	acts, err := store.Acts(ctx, s.DB, string(item.What), id.String())
	if err != nil {
		return nil, err
	}
	for _, a := range acts {
		d.Acts = append(d.Acts, api.AuditEntry{At: a.At.UTC(), Actor: a.Actor, Action: a.Action, Reason: a.Reason})
	}
	return jsonAnswer(http.StatusOK, d)
}

func wireReview(i *review.Item) api.ReviewItem {
	w := api.ReviewItem{
		What: i.What, ID: i.ID.String(), TaskID: i.TaskID.String(), Tenant: i.Tenant, Kind: i.Kind, Key: i.Key, State: i.State, Run: int(i.Run),
		Epoch: i.Epoch, Reason: i.Reason, Since: i.Since.UTC(), Age: i.Age(), CreatedAt: i.CreatedAt.UTC(), DueAt: i.DueAt.UTC(),
		Name: i.Name, Type: i.Type, Destination: i.Destination, Reference: i.Reference, Behind: i.Behind, Unclear: i.Unclear,
		Attempts: int(i.Attempts), Compensations: int(i.Compensations), Actions: i.Actions(),
	}
	if i.Code != "" {
		w.Error = task.WireError(i.Code, i.Message, false)
		if i.What == api.ReviewEffect {
			w.Error.Fix = api.EffectCodes[api.Code(i.Code)].Fix
		}
	}
	if i.Attempt != nil {
		a := wireAttempt(*i.Attempt)
		w.LastAttempt = &a
	}
	if i.Delivery != nil {
		d := wireDelivery(*i.Delivery)
		d.Reply = "" // in the list its length is enough
		w.LastDelivery = &d
	}
	return w
}

// effectBody is the body of an act on an effect.
type effectBody struct {
	Epoch  int64  `json:"epoch" doc:"The effect's epoch as you saw it."`
	Reason string `json:"reason" doc:"How you know, for the audit."`
}

type resolveEffectBody struct {
	Action string `json:"action" enum:"delivered"`
	Epoch  int64  `json:"epoch" doc:"The effect's epoch as you saw it."`
	Reason string `json:"reason" doc:"How you know, for the audit."`
}

// effectAct serves one act on an effect; without an action the body names it.
func (s *Server) effectAct(action api.ReviewAction) func(context.Context, *exchange, *reviewByID) (*answer, error) {
	return func(ctx context.Context, x *exchange, in *reviewByID) (*answer, error) {
		known := []string{"epoch", "reason"}
		if action == "" {
			known = append(known, "action")
		}
		f, err := x.fields(known...)
		if err != nil {
			return nil, err
		}
		id, err := in.parse()
		if err != nil {
			return nil, err
		}
		do := action
		if do == "" {
			if f.action != string(api.ReviewDelivered) {
				return nil, api.Errorf(api.CodeInvalidField, "action is not delivered").WithField("action").
					WithFix("Use the routes redeliver and discard for the others.")
			}
			do = api.ReviewDelivered
		}
		e, err := s.Review.Effect(ctx, x.act(id, f), do)
		if err != nil {
			return nil, err
		}
		x.line.Add(slog.String("effect_id", id.String()), slog.String("state", string(e.State)))
		return jsonAnswer(http.StatusOK, wireEffect(*e))
	}
}

// maxReviewActs bounds the items of one request.
const maxReviewActs = 1000

func (s *Server) reviewActs(ctx context.Context, x *exchange, _ *none) (*answer, error) {
	acts, err := x.readActs()
	if err != nil {
		return nil, err
	}
	out := api.List[api.ReviewActed]{Items: make([]api.ReviewActed, len(acts.Items))}
	refusedNow := 0
	for i, item := range acts.Items {
		out.Items[i].ID = item.ID
		id, err := uuid.Parse(item.ID)
		if err != nil || len(item.ID) != 36 {
			out.Items[i].Error = api.Errorf(api.CodeNotFound, "there is no such task or effect")
			refusedNow++
			continue
		}
		got := s.Review.Any(ctx, submit.Act{
			Tenant: x.who.Tenant, ID: id, Epoch: &item.Epoch, Reason: acts.Reason, Actor: x.who.Actor(), RequestID: x.id,
		}, acts.Action)
		if out.Items[i], err = wireActed(got); err != nil {
			return nil, err
		}
		if out.Items[i].Error != nil {
			refusedNow++
		}
	}
	x.line.Add(slog.Int("items", len(acts.Items)), slog.Int("refused", refusedNow))
	return jsonAnswer(http.StatusOK, out)
}

// wireActed is the answer for one item; an error without a code is the request's.
func wireActed(a review.Acted) (api.ReviewActed, error) {
	w := api.ReviewActed{ID: a.ID.String()}
	switch {
	case a.Err != nil:
		if !errors.As(a.Err, &w.Error) {
			return w, a.Err
		}
	case a.Effect != nil:
		w.What, w.State, w.Epoch = api.ReviewEffect, string(a.Effect.State), a.Effect.Epoch
	default:
		w.What, w.State, w.Epoch = api.ReviewTask, string(a.Task.State), a.Task.Epoch
	}
	return w, nil
}

// bulkActions are what may be decided about many at once: not what each needs a
// result of its own for.
var bulkActions = []api.ReviewAction{api.ReviewFailed, api.ReviewRetry, api.ReviewFinish, api.ReviewDelivered, api.ReviewRedeliver, api.ReviewDiscard}

func (x *exchange) readActs() (acts api.ReviewActs, err error) {
	body, err := x.body(maxAct, bodyTimeout)
	if err != nil {
		return acts, err
	}
	members, err := canon.Members(body)
	if err != nil {
		return acts, submission.CanonError(err)
	}
	for _, m := range members {
		if !contains([]string{"action", "reason", "items"}, m.Name) {
			return acts, api.Errorf(api.CodeUnknownField, "the body has a field that does not exist").WithField(printable(m.Name)).
				WithFix("Remove it. The fields are action, reason, items.")
		}
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	switch err := d.Decode(&acts); {
	case err != nil:
		return acts, api.Errorf(api.CodeInvalidField, "a field has a value of the wrong type").WithFix("items is a list of {id, epoch}; the others are texts.")
	case !slices.Contains(bulkActions, acts.Action):
		return acts, api.Errorf(api.CodeInvalidField, "action is not one for many items").WithField("action").
			WithFix("Use failed, retry, finish, delivered, redeliver or discard.")
	case strings.TrimSpace(acts.Reason) == "" || len(acts.Reason) > maxReason:
		return acts, api.Errorf(api.CodeInvalidField, "reason is not a text of 1 to %d bytes", maxReason).WithField("reason")
	case len(acts.Items) == 0 || len(acts.Items) > maxReviewActs:
		return acts, api.Errorf(api.CodeInvalidField, "items does not hold 1 to %d items", maxReviewActs).WithField("items")
	}
	return acts, nil
}
