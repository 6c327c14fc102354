package submit_test

import (
	"errors"
	"testing"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/pg/pgtest"
	"github.com/onefold-dev/onefold/internal/submit"
)

// TestEffectsOfASubmit: they are stored with the task and are part of what the key means; a destination that the tenant
// may not use is refused and nothing is stored; a replay is answered even after the right was taken back.
func TestEffectsOfASubmit(t *testing.T) {
	t.Parallel()
	const text = `
providers: {p: {type: openai, base_url: "https://a.example"}}
destinations: {mine: {url: "https://b.example", tenants: [a]}, theirs: {url: "https://c.example", tenants: [b]}}
kinds: {k: {provider: p}}
`
	load := func(text string) *config.Config {
		cfg, err := config.Parse("test.yaml", []byte(text), config.Opts{})
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	pool := pgtest.New(t).Pool(t)
	b := serve(t, load(text), pool)
	ask := func(b bundle, effects string) (submit.Answer, error) {
		return b.Submit(t.Context(), submit.Request{Tenant: "a", Key: "key", KeySent: true, Body: []byte(`{"kind":"k","input":{"a":1},"effects":` + effects + `}`)})
	}
	for effects, field := range map[string]string{
		`[{"name":"n","type":"webhook","destination":"theirs"}]`:                      "effects[0]",
		`[{"name":"n","type":"webhook","destination":"nowhere"}]`:                     "effects[0]",
		`[{"name":"n","type":"sql","statement":"DELETE FROM onefold.tasks"}]`:         "effects[0].type",
		`[{"name":"n","type":"webhook","destination":"mine","body":"{{.secret.x}}"}]`: "effects[0].body",
		`{"name":"n"}`: "effects",
	} {
		_, err := ask(b, effects)
		var e *api.Error
		if !errors.As(err, &e) || e.Code != api.CodeInvalidField || e.Field != field {
			t.Errorf("%s: got %v, want %s refused", effects, err, field)
		}
	}
	if n := b.count(t, `SELECT count(*) FROM onefold.tasks`); n != 0 {
		t.Fatalf("got %d tasks of refused submits", n)
	}
	const good = `[{"name":"n","type":"webhook","destination":"mine","body":{"x":1.0}}]`
	first, err := ask(b, good)
	if err != nil || !first.Created {
		t.Fatalf("got %+v, %v", first, err)
	}
	if again, err := ask(b, `[ {"destination":"mine","name":"n","body":{"x":1},"type":"webhook"} ]`); err != nil || again.Row.ID != first.Row.ID {
		t.Errorf("the same effects spelled otherwise: got %+v, %v", again, err)
	}
	if _, err := ask(b, `[{"name":"n","type":"webhook","destination":"mine","body":{"x":2}}]`); code(err) != api.CodeKeyReused {
		t.Errorf("other effects under the key: got %v, want key_reused", err)
	}
	taken := serve(t, load(`
providers: {p: {type: openai, base_url: "https://a.example"}}
kinds: {k: {provider: p}}
`), pool)
	if again, err := ask(taken, good); err != nil || again.Row.ID != first.Row.ID {
		t.Errorf("a replay after the destination has gone: got %+v, %v", again, err)
	}
}
