package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/internal/config"
)

func destination(t *testing.T, fields string) (*config.Destination, error) {
	t.Helper()
	c, err := config.Parse("onefold.yaml", []byte("providers: {p: {type: openai, base_url: \"https://a.example\"}}\n"+
		"destinations: {d: {"+fields+"}}\nkinds: {k: {provider: p}}\n"), config.Opts{Getenv: func(string) string { return "x" }})
	if err != nil {
		return nil, err
	}
	return c.Destinations["d"], nil
}

// TestDestinationProblems: what is refused at start, and the reason given.
func TestDestinationProblems(t *testing.T) {
	t.Parallel()
	for fields, want := range map[string]string{
		`url: "http://127.0.0.1/"`:                                                                  "loopback address; allow_private",
		`url: "http://localhost:8080/"`:                                                             "loopback",
		`url: "http://[::ffff:127.0.0.1]/"`:                                                         "IPv4 address written as IPv6",
		`url: "http://[64:ff9b::a9fe:a9fe]/"`:                                                       "NAT64",
		`url: "http://100.64.0.1/"`:                                                                 "100.64.0.0/10",
		`url: "http://0x7f000001/"`:                                                                 "number",
		`url: "http://169.254.169.254/latest"`:                                                      "link-local",
		`url: "ftp://a.example/"`:                                                                   "not a scheme",
		`url: "https://u:p@a.example/"`:                                                             "does not belong into the address",
		`url: "https://a.example/", rate: fast`:                                                     "is no rate",
		`url: "https://a.example/", rate: 0/s`:                                                      "is no rate",
		`url: "https://a.example/", from: a@b.c`:                                                    "only a mail server",
		`url: "https://a.example/", plaintext: true`:                                                "only a mail server",
		`url: "https://a.example/", auth_header: "X Y"`:                                             "no header name",
		`url: "https://a.example/", idempotency_header: Host`:                                       "set by the delivery itself",
		`url: "smtp://m.example"`:                                                                   "nobody the mails are from",
		`url: "smtp://m.example", from: nobody`:                                                     "no mail address",
		`url: "smtp://m.example", from: a@b.c, plaintext: true`:                                     "cannot go without TLS",
		`url: "smtp://m.example", from: a@b.c, secret_env: S`:                                       "a mail server has no secret_env",
		`url: "smtp://m.example", from: a@b.c, username: u`:                                         "no password",
		`url: "smtp://m.example/x", from: a@b.c`:                                                    "no path",
		`url: "https://a.example/", check: {path: /x, done: {status: 200}}`:                         "which answer means not done",
		`url: "https://a.example/", check: {done: {status: 200}, not_done: {status: 404}}`:          "no path",
		`url: "https://a.example/", check: {path: /x, done: {}, not_done: {status: 404}}`:           "empty rule",
		`url: "https://a.example/", check: {path: /x, done: {status: 99}, not_done: {status: 404}}`: "no HTTP status",
		`url: "https://a.example/", check: {path: "/{{.result.x}}", done: {status: 200}, not_done: {status: 404}}`:     "no .result here",
		`url: "https://a.example/", check: {path: "/{{.effect.x}}", done: {status: 200}, not_done: {status: 404}}`:     "no .effect.x",
		`url: "https://a.example/", check: {path: /x, method: PUT, done: {status: 200}, not_done: {status: 404}}`:      "not allowed",
		`url: "https://a.example/", check: {path: /x, body: {a: 1}, done: {status: 200}, not_done: {status: 404}}`:     "only a POST",
		`url: "https://a.example/", check: {path: /x, done: {status: 200, equals: {a: [1]}}, not_done: {status: 404}}`: "must be a text",
		`url: "https://a.example/", check: {path: /x, done: {status: 200, shows: a}, not_done: {status: 404}}`:         "unknown field",
	} {
		_, err := destination(t, fields)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", fields, err, want)
		}
	}
}

func TestDestinationFields(t *testing.T) {
	t.Parallel()
	d, err := destination(t, `url: "smtp://127.0.0.1:25", from: "A <a@b.c>", plaintext: true, allow_private: true, username: u, auth_env: P, rate: 30/m`)
	if err != nil {
		t.Fatal(err)
	}
	if !d.Mail() || !d.Takes("email") || d.Takes("webhook") || d.Rate != 2*time.Second || d.Auth == nil || d.Username != "u" {
		t.Errorf("got %+v", d)
	}
	stored, err := config.DestinationFromBody("d", []byte(`{"url":"https://a.example/x","repeat":"safe","tenants":["acme"]}`), config.Opts{})
	if err != nil || stored.Repeat != config.RepeatSafe || !stored.Allows("acme") || stored.Allows("other") {
		t.Errorf("got %+v, %v", stored, err)
	}
	if _, err := config.DestinationFromBody("d", []byte(`{"url":"https://a.example/x","secret_env":"HOME"}`), config.Opts{}); err == nil {
		t.Error("a destination made through the API may name an environment variable")
	}
}

// TestCheck: what is asked, and what the answers mean.
func TestCheck(t *testing.T) {
	t.Parallel()
	d, err := destination(t, `url: "https://a.example/", check: {path: "/orders?ref={{.effect.reference}}&k={{.task.key}}", headers: {X: "{{.effect.id}}"},
	  done: {status: [200, 201], present: data.0.id, equals: {data.0.state: "ok", total: "1.50"}}, not_done: {status: 200, absent: data.0}}`)
	if err != nil {
		t.Fatal(err)
	}
	got, err := d.Check.Request(config.CheckData{EffectID: "e-1", Reference: "a/b 1", Task: config.TaskData{Key: "k&1"}})
	if err != nil {
		t.Fatal(err)
	}
	want := config.CheckRequest{Method: "GET", Path: "/orders?ref=a%2Fb%201&k=k&1", Headers: map[string]string{"X": "e-1"}}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("got -, want +:\n%s", diff)
	}
	for body, want := range map[string]config.Answer{
		`200 {"data":[{"id":7,"state":"ok"}],"total":1.50}`: config.CheckDone,
		`201 {"data":[{"id":7,"state":"ok"}],"total":1.50}`: config.CheckDone,
		`200 {"data":[{"id":7,"state":"no"}],"total":1.50}`: config.CheckCannotTell,
		`200 {"data":[{"id":7,"state":"ok"}],"total":1.5}`:  config.CheckCannotTell,
		`200 {"data":[]}`:   config.CheckNotDone,
		`200 {}`:            config.CheckNotDone,
		`404 {}`:            config.CheckCannotTell,
		`500 {"data":[]}`:   config.CheckCannotTell,
		`200 {"data":[`:     config.CheckCannotTell,
		`200 <html></html>`: config.CheckCannotTell,
	} {
		status := 0
		for _, c := range body[:3] {
			status = 10*status + int(c-'0')
		}
		if got := d.Check.Says(status, []byte(body[4:])); got != want {
			t.Errorf("%s: got %s, want %s", body, got, want)
		}
	}
}

// TestSubmittedEffects: what a submit may bring.
func TestSubmittedEffects(t *testing.T) {
	t.Parallel()
	specs, err := config.SubmittedEffects([]byte(`[{"name":"a","type":"webhook","destination":"d","on":"final","body":{"x":"{{json .result.x}}","n":1.0}}]`), config.Opts{})
	if err != nil || len(specs) != 1 {
		t.Fatalf("got %v, %v", specs, err)
	}
	out, errs := config.RenderSpecs(specs, "succeeded", config.TemplateData{Input: []byte(`{}`), Result: []byte(`{"x": 1.50}`)})
	if errs[0] != nil || string(out[0].Body) != `{"x":1.50,"n":1.0}` {
		t.Errorf("got %s, %v", out[0].Body, errs[0])
	}
	for raw, want := range map[string]string{
		`{}`: "not an array",
		`[{"name":"a","type":"sql","statement":"SELECT 1"}]`:                                                                              "not available",
		`[{"name":"a","type":"webhook"}]`:                                                                                                 "need destination",
		`[{"name":"A b","type":"webhook","destination":"d"}]`:                                                                             "cannot be the name",
		`[{"name":"a","type":"webhook","destination":"d","body":"{{range .result}}1{{end}}"}]`:                                            "if, range, with",
		`[{"name":"a","type":"webhook","destination":"d","body":"{{printf \"%9d\" .result}}"}]`:                                           "only fields and the functions",
		`[{"name":"a","type":"webhook","destination":"d","body":"{{.result | json | json}}"}]`:                                            "only fields and the functions",
		`[{"name":"a","type":"webhook","destination":"d","body":"{{json (json .result)}}"}]`:                                              "only fields and the functions",
		`[{"name":"a","type":"webhook","destination":"d","body":"{{join .input.a .result}}"}]`:                                            "only fields and the functions",
		`[{"name":"a","type":"webhook","destination":"d","body":"{{$x := 1}}"}]`:                                                          "only fields and the functions",
		`[{"name":"a","type":"webhook","destination":"d","headers":{"Host":"x"}}]`:                                                        "set by the delivery itself",
		`[{"name":"a","type":"webhook","destination":"d","headers":{"X":"a\r\nY: b"}}]`:                                                   "line break",
		`[` + strings.Repeat(`{"name":"a","type":"webhook","destination":"d"},`, 20) + `{"name":"b","type":"webhook","destination":"d"}]`: "21 effects",
		`[{"name":"a","type":"webhook","destination":"d","body":{"x":"` + strings.Repeat("{{json .result}}", 51) + `"}}]`:                 "more than 50 values",
		`[{"name":"a","type":"webhook","destination":"d","body":{"x":"` + strings.Repeat("x", 64<<10) + `"}}]`:                            "bytes",
	} {
		if _, err := config.SubmittedEffects([]byte(raw), config.Opts{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.100s: got %v, want %q", raw, err, want)
		}
	}
	big := append(append([]byte(`{"x":"`), make([]byte, 0)...), strings.Repeat("y", 1<<20)+`"}`...)
	many, err := config.SubmittedEffects([]byte(`[{"name":"a","type":"webhook","destination":"d","body":{`+
		strings.TrimSuffix(strings.Repeat(`"k":"{{json .result}}",`, 1), ",")+`,"l":["`+strings.Repeat(`{{json .result}}","`, 40)+`"]}}]`), config.Opts{})
	if err != nil {
		t.Fatal(err)
	}
	if _, errs := config.RenderSpecs(many, "succeeded", config.TemplateData{Input: []byte(`{}`), Result: big}); errs[0] == nil || !strings.Contains(errs[0].Error(), "8388608 bytes") {
		t.Errorf("41 MiB were rendered: %v", errs[0])
	}
}

// TestAnsweredEffects are taken as they stand.
func TestAnsweredEffects(t *testing.T) {
	t.Parallel()
	specs, err := config.AnsweredEffects([]byte(`[{"name":"a","type":"http","destination":"d","path":"/x/{{y}}","body":{"{{n}}":"{{.result}}"}}]`), config.Opts{})
	if err != nil {
		t.Fatal(err)
	}
	out, errs := config.RenderSpecs(specs, "succeeded", config.TemplateData{Input: []byte(`{}`), Result: []byte(`{}`)})
	if errs[0] != nil || string(out[0].Body) != `{"{{n}}":"{{.result}}"}` || out[0].Path != "/x/{{y}}" {
		t.Errorf("got %s %s, %v", out[0].Path, out[0].Body, errs[0])
	}
}

// TestOwnID: an effect's templates see the id it leaves under.
func TestOwnID(t *testing.T) {
	t.Parallel()
	k := kindWith(t, "effects:", `  - {name: a, type: http, destination: d, body: {id: "{{.effect.id}}"}, reference: "{{.effect.name}}-{{.task.key}}", order: "{{.input.c}}"}`,
		`  - {name: b, type: http, destination: d, body: {id: "{{.effect.id}}"}}`)
	out, errs := k.RenderEach("succeeded", config.TemplateData{Input: []byte(`{"c":"c-1"}`), Task: task, Result: []byte(`{}`)})
	for i, e := range out {
		if errs[i] != nil || string(e.Body) != `{"id":"`+e.ID.String()+`"}` {
			t.Errorf("%s: got %s of %s, %v", e.Name, e.Body, e.ID, errs[i])
		}
	}
	if out[0].ID == out[1].ID || out[0].Reference != "a-key-1" || out[0].Order != "c-1" || out[1].Reference != "" {
		t.Errorf("got %+v", out)
	}
}
