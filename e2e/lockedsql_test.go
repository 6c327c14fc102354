package e2e

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/client"
	"github.com/onefold-dev/onefold/e2e/proc"
	"github.com/onefold-dev/onefold/internal/auth"
)

const lockedSQLConfig = `
retention: {tasks: 720h}
providers:
  model: {type: openai, base_url: "{{FAKELLM}}"}
kinds:
  llm.chat: {provider: model, output: text}
  book:
    provider: model
    output: text
    effects:
      - {name: save, type: sql, statement: "INSERT INTO public.booked (key, text) VALUES (@key, @result)"}
`

// A statement that waits for a table somebody has locked holds up neither the
// worker's heartbeat nor other tasks. The reply it was to be stored with is
// kept, and a person has it stored later, without another call.
func TestStatementBehindALock(t *testing.T) {
	t.Parallel()
	w := proc.New(t, &proc.Opts{Config: lockedSQLConfig})
	if _, err := w.Pool.Exec(t.Context(), `CREATE TABLE public.booked (key text PRIMARY KEY, text jsonb NOT NULL)`); err != nil {
		t.Fatal(err)
	}
	front := w.API(t)
	w.Worker(t)
	cl := w.Client(t, front)
	input := json.RawMessage(`{"model":"fake:ok","messages":[{"role":"user","content":"hello"}]}`)

	lock, err := w.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Rollback(t.Context()) }()
	if _, err := lock.Exec(t.Context(), `LOCK TABLE public.booked IN ACCESS EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	booked, err := cl.Submit(t.Context(), "book-1", api.Submit{Kind: "book", Input: input}, nil)
	if err != nil {
		t.Fatal(err)
	}
	proc.Until(t, "the statement waits for the lock", func() bool {
		return w.Count(t, `SELECT count(*) FROM pg_locks WHERE relation = 'public.booked'::regclass AND NOT granted`) > 0
	})
	var expires time.Time
	beat := func() (at time.Time) {
		if err := w.Pool.QueryRow(t.Context(), `SELECT max(expires_at) FROM onefold.workers`).Scan(&at); err != nil {
			t.Fatal(err)
		}
		return at
	}
	expires = beat()
	other, err := cl.Submit(t.Context(), "chat-1", api.Submit{Kind: "llm.chat", Input: input}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if other, err = cl.Wait(t.Context(), other.ID); err != nil || other.State != api.Succeeded {
		t.Fatalf("another task meanwhile: %+v, %v", other, err)
	}
	proc.Until(t, "the worker beats on", func() bool { return beat().After(expires) })
	proc.Until(t, "the statement is given up", func() bool {
		return w.Count(t, `SELECT count(*) FROM onefold.tasks WHERE id = $1 AND state = 'unknown' AND error_code = 'finish_failed'`, booked.ID) == 1
	})
	if n := w.Count(t, `SELECT count(*) FROM onefold.attempts WHERE outcome = 'lost'`); n != 0 {
		t.Errorf("%d leases were lost behind the lock", n)
	}

	if err := lock.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if booked, err = cl.Get(t.Context(), booked.ID, nil); err != nil {
		t.Fatal(err)
	}
	key, _, err := auth.Create(t.Context(), w.Pool, auth.NewKey{Tenant: "e2e", Name: "person", Scopes: []api.Scope{api.ScopeRead, api.ScopeOperate}, Actor: "e2e"})
	if err != nil {
		t.Fatal(err)
	}
	person, err := client.New(front.URL(), key, nil)
	if err != nil {
		t.Fatal(err)
	}
	done, err := person.Resolve(t.Context(), booked.ID, api.Resolve{Action: api.ResolveFinish, Epoch: booked.Epoch, Reason: "the lock is gone"})
	if err != nil || done.State != api.Succeeded {
		t.Fatalf("finish: %+v, %v", done, err)
	}
	if n := w.Count(t, `SELECT count(*) FROM public.booked WHERE key = 'book-1'`); n != 1 {
		t.Errorf("got %d rows, want 1", n)
	}
	if n := w.Count(t, `SELECT sum(sends)::int FROM onefold.attempts WHERE task_id = $1`, booked.ID); n != 1 {
		t.Errorf("got %d calls, want 1", n)
	}
}
