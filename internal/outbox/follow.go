package outbox

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/canon"
	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/job"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
)

// The codes of follow-up tasks that could not be made.
const (
	CodeFollowFailed = "follow_up_failed"
	CodeNotAllowed   = "destination_not_allowed"
)

const (
	// maxChain is how many tasks may follow one another, so that two kinds that follow each other end some day.
	maxChain = 32
	// maxInput is the longest input, in bytes, as of a submit.
	maxInput = 8 << 20
)

// child is a follow-up task to be inserted, and the index of its effect.
type child struct {
	*store.New
	name string
	at   int
}

func itoa(i int) string { return strconv.Itoa(i) }

func followError(name, message string) *EffectError {
	return &EffectError{Name: name, Code: CodeFollowFailed, Message: message, Permanent: true}
}

// following is the kind of that name, if a task of it can follow another.
func (o *Outbox) following(name string) (k *config.Kind, wrong string) {
	k = o.Config.Kinds[name]
	switch {
	case k == nil:
		return nil, "there is no kind of the name given"
	case k.Dedupe.Mode == config.DedupeWindow:
		return nil, "a kind that dedupes by window cannot follow"
	}
	return k, ""
}

// child makes the row of a follow-up task. Its key has a form that no caller can send: it stands for this run of this
// task and this effect, or for the value of the effect's own key.
func (o *Outbox) child(r *task.Row, e *config.RenderedEffect) (*child, *EffectError) {
	kind, wrong := o.following(e.Fields["kind"])
	if wrong != "" {
		return nil, followError(e.Name, wrong)
	}
	if len(e.Body) > maxInput {
		return nil, followError(e.Name, "its input is longer than 8 MiB")
	}
	if kind.Name == "llm.chat" {
		if err := canon.CheckChat(e.Body); err != nil {
			return nil, inputError(e.Name, err)
		}
	}
	sums, err := canon.Sum(kind.Name, e.Body, nil)
	if err != nil {
		return nil, inputError(e.Name, err)
	}
	key := canon.ChildKey(r.ID.String(), int(r.Run), e.Name)
	if own, ok := e.Fields["key"]; ok {
		key = canon.FollowKey(own)
	}
	n := &store.New{
		ID: task.NewID(), Dedupe: api.Dedupe(kind.Dedupe.Mode), Provider: kind.Provider, Queue: job.Queue(kind.Provider),
		Priority: r.Priority, Background: r.BatchID != nil, ConfigHash: kind.Hash(), TraceID: r.TraceID, Traceparent: r.Traceparent, ParentID: &r.ID,
		BudgetID: r.BudgetID, BudgetSends: r.BudgetSends, DeadlineAfter: kind.Deadline, Input: e.Body,
		Fingerprint: sums.Fingerprint, FingerprintV: canon.FingerprintVersion, InputHash: sums.Input,
	}
	n.Slot = store.Slot{Tenant: r.Tenant, Kind: kind.Name, Key: key}
	if kind.Dedupe.Mode == config.DedupeNone {
		n.Slot.Slot = n.ID.String()
	}
	return &child{New: n, name: e.Name}, nil
}

// inputError says what is wrong with a rendered input; the words are canon's and quote nothing of it.
func inputError(name string, err error) *EffectError {
	var c *canon.Error
	if errors.As(err, &c) {
		return followError(name, "its input: "+c.Message)
	}
	return followError(name, "its input is not valid")
}

// follow inserts the follow-up tasks of r, in the order of their keys, and notes their ids on their effects. A key that
// is taken already stands for the task that has it, if that was asked for the same.
func (o *Outbox) follow(ctx context.Context, tx pgx.Tx, r *task.Row, children []*child, news []store.NewEffect) (queues []string, err error) {
	if len(children) == 0 {
		return nil, nil
	}
	fail := func(c *child, broken *EffectError) error {
		if r.State == api.Succeeded {
			return broken
		}
		row := &news[c.at]
		row.State, row.Code, row.Message = api.EffectDead, broken.Code, broken.Message
		return nil
	}
	length, err := store.ChainLength(ctx, tx, r.ID, maxChain)
	if err != nil {
		return nil, err
	}
	if length >= maxChain {
		for _, c := range children {
			if err := fail(c, followError(c.name, "the chain of tasks that follow one another has "+itoa(maxChain)+" already")); err != nil {
				return nil, err
			}
		}
		return nil, nil
	}
	for _, c := range children {
		o.Fair.PlaceAll([]*store.New{c.New})
	}
	landed, err := insertChildren(ctx, tx, children)
	if err != nil {
		return nil, err
	}
	for _, c := range children {
		got := landed[c.Slot]
		switch {
		case got == nil: // purged in between: the whole transaction is tried again
			return nil, &EffectError{Name: c.name, Code: CodeFollowFailed, Message: "the key changed hands"}
		case !slices.Equal(got.Fingerprint, c.Fingerprint[:]):
			if err := fail(c, followError(c.name, "another task of kind "+c.Slot.Kind+" has the key, with another input")); err != nil {
				return nil, err
			}
			continue
		}
		news[c.at].State, news[c.at].Reference = api.EffectDelivered, got.ID.String()
		queues = append(queues, c.Queue)
	}
	return queues, nil
}

// insertChildren inserts what is not there and reads all of them back, by a statement of its own.
func insertChildren(ctx context.Context, tx pgx.Tx, children []*child) (map[store.Slot]*task.Row, error) {
	first := map[store.Slot]bool{}
	var rows []*store.New
	var slots []store.Slot
	for _, c := range children {
		if !first[c.Slot] {
			rows, slots = append(rows, c.New), append(slots, c.Slot)
		}
		first[c.Slot] = true
	}
	if _, err := store.InsertTasks(ctx, tx, rows); err != nil {
		return nil, err
	}
	landed, err := store.TasksBySlot(ctx, tx, slots)
	if err != nil {
		return nil, err
	}
	var expired []task.ID
	for _, r := range landed {
		if r.Expired() {
			expired = append(expired, r.ID)
		}
	}
	if len(expired) == 0 {
		return landed, nil
	}
	if err := store.RetireExpired(ctx, tx, expired); err != nil {
		return nil, err
	}
	if _, err := store.InsertTasks(ctx, tx, rows); err != nil {
		return nil, err
	}
	return store.TasksBySlot(ctx, tx, slots)
}
