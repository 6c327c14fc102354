package config_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/config"
)

const file = "providers: {p: {type: openai, base_url: \"https://a.example\"}}\ndestinations: {d: {url: \"https://d.example\"}, mail: {url: \"smtps://m.example\", from: a@m.example}}\nkinds:\n  k:\n    provider: p\n"

// kindWith is a kind with further lines.
func kindWith(t interface{ Fatalf(string, ...any) }, yaml ...string) *config.Kind {
	return kindOf(t, file+"    "+strings.Join(yaml, "\n    ")+"\n")
}

// quote writes s as a double-quoted YAML text.
func quote(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

var task = config.TaskData{ID: "id-1", Key: "key-1", Kind: "k", Tenant: "acme", Run: 2}

func TestRenderTexts(t *testing.T) {
	t.Parallel()
	const input = `{"text":"a \"b\"\n<c> & {{.task.id}}","n":1.10,"big":12345678901234567890123,"e":1E2,"zero":0,"list":["x",2],` +
		`"empty":"","no":false,"nothing":null,"deep":{"z":1,"a":{"b":[1.50]}},"u":"ä😀\u2028"}`
	for _, c := range []struct{ template, want string }{
		{"plain", `"plain"`},
		{"{{.input.text}}", `"a \"b\"\n<c> & {{.task.id}}"`},
		{"n={{.input.n}} {{.input.big}} {{.input.e}}", `"n=1.10 12345678901234567890123 1E2"`},
		{"{{.task.id}} {{.task.key}} {{.task.kind}} {{.task.tenant}} {{.task.run}}", `"id-1 key-1 k acme 2"`},
		// A text that is just {{json ...}} gives the value itself, with bytes as submitted when it names a field.
		{"{{json .input.n}}", `1.10`},
		{"{{json .input.deep}}", `{"z":1,"a":{"b":[1.50]}}`},
		{"{{ .input.deep.a | json }}", `{"b":[1.50]}`},
		{"{{json .input.nothing}}", `null`},
		{"{{json .input.text}}", `"a \"b\"\n<c> & {{.task.id}}"`},
		{"{{json .task.run}}", `2`},
		{`{{default "x" .input.absent | json}}`, `"x"`},
		// Anything else stays a text.
		{"{{json .input.deep}} ", `"{\"a\":{\"b\":[1.50]},\"z\":1} "`},
		{"{{json .input.n}}{{json .input.e}}", `"1.101E2"`},
		{"{{- json .input.n -}}", `1.10`},
		{`{{default "none" .input.absent}}`, `"none"`},
		{`{{default "none" .input.absent.more}}`, `"none"`},
		{`{{default "none" .input.nothing}}`, `"none"`},
		{`{{default "none" .input.empty}}`, `""`},
		{`{{.input.absent.more | default 7}}`, `"7"`},
		{`{{$x := .input}}{{default "none" $x.absent}}`, `"none"`},
		{`{{default "none" (index .input.list 0)}}`, `"x"`},
		{`{{default "none" $.input.absent}}`, `"none"`},
		{`{{range .input.list}}[{{.}}]{{end}}`, `"[x][2]"`},
		{`{{range .input.list}}{{default "n" $.input.q}}{{end}}`, `"nn"`},
		{`{{if has .input.absent}}a{{else}}b{{end}}{{if has .input.deep.a}}c{{end}}`, `"bc"`},
		{`{{if .input.zero}}a{{else}}b{{end}}{{if .input.no}}a{{else}}b{{end}}{{if .input.empty}}a{{else}}b{{end}}{{if .input.n}}c{{end}}`, `"bbbc"`},
		{`{{if .input.zero}}a{{else if not .input.zero}}b{{end}}`, `"b"`},
		{`{{if gt .input.n 1}}a{{end}}{{if lt .input.n 1.2}}b{{end}}{{if eq .input.e 100}}c{{end}}{{if ne .input.n "1.10"}}d{{end}}`, `"abcd"`},
		{`{{with .input.deep}}{{.z}}{{end}}`, `"1"`},
		{`{{upper .input.u}} {{lower "ABC"}} {{trim "  x "}}`, `"Ä😀\u2028 abc x"`},
		{`{{join ", " .input.list}} {{len .input.list}}`, `"x, 2 2"`},
		{`{{printf "%s|%d|%.2f|%05d|%v" .input.n .input.big .input.n .input.zero .input.e}}`, `"1.10|%!d(string=12345678901234567890123)|1.10|00000|1E2"`},
		{`{{print .input.n "a"}}`, `"1.10a"`},
		{`{{urlquery .input.list}}`, `"%5Bx+2%5D"`},
		{"{{/* nothing */}}", `""`},
	} {
		k := kindWith(t, "request: {x: "+quote(c.template)+"}")
		got, err := k.Render(config.TemplateData{Input: []byte(input), Task: task})
		if err != nil {
			t.Errorf("%s: %v", c.template, err)
			continue
		}
		want := `{"x":` + strings.ReplaceAll(c.want, `\u2028`, "\u2028") + `}`
		if string(got) != want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.template, got, want)
		}
	}
}

func TestRenderKeepsTheShape(t *testing.T) {
	t.Parallel()
	k := kindWith(t, "request:", "  z: 1.0", "  a: [1e3, 12345678901234567890123, True, 1:30, yes, '1e3', true, null, {b: \"{{.input.x}}\", a: -0}]", "  n: ~", `  s: "1"`)
	got, err := k.Render(config.TemplateData{Input: []byte(`{"x":"v"}`)})
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"z":1.0,"a":[1e3,12345678901234567890123,true,"1:30","yes","1e3",true,null,{"b":"v","a":-0}],"n":null,"s":"1"}`; string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestRenderWithoutRequestPassesTheInputThrough(t *testing.T) {
	t.Parallel()
	const input = `{ "model" : "m", "n": 1.0e+2,  "a":"{{.input}}" }`
	got, err := kindWith(t).Render(config.TemplateData{Input: []byte(input)})
	if err != nil || string(got) != input {
		t.Errorf("got %s, %v", got, err)
	}
}

func TestRenderProblems(t *testing.T) {
	t.Parallel()
	for template, want := range map[string]string{
		"{{.input.a}}":                        "kinds.k.request.x: the field .input.a is missing",
		"{{json .input.a}}":                   "kinds.k.request.x: the field .input.a is missing",
		"{{.input.deep.b}}":                   "kinds.k.request.x: the field .input.deep.b is missing",
		"{{.input.s.b}}":                      "kinds.k.request.x: the field .input.s.b is missing: what stands before its last dot is no object",
		"{{.input.null.b}}":                   "kinds.k.request.x: the field .input.null.b is missing: what stands before its last dot is no object",
		"{{.input.null}}":                     "kinds.k.request.x: the value is null; give one with default, or print it with json",
		"{{.input.deep}}":                     "kinds.k.request.x: the value is an object; print it with json",
		"{{.input}}":                          "kinds.k.request.x: the value is an object; print it with json",
		"{{.}}":                               "kinds.k.request.x: the value is an object; print it with json",
		"{{print .input.deep}}":               "kinds.k.request.x: the value is an object; print it with json",
		"{{if .input.a}}x{{end}}":             "kinds.k.request.x: the field .input.a is missing",
		"{{range .input.a}}{{end}}":           "kinds.k.request.x: the field .input.a is missing",
		"{{lt .input.s 1}}":                   "kinds.k.request.x: these two values cannot be compared",
		`{{join "," .input.s}}`:               "kinds.k.request.x: join needs a list",
		"{{range .input.s}}{{end}}":           "kinds.k.request.x: range needs a list or an object, and .input.s is none",
		"{{range $i, $x := .input.n}}{{end}}": "",
		"{{.input.n.Int64}}":                  "",
		"{{index .input.s \"CANARY\"}}":       "",
		"{{index .input.list 5}}":             "kinds.k.request.x: index .input.list 5: there is no such element",
		"{{slice .input.s 0 99}}":             "",
		"{{lower .input.deep}}":               "kinds.k.request.x: the value is an object; print it with json",
		"{{len .input.n .input.n}}":           "kinds.k.request.x: len: wrong number of args for len: want 1 got 2",
		"{{call .input.s}}":                   "",
	} {
		k := kindWith(t, "request: {x: "+quote(template)+"}")
		_, err := k.Render(config.TemplateData{Input: []byte(`{"s":"CANARY","deep":{"a":"CANARY"},"null":null,"n":15150.5,"list":["CANARY"]}`)})
		var ae *api.Error
		if !errors.As(err, &ae) || ae.Code != api.CodeRenderFailed {
			t.Errorf("%s: got %T %v, want render_failed", template, err, err)
			continue
		}
		if want != "" && ae.Message != want {
			t.Errorf("%s:\ngot  %s\nwant %s", template, ae.Message, want)
		}
		if strings.Contains(ae.Message, "CANARY") && !strings.Contains(template, "CANARY") || strings.Contains(ae.Message, "15150") {
			t.Errorf("%s: the message quotes data: %s", template, ae.Message)
		}
	}
	if _, err := kindWith(t, `request: {x: "{{.input.a}}"}`).Render(config.TemplateData{Input: []byte(`{`)}); err == nil {
		t.Error("an input that is no JSON was rendered")
	}
}

// anyText draws texts that have broken templates and encoders before.
func anyText() *rapid.Generator[string] {
	return rapid.OneOf(rapid.String(), rapid.StringMatching(`[{}."\\\n\x00<>&',:\[\]a]*`), rapid.Just(`{{.input.x}}`), rapid.Just(`"}],"model":"evil`), rapid.Just("\u2028\x00\ufeff"))
}

// TestNoValueBreaksOut renders arbitrary texts into a request and every sort of effect, and expects to find exactly
// them, in exactly the shape of the file.
func TestNoValueBreaksOut(t *testing.T) {
	t.Parallel()
	k := kindWith(t, `request: {model: m, messages: [{role: user, content: "<<{{.input.x}}>>"}], v: "{{json .input.x}}"}`, "output: json", "effects:",
		`  - {name: a, type: webhook, destination: d, body: '{"plain": "{{.input.x}}", "value": {{.result.y}}, "json": {{json .input.x}}, "in": "<{{json .result.y}}>"}'}`,
		`  - {name: b, type: webhook, destination: d, body: {t: "{{.input.x}}", "n": 1}}`,
		`  - {name: c, type: http, destination: d, path: "/a/{{.input.x}}/b?q={{.result.y}}"}`,
		`  - {name: d, type: sql, statement: "SELECT @input.x, @result.y, @input"}`)
	rapid.Check(t, func(t *rapid.T) {
		x, y := anyText().Draw(t, "x"), anyText().Draw(t, "y")
		data := config.TemplateData{Input: object(t, "x", x), Result: object(t, "y", y), Task: task}
		body, err := k.Render(data)
		if err != nil {
			t.Fatalf("Render: %v", err)
		}
		same(t, body, map[string]any{"model": "m", "messages": []any{map[string]any{"role": "user", "content": "<<" + x + ">>"}}, "v": x})
		effects, err := k.RenderEffects("succeeded", data)
		if err != nil {
			t.Fatalf("RenderEffects: %v", err)
		}
		same(t, effects[0].Body, map[string]any{"plain": x, "value": y, "json": x, "in": "<" + string(jsonOf(y)) + ">"})
		same(t, effects[1].Body, map[string]any{"t": x, "n": 1.0})
		for _, r := range effects[2].Path {
			if r <= 0x20 || r >= 0x7f {
				t.Fatalf("the path holds %q: %q", r, effects[2].Path)
			}
		}
		if strings.Count(effects[2].Path, "/") != 3 || strings.Count(effects[2].Path, "?") != 1 {
			t.Fatalf("the path has another shape: %q", effects[2].Path)
		}
		params, err := config.SQLParams(effects[3].Args)
		if err != nil || len(params) != 3 {
			t.Fatalf("SQLParams: %q, %v", params, err)
		}
		if got, want := string(params[0]), strings.ReplaceAll(x, "\x00", "\uFFFD"); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	})
}

func object(t *rapid.T, name, value string) []byte {
	b, err := json.Marshal(map[string]string{name: value})
	if err != nil {
		t.Fatalf("%v", err)
	}
	return b
}

func jsonOf(s string) []byte {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s)
	return []byte(strings.TrimSpace(b.String()))
}

func same(t *rapid.T, got []byte, want map[string]any) {
	var v any
	if err := json.Unmarshal(got, &v); err != nil {
		t.Fatalf("not JSON: %v\n%s", err, got)
	}
	if diff := cmp.Diff(v, any(want)); diff != "" {
		t.Fatalf("got -, want +:\n%s", diff)
	}
}
