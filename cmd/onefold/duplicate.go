package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/client"
)

type markDuplicateCmd struct {
	ID     string `arg:"" help:"The task that is one too many."`
	Of     string `required:"" placeholder:"ID" help:"The task that stays."`
	Reason string `required:"" placeholder:"TEXT" help:"How you know, for the audit."`
}

func (c *markDuplicateCmd) Help() string {
	return `It changes nothing of either task: the mark is shown with the task, and onefold audit does not count it any more.`
}

func (c *markDuplicateCmd) Run(ctx context.Context, e *env) error {
	cl, err := e.client()
	if err != nil {
		return err
	}
	t, err := cl.MarkDuplicate(ctx, c.ID, c.Of, c.Reason)
	if err != nil {
		return err
	}
	return e.show(t, "marked")
}

type compensateCmd struct {
	ID     string `arg:"" help:"The task whose doings are to be undone."`
	Kind   string `required:"" placeholder:"KIND" help:"The kind that undoes them."`
	Input  string `short:"i" placeholder:"FILE|-|JSON" help:"Its input; when not given the task's id, kind, key, input and result."`
	Reason string `required:"" placeholder:"TEXT" help:"Why; it stands in the new task's metadata."`
}

func (c *compensateCmd) Help() string {
	return `It submits a task under the key compensate:ID, so that a second run folds onto the first: what is undone is undone once.`
}

func (c *compensateCmd) Run(ctx context.Context, e *env) error {
	input, err := e.value("--input", c.Input)
	if err != nil {
		return err
	}
	cl, err := e.client()
	if err != nil {
		return err
	}
	t, err := cl.Get(ctx, c.ID, nil)
	if err != nil {
		return err
	}
	if !t.State.Settled() {
		return usage(fmt.Sprintf("the task is %s: there is nothing to undo yet", t.State), "Cancel it: onefold cancel %s", t.ID)
	}
	if input == nil {
		if input, err = undoing(ctx, cl, t); err != nil {
			return err
		}
	}
	why, err := json.Marshal(map[string]string{"compensates": t.ID, "reason": c.Reason})
	if err != nil {
		return fmt.Errorf("encode the metadata: %w", err)
	}
	made, err := cl.Submit(ctx, "compensate:"+t.ID, api.Submit{Kind: c.Kind, Input: input, Metadata: why}, nil)
	if err != nil {
		return err
	}
	how := "new"
	if made.Created == nil || !*made.Created {
		how = "was there before"
	}
	return e.show(made, how)
}

// undoing is what a kind that undoes a task's doings needs to know of it. It does
// not change with the time of asking, so that a second run is the same submit.
func undoing(ctx context.Context, cl *client.Client, t *api.Task) (json.RawMessage, error) {
	input, err := cl.Input(ctx, t.ID)
	if err != nil {
		return nil, err
	}
	of, err := json.Marshal(map[string]any{"task_id": t.ID, "kind": t.Kind, "key": t.Key, "state": t.State})
	if err != nil {
		return nil, fmt.Errorf("encode the input: %w", err)
	}
	out := append(of[:len(of)-1], `,"input":`...)
	out = append(out, input...)
	if len(t.Result) > 0 {
		out = append(append(out, `,"result":`...), t.Result...)
	}
	return append(out, '}'), nil
}
