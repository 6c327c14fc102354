package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/client"
)

type submitCmd struct {
	Kind string `arg:"" help:"What sort of work, as configured in onefold.yaml."`
	Key  string `arg:"" optional:"" help:"The idempotency key: the same for every try of one intent."`

	KeyFlag  string        `name:"key" short:"k" placeholder:"KEY" help:"The idempotency key, when not given as an argument."`
	Input    string        `short:"i" placeholder:"FILE|-|JSON" help:"The input: JSON itself, a file, or - for stdin; sent byte for byte."`
	Effects  string        `placeholder:"FILE|-|JSON" help:"Effects of this task, beside those of its kind."`
	Wait     bool          `short:"w" help:"Wait until the task is settled."`
	Timeout  time.Duration `placeholder:"DURATION" help:"Stop waiting after this long; the task goes on."`
	Priority *int          `placeholder:"0-9" help:"Weight among the tenant's own tasks, from 0 (last) to 9 (first); 4 where not given."`
	RunAt    moment        `placeholder:"TIME" help:"Not before this time (RFC 3339), or so much from now (90s, 2h)."`
	Deadline moment        `placeholder:"TIME" help:"Fail when not done by then; written like --run-at."`
	Occurred moment        `name:"occurred-at" placeholder:"TIME" help:"The event's own time, for kinds that dedupe by a window; or so long ago."`
	Metadata []string      `sep:"none" placeholder:"NAME=VALUE" help:"A note on the task; may be repeated."`
}

func (c *submitCmd) Help() string {
	return `The same key gives the same task, however often this is run: make the key from what names the intent, not from the time.

    onefold submit llm.chat order:7 --wait -i '{"model": "gpt-4.1-mini", "messages": [{"role": "user", "content": "hi"}]}'

Kinds with dedupe none need no key. Without one a second run is a second task: after exit code 7 look with "onefold list" first.`
}

func (c *submitCmd) Run(ctx context.Context, e *env) error {
	key, err := c.key()
	if err != nil {
		return err
	}
	s, err := c.body(e)
	if err != nil {
		return err
	}
	cl, err := e.client()
	if err != nil {
		return err
	}
	outer := ctx
	if c.Timeout > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, c.Timeout)
		defer stop()
	}
	var o client.SubmitOpts
	if c.Wait {
		o.Wait = 20 * time.Second // quick tasks come back with the answer; Wait polls for the others
	}
	t, err := cl.Submit(ctx, key, s, &o)
	if err != nil {
		return explain(err, c.Kind)
	}
	how := origin(t)
	if !c.Wait {
		if err := e.show(t, how); err != nil {
			return err
		}
		if e.tty && !e.json && !t.State.Settled() {
			return e.print(fmt.Sprintf("\nfollow it: onefold wait %s\n", clean(t.ID)))
		}
		return nil
	}
	created := t.Created
	if t, err = waitFor(ctx, cl, t); err != nil {
		return stopped(outer, e, t, err)
	}
	t.Created = created
	if err := e.show(t, how); err != nil {
		return err
	}
	return endOf(t)
}

// origin says what the submit met.
func origin(t *api.Task) string {
	switch {
	case t.Reopened:
		return "its key met a failed task, which runs again"
	case t.Created != nil && *t.Created:
		return "new"
	case t.Created != nil:
		return "its key met this task; nothing was added"
	}
	return ""
}

// key takes the key from its argument or flag. Without one the server decides:
// kinds with dedupe none need none.
func (c *submitCmd) key() (string, error) {
	switch {
	case c.Key != "" && c.KeyFlag != "" && c.Key != c.KeyFlag:
		return "", usage("two different keys are given", "Give the key once, as the second argument or with --key.")
	case c.KeyFlag != "":
		return c.KeyFlag, nil
	case c.Key != "":
		return c.Key, nil
	}
	return client.NoKey, nil
}

func (c *submitCmd) body(e *env) (api.Submit, error) {
	s := api.Submit{Kind: c.Kind, Priority: c.Priority, RunAt: c.RunAt.ahead(e.now()), Deadline: c.Deadline.ahead(e.now()), OccurredAt: c.Occurred.ago(e.now())}
	if p := c.Priority; p != nil && (*p < 0 || *p > 9) {
		return s, usage("--priority is not between 0 and 9", "Leave it out for the usual weight, 4.")
	}
	if c.Input == "-" && c.Effects == "-" {
		return s, usage("--input and --effects cannot both come from stdin", "Put one of them in a file.")
	}
	var err error
	if s.Input, err = e.value("--input", c.Input); err != nil {
		return s, err
	}
	if s.Effects, err = e.value("--effects", c.Effects); err != nil {
		return s, err
	}
	s.Metadata, err = pairs(c.Metadata)
	return s, err
}

// value reads a JSON value given as text, as a file's name, or as - for stdin.
func (e *env) value(flag, arg string) (json.RawMessage, error) {
	var b []byte
	var err error
	from := "the text given"
	switch {
	case arg == "":
		return nil, nil
	case arg == "-":
		from = "stdin"
		b, err = io.ReadAll(e.stdin)
	case json.Valid([]byte(arg)):
		return json.RawMessage(arg), nil
	case strings.ContainsAny(arg[:1], "{[\""):
		b = []byte(arg)
	default:
		from = arg
		b, err = os.ReadFile(arg)
	}
	if err != nil {
		return nil, usage(fmt.Sprintf("%s: %v", flag, err), "Give JSON, the name of a file that holds JSON, or - for stdin.")
	}
	if bytes.HasPrefix(b, []byte("\xef\xbb\xbf")) {
		return nil, usage(fmt.Sprintf("%s: %s starts with a byte order mark", flag, from), "Save it as UTF-8 without one.")
	}
	var v json.RawMessage
	if err := json.Unmarshal(b, &v); err != nil {
		return nil, usage(fmt.Sprintf("%s: %s is not one JSON value: %v", flag, from, err), "A bare text needs quotes: '\"hello\"'.")
	}
	return v, nil
}

// pairs makes an object of NAME=VALUE texts, in their order.
func pairs(list []string) (json.RawMessage, error) {
	if len(list) == 0 {
		return nil, nil
	}
	seen := map[string]bool{}
	members := make([]string, len(list))
	for i, p := range list {
		name, value, ok := strings.Cut(p, "=")
		if !ok || name == "" {
			return nil, usage(fmt.Sprintf("--metadata %q is not NAME=VALUE", p), "For example --metadata customer=42.")
		}
		if seen[name] {
			return nil, usage(fmt.Sprintf("--metadata names %q twice", name), "Give each name once.")
		}
		seen[name] = true
		n, err := json.Marshal(name)
		if err != nil {
			return nil, fmt.Errorf("encode metadata: %w", err)
		}
		v, err := json.Marshal(value)
		if err != nil {
			return nil, fmt.Errorf("encode metadata: %w", err)
		}
		members[i] = string(n) + ":" + string(v)
	}
	return json.RawMessage("{" + strings.Join(members, ",") + "}"), nil
}

// explain adds what the command line can do about a refused submit.
func explain(err error, kind string) error {
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.CodeKeyMissing {
		return err
	}
	return &problem{
		code: exitError, message: fmt.Sprintf("the kind %s needs a key, and none was given", kind), cause: err,
		fix: fmt.Sprintf("Name the intent, the same on every try: onefold submit %s order:7 ... Running it again then meets the same task instead of making a second.", kind),
	}
}
