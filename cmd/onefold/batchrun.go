package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/client"
)

type batchRunCmd struct {
	File        string        `arg:"" help:"The JSONL file: one task a line, in our form or in that of OpenAI's Batch API."`
	Key         string        `short:"k" placeholder:"KEY" help:"The batch's idempotency key; made from the file's bytes when absent."`
	Kind        string        `placeholder:"KIND" help:"The kind of lines in OpenAI's form; llm.chat when absent."`
	Deadline    time.Duration `placeholder:"DURATION" help:"How long the batch may take from its start; 24h when absent."`
	Webhook     string        `placeholder:"NAME" help:"A destination that is told when the batch ends."`
	AsFinished  bool          `help:"Write the lines in the order in which they finish, in place of that of the file."`
	RetryFailed bool          `help:"Where the batch has ended, run its failed and expired lines again first."`
}

func (c *batchRunCmd) Help() string {
	return `-o FILE takes the results, one JSON line a line of the file; without it they go to stdout.

    onefold batch run in.jsonl -o out.jsonl

It can be stopped at any time: the batch goes on, and the same command again goes on with it. The same file is the same
batch, however often this is run, and is paid for once; give --key to run it as another one.

The exit code is 0 when every line succeeded, 3 when some failed, 4 when some are unknown.`
}

func (c *batchRunCmd) Run(ctx context.Context, e *env) error {
	cl, err := e.client()
	if err != nil {
		return err
	}
	f, err := os.Open(c.File)
	if err != nil {
		return usage(err.Error(), "Name a JSONL file.")
	}
	defer f.Close() //nolint:errcheck // read only
	key, err := c.key(f)
	if err != nil {
		return err
	}
	p := e.newProgress()
	defer p.close()
	b, err := c.upload(ctx, cl, f, key, p)
	if err != nil {
		return c.stopped(ctx, e, err)
	}
	if c.RetryFailed && b.State.Ended() && b.Counts.Failed+b.Counts.Expired > 0 {
		if b, err = cl.RetryBatch(ctx, b.ID, b.Run, "batch run --retry-failed"); err != nil {
			return err
		}
	}
	if b.Created != nil && !*b.Created && !e.json {
		e.say("this file is batch %s, %s: %d of %d lines are done", b.ID, b.State, b.Counts.Settled(), b.Lines)
	}
	to, err := e.sink(b, c.AsFinished, "")
	if err != nil {
		return err
	}
	if b, err = c.follow(ctx, cl, b, to, p); err != nil {
		to.leave()
		return c.stopped(ctx, e, err)
	}
	if err := to.finish(); err != nil {
		return err
	}
	p.close()
	if !e.json {
		e.ended(b)
	}
	if code := batchCode(b); code != exitOK {
		return ending(code)
	}
	return nil
}

// ended says what a batch came to, and what can be done about lines that failed.
func (e *env) ended(b *api.Batch) {
	cost := ""
	if b.Usage.Cost != "" {
		cost = "; cost " + clean(b.Usage.Cost)
	}
	e.say("%s: %s%s", b.State, counts(b.Counts), cost)
	if bad(b.Counts) > 0 {
		e.say("`onefold batch results %s --only errors` shows what went wrong", b.ID)
	}
	if b.Counts.Failed+b.Counts.Expired > 0 {
		e.say("the same command with --retry-failed runs the failed lines again, and no others")
	}
}

// key is the one given, or one that follows from the file and what is asked for:
// the same command is the same batch.
func (c *batchRunCmd) key(f io.ReadSeeker) (string, error) {
	if c.Key != "" {
		return c.Key, nil
	}
	h := sha256.New()
	fmt.Fprintf(h, "%q %q %d\n", c.Kind, c.Webhook, c.Deadline)
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("read the file: %w", err)
	}
	return "file:" + hex.EncodeToString(h.Sum(nil)), nil
}

func (c *batchRunCmd) upload(ctx context.Context, cl *client.Client, f *os.File, key string, p progress) (*api.Batch, error) {
	size := int64(0)
	if info, err := f.Stat(); err == nil {
		size = info.Size()
	}
	b, err := cl.UploadBatch(ctx, key, f, &client.BatchOpts{
		Kind: c.Kind, Webhook: c.Webhook, Deadline: c.Deadline, Sent: func(n int64) { p.sent(n, size) },
	})
	var e *api.Error
	if errors.As(err, &e) && e.Code == api.CodeKeyReused && c.Key != "" {
		return nil, &problem{
			code: exitError, message: "the key was used before with another file or other choices", cause: err,
			fix: "Give another --key for another file; leave it out to have one made from the file.",
		}
	}
	return b, err
}

// How often the batch is looked at, and how long a server that is away is left
// in peace.
const (
	followEvery = time.Second
	followAway  = 3 * time.Second
)

// follow writes the results as they come until the batch has ended and all are
// there. A server that is away is waited for.
func (c *batchRunCmd) follow(ctx context.Context, cl *client.Client, b *api.Batch, to *sink, p progress) (*api.Batch, error) {
	for {
		now, err := cl.Batch(ctx, b.ID)
		if err == nil {
			b = now
			err = to.more(ctx, cl)
		}
		wait := followEvery
		switch {
		case err == nil && b.State.Ended():
			if to.lines != b.Lines {
				return b, fmt.Errorf("%d results came for %d lines", to.lines, b.Lines)
			}
			p.show(b)
			return b, nil
		case err == nil:
			p.show(b)
		case !errors.Is(err, api.ErrUnavailable) && !errors.Is(err, api.ErrInternal) && !errors.Is(err, api.ErrRateLimited) || ctx.Err() != nil:
			return b, err
		default:
			wait = followAway
		}
		select {
		case <-ctx.Done():
			return b, ctx.Err()
		case <-time.After(wait):
		}
	}
}

// stopped says that nothing is lost.
func (c *batchRunCmd) stopped(ctx context.Context, e *env, err error) error {
	if ctx.Err() == nil || e.json {
		return err
	}
	return &problem{code: exitInterrupted, message: "interrupted; what was handed over goes on", cause: err, fix: "The same command again goes on where this one stopped."}
}
