package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

func none(string) string { return "" }

func TestFakellm(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	r, w := io.Pipe()
	var stderr bytes.Buffer
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, []string{"fakellm", "--addr", "127.0.0.1:0", "-o", "json"}, nil, w, &stderr, none)
		w.Close()
	}()
	out := bufio.NewScanner(r)
	if !out.Scan() {
		t.Fatalf("it said nothing; stderr: %s", stderr.String())
	}
	var ready struct{ URL string }
	if err := json.Unmarshal(out.Bytes(), &ready); err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post(ready.URL+"/chat/completions", "application/json",
		strings.NewReader(`{"model":"any","messages":[{"role":"user","content":"hello there"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(body), "hello there") {
		t.Errorf("got %s, %v; want an echo", body, err)
	}
	stop()
	if !out.Scan() || !json.Valid(out.Bytes()) {
		t.Errorf("got %q at the end, want the counts as JSON", out.Text())
	}
	if got := <-code; got != exitOK {
		t.Errorf("got exit code %d: %s", got, stderr.String())
	}
}

func TestFakellmBadFlags(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"fakellm", "--script", "nosuch=1"}, {"fakellm", "--addr", "nowhere:1:2"}} {
		var stderr bytes.Buffer
		if got := run(t.Context(), args, nil, io.Discard, &stderr, none); got == exitOK || !strings.Contains(stderr.String(), "fix") {
			t.Errorf("%q: got exit code %d and %q, want an error with a fix", args, got, stderr.String())
		}
	}
}
