// Package review decides what waits for a person, and what they may do about it:
// tasks and effects of which nobody knows whether they happened, that nobody
// takes, that used up their tries, or that are due and do not move.
package review

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/job"
	"github.com/onefold-dev/onefold/internal/outbox"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/submit"
	"github.com/onefold-dev/onefold/internal/task"
)

// Config is what a Service works with; all fields are required.
type Config struct {
	Pool     *pgxpool.Pool
	Submit   *submit.Service
	Outbox   *outbox.Outbox
	Notifier *job.Notifier
	Log      *slog.Logger
}

// Service reads the queue and does what people decide.
type Service struct{ Config }

// New makes a Service.
func New(c Config) *Service { return &Service{c} }

// Item is one row of the queue with its evidence: the last attempt of a task,
// the last delivery of an effect, nil where there was none.
type Item struct {
	store.ReviewRow
	Attempt  *store.Attempt
	Delivery *store.Delivery
}

// List reads a page of the queue, the longest in it first. next is where the
// next page begins, nil at the end; a page may hold fewer than limit, even none,
// with more to come.
func (s *Service) List(ctx context.Context, f store.ReviewFilter, what api.ReviewWhat, limit int) (page []Item, next *store.ReviewPlace, err error) {
	var all []store.ReviewRow
	var bound *store.ReviewPlace // what comes after it has not been looked at in every table
	for _, read := range []struct {
		what api.ReviewWhat
		from func(context.Context, store.DBTX, store.ReviewFilter, int) ([]store.ReviewRow, *store.ReviewPlace, error)
	}{{api.ReviewTask, store.ReviewTasks}, {api.ReviewEffect, store.ReviewEffects}} {
		if what != "" && what != read.what {
			continue
		}
		rows, upTo, err := read.from(ctx, s.Pool, f, limit)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, rows...)
		if upTo != nil && (bound == nil || bound.After(*upTo)) {
			bound = upTo
		}
	}
	slices.SortFunc(all, func(a, b store.ReviewRow) int {
		if a.After(b.ReviewPlace) {
			return 1
		}
		return -1
	})
	if bound != nil {
		all = slices.DeleteFunc(all, func(r store.ReviewRow) bool { return r.After(*bound) })
		next = bound
	}
	if len(all) > limit {
		all = all[:limit]
		next = &all[limit-1].ReviewPlace
	}
	page, err = s.evidence(ctx, all)
	return page, next, err
}

// Find reads one item of the queue, nil where it is not in it.
func (s *Service) Find(ctx context.Context, tenant string, id task.ID) (*Item, error) {
	page, _, err := s.List(ctx, store.ReviewFilter{Tenant: tenant, IDs: []task.ID{id}}, "", 1)
	if err != nil || len(page) == 0 {
		return nil, err
	}
	return &page[0], nil
}

func (s *Service) evidence(ctx context.Context, rows []store.ReviewRow) ([]Item, error) {
	ids := map[api.ReviewWhat][]task.ID{}
	for _, r := range rows {
		ids[r.What] = append(ids[r.What], r.ID)
	}
	attempts, err := store.LastAttempts(ctx, s.Pool, ids[api.ReviewTask])
	if err != nil {
		return nil, err
	}
	deliveries, err := store.Deliveries(ctx, s.Pool, ids[api.ReviewEffect], 1)
	if err != nil {
		return nil, err
	}
	page := make([]Item, len(rows))
	for i, r := range rows {
		page[i].ReviewRow = r
		if a, tried := attempts[r.ID]; tried {
			page[i].Attempt = &a
		}
		if d := deliveries[r.ID]; len(d) > 0 {
			page[i].Delivery = &d[len(d)-1]
		}
	}
	return page, nil
}

// Age is how long the item has been in the queue, as people count it.
func (i *Item) Age() api.ReviewAge {
	switch in := i.Now.Sub(i.Since); {
	case in < time.Hour:
		return api.AgeHour
	case in < 24*time.Hour:
		return api.AgeDay
	}
	return api.AgeOlder
}

// Actions are what can be done about the item.
func (i *Item) Actions() []api.ReviewAction {
	if i.What == api.ReviewEffect {
		return effectActions(api.EffectState(i.State), i.Type, i.Epoch)
	}
	var can []api.ReviewAction
	switch i.Reason {
	case api.ReviewUnknown:
		can = []api.ReviewAction{api.ReviewSucceeded, api.ReviewFailed}
		if i.Kept {
			can = append(can, api.ReviewFinish)
		}
		if !i.Purged {
			can = append(can, api.ReviewRetry)
		}
	case api.ReviewExhausted:
		can = []api.ReviewAction{api.ReviewFailed}
		if !i.Purged {
			can = append(can, api.ReviewRetry)
		}
	}
	return append(can, api.ReviewDiscard)
}

// effectActions are what a person may do about an effect that stands so. One that
// was never rendered, or whose follow-up task could not be made, has nothing that
// could be sent.
func effectActions(state api.EffectState, kind string, epoch int64) (can []api.ReviewAction) {
	switch state {
	case api.EffectUnknown:
		can = []api.ReviewAction{api.ReviewDelivered, api.ReviewRedeliver}
	case api.EffectDead, api.EffectWaiting:
		if epoch > 0 || kind == typeSQL || state == api.EffectWaiting {
			can = []api.ReviewAction{api.ReviewRedeliver}
		}
	case api.EffectHeld:
	default:
		return nil
	}
	return append(can, api.ReviewDiscard)
}
