package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/onefold-dev/onefold/internal/fakellm"
)

type fakellmCmd struct {
	Addr   string `default:"127.0.0.1:8090" placeholder:"HOST:PORT" help:"Where to listen; port 0 takes a free one."`
	Script string `placeholder:"SCRIPT" help:"How models without a script of their own answer, as in latency=2s,rate=50."`
}

func (c *fakellmCmd) Help() string {
	return `It speaks OpenAI's chat completions and responses (in the background, too) and Anthropic's Messages, and counts
every call. A model name that begins with "fake:" holds a script:

    fake:status=429,retry_after=2;ok     the first call is refused, later ones are answered
    fake:latency=500ms,rate=50           first token after half a second, then 50 tokens a second
    fake:95%ok|3%status=500|hang         of a hundred calls 3 fail and 2 are never answered

GET /_fake/calls shows the counts.`
}

// Run serves until ctx ends.
func (c *fakellmCmd) Run(ctx context.Context, e *env) error {
	h := fakellm.NewHandler()
	if c.Script != "" {
		if err := h.Script("", c.Script); err != nil {
			return usage(fmt.Sprintf("--script: %v", err), "See `onefold fakellm --help`.")
		}
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", c.Addr)
	if err != nil {
		return &problem{code: exitError, message: err.Error(), cause: err, fix: "Give another address with --addr; port 0 takes a free one."}
	}
	if err := c.announce(e, l.Addr().String()); err != nil {
		l.Close()
		return err
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	select {
	case err = <-served:
	case <-ctx.Done():
		h.Close()
		_ = s.Close() // calls that wait are cut, as a model server's would be
		err = <-served
	}
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return e.calls(h.Calls())
}

func (c *fakellmCmd) announce(e *env, addr string) error {
	if e.json {
		b, err := json.Marshal(map[string]string{"url": "http://" + addr + "/v1"})
		if err != nil {
			return fmt.Errorf("encode: %w", err)
		}
		return e.print(string(b) + "\n")
	}
	return e.print(fmt.Sprintf("fakellm listens on http://%s/v1 (counts: http://%s/_fake/calls); Ctrl-C stops it\n", addr, addr))
}

func (e *env) calls(c fakellm.Calls) error {
	b, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	if e.json {
		return e.print(string(b) + "\n")
	}
	return e.print("calls: " + string(b) + "\n")
}
