package enqueue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/submit"
)

// NoKey submits without a key, for kinds whose dedupe mode is none.
const NoKey = "\x00no key"

// Answer is what became of one task of Many: the task, or why it was refused.
type Answer struct {
	Task *api.Task
	Err  error
}

// Tx submits one task inside tx: it is there once tx commits, and has never been
// when tx is rolled back. The key means what it means over the API, across both:
// the first payload wins, the same again is answered with the task as it stands
// (Created false), another one is refused with api.ErrKeyReused.
//
// A refusal (an *api.Error) has changed nothing and leaves tx usable, and so
// does any other error: all of it happens within a savepoint. Serialization
// failures (40001) and deadlocks (40P01) are the exception in effect, not in
// form: what tx saw cannot be made good, so run the whole transaction again.
//
// Keep tx short: until it ends, others who submit the same key wait for it.
func Tx(ctx context.Context, tx pgx.Tx, tenant, key string, s api.Submit) (*api.Task, error) {
	got, err := Many(ctx, tx, tenant, []api.Keyed{{Key: key, Submit: s}})
	if err != nil {
		return nil, err
	}
	return got[0].Task, got[0].Err
}

// Many is Tx for up to 1,000 tasks, one answer for each in their order: one that
// is refused changes nothing for the others. An error of Many itself means that
// none of them was submitted.
func Many(ctx context.Context, tx pgx.Tx, tenant string, items []api.Keyed) ([]Answer, error) {
	if tenant == "" || len(items) > api.MaxBulk {
		return nil, api.Errorf(api.CodeInvalidParam, "enqueue takes a tenant and at most %d tasks", api.MaxBulk)
	}
	out := make([]Answer, len(items))
	requests, at := []submit.Request{}, []int{}
	for i := range items {
		r, err := request(tenant, items[i])
		if err != nil {
			out[i].Err = err
			continue
		}
		requests, at = append(requests, r), append(at, i)
	}
	var got []submit.Outcome
	learnTypes(tx.Conn())
	err := pgx.BeginFunc(ctx, tx, func(inner pgx.Tx) error {
		kinds, err := newest(ctx, inner, items)
		if err != nil {
			return err
		}
		got, _, err = submit.InTx(ctx, inner, submit.Rules{Newest: kinds}, requests)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("enqueue: %w", err)
	}
	for k, i := range at {
		if out[i].Err = got[k].Err; out[i].Err != nil {
			continue
		}
		out[i].Task = got[k].Row.Wire()
		out[i].Task.Created, out[i].Task.Reopened = &got[k].Created, got[k].Reopened
	}
	return out, nil
}

func request(tenant string, item api.Keyed) (submit.Request, error) {
	r := submit.Request{Tenant: tenant, Key: item.Key, KeySent: item.Key != NoKey, Actor: "enqueue"}
	if !r.KeySent {
		r.Key = ""
	}
	if r.KeySent && r.Key == "" {
		return r, api.Errorf(api.CodeKeyMissing, "the key is empty").WithField("key").
			WithFix("Build one from what names the intent, such as \"order:7:extract\".")
	}
	var err error
	r.Body, err = item.Submit.Append(nil)
	return r, err
}

// parsed holds kinds by the hash of their configuration, which never stands for
// another one: what is remembered here cannot be out of date.
var parsed sync.Map

// newest finds the newest configuration of each kind that items name. The
// processes of onefold store theirs when they start.
func newest(ctx context.Context, db store.DBTX, items []api.Keyed) (submit.Newest, error) {
	kinds := map[string]*config.Kind{}
	for i := range items {
		name := items[i].Kind
		if _, ok := kinds[name]; ok {
			continue
		}
		k, err := kind(ctx, db, name)
		if err != nil {
			return nil, err
		}
		kinds[name] = k
	}
	return func(name string) (*config.Kind, bool) { return kinds[name], kinds[name] != nil }, nil
}

func kind(ctx context.Context, db store.DBTX, name string) (*config.Kind, error) {
	hash, err := store.NewestKindConfig(ctx, db, name)
	if err != nil || hash == "" {
		return nil, err
	}
	if k, ok := parsed.Load(hash); ok {
		return k.(*config.Kind), nil
	}
	stored, err := store.KindConfigBody(ctx, db, hash)
	if err != nil {
		return nil, err
	}
	k, err := config.KindFromBody(name, stored.Body, config.Opts{SkipSecrets: true})
	if err != nil {
		return nil, api.Errorf(api.CodeUnavailable, "this version of package enqueue cannot read the configuration of the kind %s", name).
			WithFix("Build with the version of onefold that runs.").WithRetryAfter(time.Minute)
	}
	parsed.Store(hash, k)
	return k, nil
}

// learnTypes tells a connection that asks the server for no types (a pooler's)
// what our ids are.
func learnTypes(conn *pgx.Conn) {
	m := conn.TypeMap()
	m.RegisterDefaultPgType(uuid.UUID{}, "uuid")
	m.RegisterDefaultPgType((*uuid.UUID)(nil), "uuid")
	m.RegisterDefaultPgType([]uuid.UUID(nil), "_uuid")
	m.RegisterDefaultPgType([]*uuid.UUID(nil), "_uuid")
}

// Retryable says whether err means that the whole transaction should be run
// again: a serialization failure or a deadlock.
func Retryable(err error) bool {
	var e *api.Error
	return !errors.As(err, &e) && store.Retryable(err)
}
