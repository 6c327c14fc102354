package config_test

import (
	"strings"
	"testing"

	"github.com/onefold-dev/onefold/internal/config"
)

const issueExample = `retention: {tasks: 720h}
providers:
  openai: {type: openai, base_url: "https://api.openai.com/v1", api_key_env: OPENAI_API_KEY, timeouts: {connect: 5s, first_byte: 120s, idle: 60s, total: 10m}}
destinations:
  crm: {url: "https://crm.example.com/hooks", secret_env: CRM_SECRET, repeat: safe}   # allow_private: true lets it be loopback or a private range
kinds:
  llm.chat: {provider: openai, max_attempts: 3, on_unknown: retry}
  invoice.extract:
    provider: openai
    output: json          # result = the JSON in the model's message
    request: {model: gpt-4.1-mini, messages: [{role: user, content: "Extract the fields:\n{{.input.text}}"}]}
    on_unknown: retry
    sample: {text: "Invoice No. 7 ..."}
    effects:
      - {name: save, type: sql, statement: "INSERT INTO invoices (key, number, total) VALUES (@key, @result.number, @result.total)"}
      - {name: notify, type: webhook, destination: crm, body: '{"invoice": {{json .result.number}}}'}
`

// env is an environment with the secrets the tests' files name.
func env(name string) string {
	return map[string]string{"OPENAI_API_KEY": "sk-CANARY-openai", "CRM_SECRET": "whsec_Q0FOQVJZLWNybS1zZWNyZXQ="}[name]
}

func parse(t *testing.T, text string) *config.Config {
	t.Helper()
	c, err := config.Parse("onefold.yaml", []byte(text), config.Opts{Getenv: env})
	if err != nil {
		t.Fatalf("Parse:\n%v", err)
	}
	return c
}

func TestExampleOfTheIssue(t *testing.T) {
	t.Parallel()
	c := parse(t, issueExample)
	k, ok := c.Kind("invoice.extract")
	if !ok {
		t.Fatal("no kind invoice.extract")
	}
	body, err := k.Render(config.TemplateData{Input: []byte(`{"text":"No. \"7\"\n{{.input.x}}","n":1.10}`)})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"model":"gpt-4.1-mini","messages":[{"role":"user","content":"Extract the fields:\nNo. \"7\"\n{{.input.x}}"}]}`
	if got := string(body); got != want {
		t.Errorf("Render:\ngot  %s\nwant %s", got, want)
	}
	res, err := k.Result(config.Reply{Text: "```json\n{\"number\": \"A-1\", \"total\": 10.50}\n```"})
	if err != nil {
		t.Fatal(err)
	}
	effects, err := k.RenderEffects("succeeded", config.TemplateData{Input: []byte(`{}`), Result: res, Task: config.TaskData{Key: "k1"}})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := effects[0].Statement, "INSERT INTO invoices (key, number, total) VALUES ($1, $2, $3)"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := string(effects[0].Args), `["k1","A-1",10.50]`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := string(effects[1].Body), `{"invoice": "A-1"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	again, err := config.KindFromBody(k.Name, k.Body(), config.Opts{})
	if err != nil {
		t.Fatal(err)
	}
	if again.Hash() != k.Hash() {
		t.Errorf("hash of the rebuilt kind:\n%s\n%s", again.Body(), k.Body())
	}
	if !strings.Contains(string(k.Body()), `"on_unknown":"retry"`) {
		t.Errorf("body lacks a default: %s", k.Body())
	}
}
