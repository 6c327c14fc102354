package main

import (
	"context"
	"fmt"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/client"
)

type retryCmd struct {
	which
	Epoch  *int64 `placeholder:"N" help:"The epoch of the task as you saw it (onefold get shows it)."`
	Reason string `placeholder:"TEXT" help:"Why, for the audit."`
}

func (c *retryCmd) Run(ctx context.Context, e *env) error {
	cl, err := e.client()
	if err != nil {
		return err
	}
	if _, err := c.task(ctx, cl); err != nil {
		return err
	}
	if c.Epoch == nil {
		return needEpoch(ctx, e, cl, c.ID, "retry "+c.ID)
	}
	t, err := cl.Retry(ctx, c.ID, *c.Epoch, c.Reason)
	if err != nil {
		return err
	}
	return e.show(t, "runs again")
}

type resolveCmd struct {
	ID      string `arg:"" help:"The task's id; - with --kind and --key."`
	Action  string `arg:"" enum:"succeeded,failed,retry,finish" help:"succeeded (with --result), failed, retry, or finish: store the kept reply without another call."`
	Epoch   *int64 `placeholder:"N" help:"The epoch of the task as you saw it (onefold get shows it)."`
	Reason  string `required:"" placeholder:"TEXT" help:"How you know, for the audit."`
	Result  string `placeholder:"FILE|-|JSON" help:"The result, with succeeded; sent byte for byte."`
	Message string `placeholder:"TEXT" help:"What the task's error is to say, with failed."`
	byKey
}

func (c *resolveCmd) Run(ctx context.Context, e *env) error {
	if (c.Result != "") != (c.Action == string(api.ResolveSucceeded)) {
		return usage("--result goes with the action succeeded, and only with it", "For example: onefold resolve %s succeeded --result FILE --epoch N --reason TEXT", c.ID)
	}
	if c.Message != "" && c.Action != string(api.ResolveFailed) {
		return usage("--message goes with the action failed", "Say with --reason how you know.")
	}
	result, err := e.value("--result", c.Result)
	if err != nil {
		return err
	}
	cl, err := e.client()
	if err != nil {
		return err
	}
	if c.ID, err = c.find(ctx, cl, c.ID); err != nil {
		return err
	}
	if c.Epoch == nil {
		return needEpoch(ctx, e, cl, c.ID, fmt.Sprintf("resolve %s %s --reason ...", c.ID, c.Action))
	}
	t, err := cl.Resolve(ctx, c.ID, api.Resolve{Action: api.Action(c.Action), Epoch: *c.Epoch, Reason: c.Reason, Result: result, Message: c.Message})
	if err != nil {
		return err
	}
	return e.show(t, "resolved")
}

// needEpoch shows the task and asks for the command once more with its epoch:
// who decides must have seen what they decide about.
func needEpoch(ctx context.Context, e *env, cl *client.Client, id, command string) error {
	t, err := cl.Get(ctx, id, nil)
	if err != nil {
		return err
	}
	if !e.json {
		if err := e.show(t, ""); err != nil {
			return err
		}
	}
	return usage(fmt.Sprintf("--epoch is missing; the task is %s at epoch %d", t.State, t.Epoch),
		"If that is what you decided about: onefold %s --epoch %d", command, t.Epoch)
}
