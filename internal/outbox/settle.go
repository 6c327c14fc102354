package outbox

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/job"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
)

// The types of effects that are done in the finishing transaction itself.
const (
	typeSQL  = "sql"
	typeTask = "task"
)

// typeEmail has fields of its own, which are stored as headers.
const typeEmail = "email"

// Settled is a task that has just been moved into succeeded, failed, unknown or cancelled in a transaction.
type Settled struct {
	// Row is the task as it stands after the move: State, Run, Result, ErrorCode and ErrorMessage filled, Effects as
	// they were submitted, and Input where [NeedsInput] says so.
	Row *task.Row
	// Kind is the configuration the task runs under.
	Kind *config.Kind
	// Answered are the effects that the service which did the work asked for, a JSON array as it came.
	Answered []byte
}

// HasEffects says whether the outcome state has any effect at all, so that Settle has something to do for it.
func HasEffects(kind *config.Kind, state api.State, row *task.Row) bool {
	specs, err := specsOf(Settled{Row: row, Kind: kind})
	return err != nil || slices.ContainsFunc(specs, func(e spec) bool { return e.On.Matches(string(state)) })
}

// NeedsInput says whether Settle needs the task's input for that outcome: templates may name it.
func NeedsInput(kind *config.Kind, state api.State, row *task.Row) bool {
	return HasEffects(kind, state, row)
}

// Alone says whether the outcome has effects that are done in the finishing transaction, so that the task must be
// settled in one of its own: they take locks and time that are the operator's. row has its Effects; answered are those
// of the service's answer, if any.
func Alone(kind *config.Kind, state api.State, row *task.Row, answered []byte) bool {
	specs, _ := specsOf(Settled{Row: row, Kind: kind, Answered: answered})
	return slices.ContainsFunc(specs, func(e spec) bool {
		return (e.Type == typeSQL || e.Type == typeTask) && e.On.Matches(string(state))
	})
}

// EffectError says that an effect of a succeeded task could not be made. The transaction is of no more use: the task
// becomes unknown with code finish_failed in another one, and its reply is kept.
type EffectError struct {
	Name    string // of the effect
	Code    string // render_failed or sql_failed
	Message string // fit to be stored and shown: no value of a row in it
	// Permanent is false where another try may go better: a deadlock, a lock or statement timeout, a lost connection.
	Permanent bool
	err       error
}

func (e *EffectError) Error() string { return "effect " + e.Name + ": " + e.Message }

// Unwrap is what Postgres or the template said.
func (e *EffectError) Unwrap() error { return e.err }

// Settle makes the effects of each outcome in the transaction that settles the task: rendered, inserted with their
// wake-ups, sql effects executed, follow-up tasks inserted. After the commit the caller tells job.Notifier the queues
// returned. If the transaction commits, every outcome in it has its effects; if the process dies before, neither is
// there.
//
// The error is an *EffectError where an effect of a succeeded task is at fault. A broken effect of any other outcome
// does not keep the task from moving: it is inserted dead, with the reason. Tasks for which Alone holds come one in a
// transaction.
func (o *Outbox) Settle(ctx context.Context, tx pgx.Tx, settled []Settled) (queues []string, err error) {
	var news []store.NewEffect
	for _, s := range settled {
		made, woken, err := o.settle(ctx, tx, s)
		if err != nil {
			return nil, err
		}
		news, queues = append(news, made...), append(queues, woken...)
	}
	if err := order(ctx, tx, news); err != nil {
		return nil, err
	}
	woken, err := store.InsertEffects(ctx, tx, news, job.EffectQueue, o.Window)
	if err != nil {
		return nil, err
	}
	if woken > 0 {
		queues = append(queues, job.EffectQueue)
	}
	return queues, nil
}

func (o *Outbox) settle(ctx context.Context, tx pgx.Tx, s Settled) (news []store.NewEffect, queues []string, err error) {
	r := s.Row
	if s.Kind == nil {
		return nil, nil, fmt.Errorf("settle task %s: its configuration is not known", r.ID)
	}
	if !r.State.Settled() {
		return nil, nil, fmt.Errorf("settle task %s: it is %s", r.ID, r.State)
	}
	specs, broken := specsOf(s)
	if broken != nil && r.State == api.Succeeded {
		return nil, nil, broken
	}
	rendered, err := o.render(ctx, tx, r, specs)
	if err != nil {
		return nil, nil, err
	}
	var children []*child
	for _, m := range rendered {
		e := &m.rendered
		news = append(news, store.NewEffect{
			ID: e.ID, TaskID: r.ID, Tenant: r.Tenant, Run: r.Run, Name: e.Name, Outcome: r.State, Type: e.Type,
			Destination: e.Destination, Method: e.Method, Path: e.Path, Body: e.Body, Reference: e.Reference, Order: e.Order,
			State: api.EffectWaiting, Traceparent: r.Traceparent,
		})
		row := &news[len(news)-1]
		if m.refused != nil {
			row.State, row.Code, row.Message = api.EffectDead, m.refused.Code, m.refused.Message
			continue
		}
		broken := m.broken
		if broken == nil {
			broken = o.perform(ctx, tx, e, row)
		}
		if broken == nil && e.Type == typeTask {
			c, wrong := o.child(r, e)
			if broken = wrong; wrong == nil {
				c.at = len(news) - 1
				children = append(children, c)
			}
		}
		if broken == nil {
			continue
		}
		if r.State == api.Succeeded || tx.Conn().IsClosed() {
			return nil, nil, broken
		}
		row.State, row.Code, row.Message = api.EffectDead, broken.Code, broken.Message
	}
	queues, err = o.follow(ctx, tx, r, children, news)
	return news, queues, err
}

// perform does what belongs into the transaction and encodes what leaves later.
func (o *Outbox) perform(ctx context.Context, tx pgx.Tx, e *config.RenderedEffect, row *store.NewEffect) *EffectError {
	switch e.Type {
	case typeSQL:
		row.State = api.EffectDelivered
		broken := o.runSQL(ctx, tx, e, row.Outcome == api.Succeeded)
		if broken != nil { // what a person needs to do it after all
			row.Body, _ = json.Marshal(map[string]any{"statement": e.Statement, "args": json.RawMessage(e.Args)})
		}
		return broken
	case typeTask:
		return nil
	}
	headers := e.Headers
	if e.Type == typeEmail {
		headers = map[string]string{"To": e.Fields["to"], "Subject": e.Fields["subject"]}
		maps.Copy(headers, e.Headers)
	}
	if len(headers) > 0 {
		h, err := json.Marshal(headers)
		if err != nil {
			return renderError(e.Name, err)
		}
		row.Headers = h
	}
	return nil
}

func renderError(name string, err error) *EffectError {
	return &EffectError{Name: name, Code: string(api.CodeRenderFailed), Message: message(err), Permanent: true, err: err}
}

func templateData(r *task.Row) config.TemplateData {
	d := config.TemplateData{
		Input: r.Input, Result: r.Result,
		Task: config.TaskData{ID: r.ID.String(), Key: r.Key, Kind: r.Kind, Tenant: r.Tenant, Run: int(r.Run)},
	}
	if r.ErrorCode != "" {
		d.Error = &config.ErrorData{Code: r.ErrorCode, Message: r.ErrorMessage}
	}
	return d
}
