package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/client"
)

// patience is the caller's own timeout, shorter than the model takes; tries is
// how often it sends the same request again all the same.
const (
	patience = 400 * time.Millisecond
	tries    = 4
)

func run(ctx context.Context, bin, invoices string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	files, err := filepath.Glob(filepath.Join(invoices, "*.txt"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no invoice texts in %s", invoices)
	}
	s, err := setUp(ctx, bin)
	defer s.tearDown()
	if err != nil {
		return err
	}
	var apis []*client.Client
	for range 2 {
		_, line, err := s.start("api", "--addr", "127.0.0.1:0")
		if err != nil {
			return err
		}
		c, err := client.New(strings.TrimPrefix(line, "listening on "), s.key, nil)
		if err != nil {
			return err
		}
		apis = append(apis, c)
	}
	victim, _, err := s.start("worker", "--lease", "3s")
	if err != nil {
		return err
	}
	fmt.Printf("%d invoices; the model takes 1.5 s, each caller waits %s and then sends again, %d times, over two API processes\n", len(files), patience, tries)
	sent, err := s.storm(ctx, apis, files, func() {
		fmt.Println("one worker is killed with -9 in the middle of its calls; another takes over when the lease runs out")
		_ = victim.Process.Kill()
		if _, _, err := s.start("worker", "--lease", "3s"); err != nil {
			fmt.Fprintln(os.Stderr, "demo:", err)
		}
	})
	if err != nil {
		return err
	}
	for _, f := range files {
		t, err := apis[0].Find(ctx, "invoice.extract", key(f))
		if err != nil {
			return err
		}
		if _, err := apis[0].Wait(ctx, t.ID); err != nil {
			return fmt.Errorf("invoice %s: %w", filepath.Base(f), err)
		}
	}
	return s.report(ctx, len(files), int(sent))
}

func key(file string) string { return client.Key("invoice", filepath.Base(file), "extract") }

// storm lets one impatient caller an invoice submit and submit again; strike is
// called once the model is at work.
func (s *stage) storm(ctx context.Context, apis []*client.Client, files []string, strike func()) (int64, error) {
	var sent atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, len(files))
	for i, f := range files {
		wg.Go(func() { errs[i] = s.caller(ctx, apis, i, f, &sent) })
	}
	for s.model.Calls().Received < len(files)/2 && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	strike()
	wg.Wait()
	return sent.Load(), errors.Join(errs...)
}

func (s *stage) caller(ctx context.Context, apis []*client.Client, i int, file string, sent *atomic.Int64) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	input, err := json.Marshal(map[string]string{"text": string(text)})
	if err != nil {
		return err
	}
	for n := range tries {
		sent.Add(1)
		_, err := apis[(i+n)%len(apis)].Submit(ctx, key(file), api.Submit{Kind: "invoice.extract", Input: input}, nil)
		if err != nil {
			return fmt.Errorf("invoice %s: %w", filepath.Base(file), err)
		}
		time.Sleep(patience) // no result in time: the caller sends again
	}
	return nil
}
