package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/onefold-dev/onefold/internal/pg/pgtest"
)

func TestRunRefuses(t *testing.T) {
	t.Parallel()
	bad := filepath.Join(t.TempDir(), "onefold.yaml")
	if err := os.WriteFile(bad, []byte("kinds: {k: {provider: nosuch}}\nproviders: {p: {type: openai, base_urll: x}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		want []string
	}{
		"no database":     {nil, []string{"--database-url", "ONEFOLD_DATABASE_URL"}},
		"an unknown flag": {[]string{"--nosuch"}, []string{"--nosuch"}},
		"a log level":     {[]string{"--database-url=postgres://localhost/x", "--log-level=loud"}, []string{"loud"}},
		"a configuration with errors": {
			[]string{"--database-url=postgres://localhost/x", "--config=" + bad}, []string{"onefold.yaml:1:", "onefold.yaml:2:", "base_urll"},
		},
		"a certificate without its key": {[]string{"--tls-cert=x"}, []string{"tls-key"}},
		"nobody to ask":                 {[]string{"--healthcheck", "--addr=127.0.0.1:1"}, []string{"127.0.0.1:1"}},
		"no address":                    {[]string{"--healthcheck", "--addr=nonsense"}, []string{"HOST:PORT"}},
	} {
		err := run(context.Background(), c.args, io.Discard, io.Discard)
		if err == nil {
			t.Errorf("%s: it ran", name)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %q, want %q in it", name, err, want)
			}
		}
	}
}

// TestProcess starts the program as it is shipped, asks it whether it lives, and
// stops it as an orchestrator does.
func TestProcess(t *testing.T) {
	t.Parallel()
	bin := filepath.Join(t.TempDir(), "api")
	if out, err := exec.Command("go", "build", "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	cmd := exec.Command(bin, "--addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0")
	cmd.Env = append(os.Environ(), "ONEFOLD_DATABASE_URL="+pgtest.New(t).URL(), "OPENAI_API_KEY=")
	var log bytes.Buffer
	cmd.Stderr = &log
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	line := make([]byte, 100)
	n, err := out.Read(line)
	if err != nil {
		_ = cmd.Wait()
		t.Fatalf("it said nothing: %v\n%s", err, log.String())
	}
	url, ok := strings.CutPrefix(strings.TrimSpace(string(line[:n])), "listening on ")
	if !ok {
		t.Fatalf("got %q, want where it listens", line[:n])
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		resp, err := http.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 200 {
			t.Errorf("%s: got %d", path, resp.StatusCode)
		}
	}
	check := exec.Command(bin, "--healthcheck", "--addr", strings.TrimPrefix(url, "http://"))
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("healthcheck: %v\n%s", err, out)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v, want exit code 0\n%s", err, log.String())
	}
	for _, want := range []string{`"msg":"listening"`, `"msg":"admin listening"`, `"msg":"stopped"`} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("got the log %s, want %s in it", log.String(), want)
		}
	}
}
