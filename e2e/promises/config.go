package promises

import "github.com/onefold-dev/onefold/api"

// Config is an onefold.yaml with a kind of each sort: effects grouped with others, an sql effect in
// the finishing transaction, one that works in the background, and one whose
// calls and effects must not be repeated.
const Config = `
retention: {tasks: 720h}
providers:
  model: {type: openai, base_url: "{{FAKELLM}}", timeouts: {connect: 5s, first_byte: 20s, idle: 20s, total: 30s}}
  jobs: {type: openai, base_url: "{{FAKELLM}}", api: responses, mode: background, timeouts: {connect: 5s, first_byte: 20s, idle: 20s, total: 60s}}
destinations:
  crm: {url: "{{RECEIVER}}", secret_env: E2E_SECRET, repeat: safe, allow_private: true}
  once: {url: "{{RECEIVER}}", secret_env: E2E_SECRET, repeat: unsafe, allow_private: true}
kinds:
  plain:
    provider: model
    output: text
    request: {model: "{{.input.model}}", messages: [{role: user, content: "{{.input.text}}"}]}
    sample: {model: "fake:ok", text: "hello"}
    on_unknown: retry
    effects:
      - {name: notify, type: webhook, destination: crm, body: '{"to": "crm", "task": {{json .task.id}}, "run": {{.task.run}}, "outcome": {{json .outcome}}, "result": {{json .result}}}'}
      - {name: sorry, on: failed, type: webhook, destination: crm, body: '{"to": "crm", "task": {{json .task.id}}, "run": {{.task.run}}, "outcome": {{json .outcome}}}'}
  saved:
    provider: model
    output: text
    request: {model: "{{.input.model}}", messages: [{role: user, content: "{{.input.text}}"}]}
    sample: {model: "fake:ok", text: "hello"}
    on_unknown: retry
    effects:
      - {name: save, type: sql, statement: "INSERT INTO public.saved (task_id, run, result) VALUES (@task_id, @run, @result)"}
      - {name: notify, type: webhook, destination: crm, body: '{"to": "crm", "task": {{json .task.id}}, "run": {{.task.run}}, "outcome": {{json .outcome}}, "result": {{json .result}}}'}
  posted:
    provider: jobs
    output: text
    request: {model: "{{.input.model}}", input: "{{.input.text}}"}
    sample: {model: "fake:ok", text: "hello"}
    on_unknown: retry
    effects:
      - {name: notify, type: webhook, destination: crm, body: '{"to": "crm", "task": {{json .task.id}}, "run": {{.task.run}}, "outcome": {{json .outcome}}, "result": {{json .result}}}'}
      - {name: sorry, on: failed, type: webhook, destination: crm, body: '{"to": "crm", "task": {{json .task.id}}, "run": {{.task.run}}, "outcome": {{json .outcome}}}'}
  careful:
    payload_retention: 24h
    provider: model
    output: text
    request: {model: "{{.input.model}}", messages: [{role: user, content: "{{.input.text}}"}]}
    sample: {model: "fake:ok", text: "hello"}
    on_unknown: review
    effects:
      - {name: notify, type: webhook, destination: once, body: '{"to": "once", "task": {{json .task.id}}, "run": {{.task.run}}, "outcome": {{json .outcome}}, "result": {{json .result}}}'}
      - {name: alarm, on: unknown, type: webhook, destination: crm, body: '{"to": "crm", "task": {{json .task.id}}, "run": {{.task.run}}, "outcome": {{json .outcome}}}'}
`

// expected are the effects of each kind by outcome.
var expected = map[string]map[api.State][]string{
	"plain":   {api.Succeeded: {"notify"}, api.Failed: {"sorry"}},
	"posted":  {api.Succeeded: {"notify"}, api.Failed: {"sorry"}},
	"saved":   {api.Succeeded: {"notify", "save"}},
	"careful": {api.Succeeded: {"notify"}, api.Unknown: {"alarm"}},
}

// Table is what the sql effect of Config writes to.
const Table = `CREATE TABLE public.saved (task_id uuid, run int, result text)`
