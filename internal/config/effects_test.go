package config_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/config"
)

func TestEffectsBelongToOutcomes(t *testing.T) {
	t.Parallel()
	k := kindWith(t, "effects:", "  - {name: def, type: webhook, destination: d}", "  - {name: succ, type: webhook, destination: d, on: succeeded}",
		"  - {name: fail, type: webhook, destination: d, on: failed}", "  - {name: unk, type: webhook, destination: d, on: unknown}",
		"  - {name: canc, type: webhook, destination: d, on: cancelled}", "  - {name: fin, type: webhook, destination: d, on: final}")
	for outcome, want := range map[string]string{
		"succeeded": "def succ fin", "failed": "fail fin", "unknown": "unk", "cancelled": "canc fin", "pending": "", "running": "",
	} {
		effects, err := k.RenderEffects(outcome, config.TemplateData{Input: []byte(`{}`), Task: task})
		if err != nil {
			t.Errorf("%s: %v", outcome, err)
		}
		var got []string
		for _, e := range effects {
			got = append(got, e.Name)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: got %v, want %s", outcome, got, want)
		}
	}
}

func TestDefaultBody(t *testing.T) {
	t.Parallel()
	k := kindWith(t, "effects: [{name: a, type: webhook, destination: d, on: final}]")
	for _, c := range []struct {
		name, outcome, want string
		d                   config.TemplateData
	}{
		{"result as stored", "succeeded", `{"type":"task.succeeded","data":{"task_id":"id-1","kind":"k","key":"key-1","run":2,"outcome":"succeeded","result":{ "n": 1.0 }}}`, config.TemplateData{Result: []byte(`{ "n": 1.0 }`)}},
		{"result that is no JSON", "succeeded", `{"type":"task.succeeded","data":{"task_id":"id-1","kind":"k","key":"key-1","run":2,"outcome":"succeeded","result":"a \"b\""}}`, config.TemplateData{Result: []byte(`a "b"`)}},
		{"error", "failed", `{"type":"task.failed","data":{"task_id":"id-1","kind":"k","key":"key-1","run":2,"outcome":"failed","error":{"code":"rejected","message":"no"}}}`, config.TemplateData{Error: &config.ErrorData{Code: "rejected", Message: "no"}}},
	} {
		c.d.Task = task
		effects, err := k.RenderEffects(c.outcome, c.d)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(effects[0].Body); got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.name, got, c.want)
		}
	}
}

func TestEffectBodies(t *testing.T) {
	t.Parallel()
	k := kindWith(t, "effects:",
		`  - {name: cond, type: webhook, destination: d, body: '{"a": [{{range $i, $x := .result.items}}{{if $i}},{{end}}{{$x.n}}{{end}}], "s": "{{range .result.items}}<{{.s}}>{{end}}"}'}`,
		`  - {name: tree, type: webhook, destination: d, body: {total: "{{json .result.total}}", text: "{{.result.total}} {{.task.run}} {{.outcome}}", n: 1.0}}`,
		`  - {name: text, type: webhook, destination: d, headers: {Content-Type: text/plain, X-N: "{{.result.total}}"}, body: 'total="{{.result.total}}"'}`,
		`  - {name: ld, type: webhook, destination: d, headers: {content-type: application/ld+json; charset=utf-8}, body: '{{.result.total}}'}`)
	got, err := k.RenderEffects("succeeded", config.TemplateData{
		Input: []byte(`{}`), Task: task, Result: []byte(`{"total":1.50,"items":[{"n":1.0,"s":"a\"b"},{"n":"2\\","s":"c"}]}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []config.RenderedEffect{
		{Name: "cond", Body: []byte(`{"a": [1.0,"2\\"], "s": "<a\"b><c>"}`)},
		{Name: "tree", Body: []byte(`{"total":1.50,"text":"1.50 2 succeeded","n":1.0}`)},
		{Name: "text", Body: []byte(`total="1.50"`), Headers: map[string]string{"Content-Type": "text/plain", "X-N": "1.50"}},
		{Name: "ld", Body: []byte(`1.50`), Headers: map[string]string{"content-type": "application/ld+json; charset=utf-8"}},
	}
	for i := range want {
		want[i].ID, want[i].Type, want[i].Destination = got[i].ID, "webhook", "d"
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("got -, want +:\n%s", diff)
	}
}

func TestTextResultsInEffects(t *testing.T) {
	t.Parallel()
	k := kindWith(t, "output: text", "effects:", `  - {name: a, type: webhook, destination: d, body: '{"t": "{{.result}}"}'}`, `  - {name: b, type: sql, statement: "SELECT @result"}`)
	res, err := k.Result(config.Reply{Text: "say \"hi\"\n"})
	if err != nil {
		t.Fatal(err)
	}
	got, err := k.RenderEffects("succeeded", config.TemplateData{Input: []byte(`{}`), Result: res})
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"t": "say \"hi\"\n"}`; string(got[0].Body) != want {
		t.Errorf("got %s, want %s", got[0].Body, want)
	}
	if want := `["say \"hi\"\n"]`; string(got[1].Args) != want {
		t.Errorf("got %s, want %s", got[1].Args, want)
	}
}

func TestSQLValues(t *testing.T) {
	t.Parallel()
	k := kindWith(t, "effects:", `  - {name: a, type: sql, on: final, statement: "SELECT @key, @tenant, @task_id, @run, @kind, @outcome, @input.n, @input.big, @input.s, @input.b, @input.null, @input.o, @input.l.1, @input.\"a b\", @error.code"}`)
	d := config.TemplateData{Task: task, Input: []byte(`{"n":1.10,"big":123456789012345678901234567890.5e10,"s":"<\u0000\">","b":true,"null":null,"o":{"b":1.0,"a":"\\u0000"},"l":[1,"two"],"a b":"c"}`)}
	got, err := k.RenderEffects("succeeded", d)
	if err != nil {
		t.Fatal(err)
	}
	want := `["key-1","acme","id-1",2,"k","succeeded",1.10,123456789012345678901234567890.5e10,"<` + "\uFFFD" + `\">",true,null,{"a":"\\u0000","b":1.0},"two","c",null]`
	if string(got[0].Args) != want {
		t.Errorf("got  %s\nwant %s", got[0].Args, want)
	}
	params, err := config.SQLParams(got[0].Args)
	if err != nil {
		t.Fatal(err)
	}
	texts := []string{"key-1", "acme", "id-1", "2", "k", "succeeded", "1.10", "123456789012345678901234567890.5e10", "<\uFFFD\">", "true", "NULL", `{"a":"\\u0000","b":1.0}`, "two", "c", "NULL"}
	for i, p := range params {
		text := string(p)
		if p == nil {
			text = "NULL"
		}
		if text != texts[i] {
			t.Errorf("parameter %d: got %s, want %s", i+1, text, texts[i])
		}
	}
	d.Error = &config.ErrorData{Code: "rejected"}
	if got, err = k.RenderEffects("failed", d); err != nil || !strings.HasSuffix(string(got[0].Args), `"rejected"]`) {
		t.Errorf("failed: got %s, %v", got[0].Args, err)
	}
	if _, err := config.SQLParams([]byte(`{`)); err == nil {
		t.Error("SQLParams took what is no array")
	}
}

func TestEffectProblems(t *testing.T) {
	t.Parallel()
	for effect, want := range map[string]string{
		`{name: a, type: webhook, destination: d, body: '{"a": {{json .result.b}}}'}`:            "effect a: kinds.k.effects[0].body: the field .result.b is missing",
		`{name: a, type: webhook, destination: d, body: '{{if true}}{{end}}'}`:                   "effect a: kinds.k.effects[0].body: what was rendered is not JSON: it ends too early",
		`{name: a, type: webhook, destination: d, body: '{{range .result.l}}{{.}},{{end}}'}`:     "effect a: kinds.k.effects[0].body: what was rendered is not JSON: something follows the JSON value",
		`{name: a, type: webhook, destination: d, headers: {X: "{{.result.line}}"}}`:             "effect a: kinds.k.effects[0].headers.X: a value holds a line break or control character, which no header can carry",
		`{name: a, type: sql, statement: "SELECT @result.b.c"}`:                                  "effect a: @result.b is missing",
		`{name: a, type: sql, statement: "SELECT @result.s.c"}`:                                  "effect a: @result.s.c is missing",
		`{name: a, type: sql, statement: "SELECT @result.l.2"}`:                                  "effect a: @result.l.2 is missing",
		`{name: a, type: sql, statement: "SELECT @result.l.99999999999999999999"}`:               "effect a: @result.l.99999999999999999999 is missing",
		`{name: a, type: email, destination: mail, to: "{{.result.line}}", subject: s, body: b}`: "effect a: to holds a line break",
	} {
		k := kindWith(t, "effects: ["+effect+"]")
		_, err := k.RenderEffects("succeeded", config.TemplateData{Input: []byte(`{}`), Result: []byte(`{"s":"CANARY","l":[1,2],"line":"CANARY\r\nX: y"}`)})
		var ae *api.Error
		if !errors.As(err, &ae) || ae.Code != api.CodeFinishFailed || ae.Message != want {
			t.Errorf("%s:\ngot  %v\nwant %s", effect, err, want)
		}
	}
	// One that is broken leaves the others whole.
	k := kindWith(t, "effects:", `  - {name: a, type: webhook, destination: d, body: {x: "{{.result.b}}"}}`, `  - {name: b, type: webhook, destination: d, body: {x: 1}}`)
	out, errs := k.RenderEach("succeeded", config.TemplateData{Input: []byte(`{}`), Result: []byte(`{}`)})
	if len(out) != 2 || errs[0] == nil || errs[1] != nil || string(out[1].Body) != `{"x":1}` || out[0].Body != nil {
		t.Errorf("got %v, %v", out, errs)
	}
}

func TestSQLStatements(t *testing.T) {
	t.Parallel()
	c := parse(t, issueExample)
	want := []config.SQLStatement{{
		Kind: "invoice.extract", Effect: "save", SQL: "INSERT INTO invoices (key, number, total) VALUES ($1, $2, $3)",
		Path: "kinds.invoice.extract.effects[0].statement", File: "onefold.yaml", Pos: config.Pos{Line: 15, Column: 44},
	}}
	got := c.SQLStatements()
	if diff := cmp.Diff(got, want); diff != "" {
		t.Fatalf("got -, want +:\n%s", diff)
	}
	e := c.At(got[0].Path, "there is no table invoices", "create it")
	var b strings.Builder
	if err := (config.Errors{e}).Write(&b, false); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"onefold.yaml:15:44: kinds.invoice.extract.effects[0].statement: there is no table invoices", "INSERT INTO invoices", "= create it"} {
		if !strings.Contains(b.String(), part) {
			t.Errorf("%q is not in\n%s", part, b.String())
		}
	}
}
