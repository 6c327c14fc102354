package outbox

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

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
	// Row is the task as it stands after the move: State, Run, Result, ErrorCode and ErrorMessage filled, and Input
	// where [NeedsInput] says so.
	Row *task.Row
	// Kind is the configuration the task runs under.
	Kind *config.Kind
}

// HasEffects says whether the outcome state has any effect at all, so that Settle has something to do for it.
func HasEffects(kind *config.Kind, state api.State, _ *task.Row) bool {
	for i := range kind.Effects {
		if kind.Effects[i].On.Matches(string(state)) {
			return true
		}
	}
	return false
}

// NeedsInput says whether Settle needs the task's input for that outcome: templates may name it.
func NeedsInput(kind *config.Kind, state api.State, row *task.Row) bool {
	return HasEffects(kind, state, row)
}

// Alone says whether the outcome has effects that are done in the finishing transaction, so that the task must be
// settled in one of its own: they take locks and time that are the operator's.
func Alone(kind *config.Kind, state api.State) bool {
	for i := range kind.Effects {
		e := &kind.Effects[i]
		if (e.Type == typeSQL || e.Type == typeTask) && e.On.Matches(string(state)) {
			return true
		}
	}
	return false
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
// wake-ups, sql effects executed. After the commit the caller tells job.Notifier the queues returned. If the
// transaction commits, every outcome in it has its effects; if the process dies before, neither is there.
//
// The error is an *EffectError where an effect of a succeeded task is at fault. A broken effect of any other outcome
// does not keep the task from moving: it is inserted dead, with the reason. Tasks for which Alone holds come one in a
// transaction.
func (o *Outbox) Settle(ctx context.Context, tx pgx.Tx, settled []Settled) (queues []string, err error) {
	var news []store.NewEffect
	for _, s := range settled {
		made, err := o.settle(ctx, tx, s)
		if err != nil {
			return nil, err
		}
		news = append(news, made...)
	}
	woken, err := store.InsertEffects(ctx, tx, news, job.EffectQueue, o.Window)
	if err != nil || woken == 0 {
		return nil, err
	}
	return []string{job.EffectQueue}, nil
}

func (o *Outbox) settle(ctx context.Context, tx pgx.Tx, s Settled) ([]store.NewEffect, error) {
	r := s.Row
	if s.Kind == nil {
		return nil, fmt.Errorf("settle task %s: its configuration is not known", r.ID)
	}
	if !r.State.Settled() {
		return nil, fmt.Errorf("settle task %s: it is %s", r.ID, r.State)
	}
	if !HasEffects(s.Kind, r.State, r) {
		return nil, nil
	}
	rendered, errs := s.Kind.RenderEach(string(r.State), templateData(r))
	news := make([]store.NewEffect, len(rendered))
	for i := range rendered {
		e := &rendered[i]
		news[i] = store.NewEffect{
			ID: e.ID, TaskID: r.ID, Tenant: r.Tenant, Run: r.Run, Name: e.Name, Outcome: r.State, Type: e.Type,
			Destination: e.Destination, Method: e.Method, Path: e.Path, Body: e.Body, State: api.EffectWaiting,
		}
		var broken *EffectError
		if errs[i] != nil {
			broken = renderError(e.Name, errs[i])
		} else {
			broken = o.perform(ctx, tx, e, &news[i])
		}
		if broken == nil {
			continue
		}
		if r.State == api.Succeeded || tx.Conn().IsClosed() {
			return nil, broken
		}
		news[i].State, news[i].Code, news[i].Message = api.EffectDead, broken.Code, broken.Message
	}
	return news, nil
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
		return renderError(e.Name, api.Errorf(api.CodeRenderFailed, "effects of type task are not available in this version"))
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
