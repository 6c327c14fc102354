package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/client"
	"github.com/onefold-dev/onefold/e2e/proc"
	"github.com/onefold-dev/onefold/internal/casetest"
	"github.com/onefold-dev/onefold/internal/fakellm"
	"github.com/onefold-dev/onefold/internal/pg/pgtest"
)

// composed is what this test reads of docker-compose.yml.
type composed struct {
	Services map[string]struct {
		Command     []string          `yaml:"command"`
		Environment map[string]string `yaml:"environment"`
		Healthcheck struct {
			Test []string `yaml:"test"`
		} `yaml:"healthcheck"`
		DependsOn map[string]struct {
			Condition string `yaml:"condition"`
		} `yaml:"depends_on"`
		Deploy struct {
			Replicas int `yaml:"replicas"`
		} `yaml:"deploy"`
	} `yaml:"services"`
}

// TestComposeFile runs what docker-compose.yml says, without containers: each
// service's own command with its own environment, in the order of depends_on, on
// a database that is as empty as the image's. What differs is named in `here`:
// addresses, because the processes share one machine.
func TestComposeFile(t *testing.T) {
	t.Parallel()
	c := readCompose(t)
	model := fakellm.New()
	t.Cleanup(model.Close)
	here := composeHere(t, model.URL())
	bin := proc.Bin(t, proc.Build{})

	migrate := c.Services["migrate"]
	for range 2 { // a second `up` migrates again
		if out, err := composeRun(t, bin, migrate.Command, migrate.Environment, here); err != nil {
			t.Fatalf("migrate: %v\n%s", err, out)
		}
	}
	apiAddr := composeStart(t, c, bin, "api", here)
	for range max(c.Services["worker"].Deploy.Replicas, 1) {
		composeStart(t, c, bin, "worker", here)
	}

	env := c.Services["api"].Environment // as `docker compose exec api` has it
	out, err := composeRun(t, bin, []string{"/bin/onefold", "keys", "create", "--tenant", "shop", "--name", "try", "-o", "json"}, env, here)
	if err != nil {
		t.Fatalf("keys create in the api's container: %v\n%s", err, out)
	}
	var key struct{ Secret string }
	if err := json.Unmarshal(out, &key); err != nil || key.Secret == "" {
		t.Fatalf("keys create: %v\n%s", err, out)
	}
	cl, err := client.New("http://"+apiAddr, key.Secret, nil)
	if err != nil {
		t.Fatal(err)
	}
	task, err := cl.Submit(t.Context(), "compose:1", api.Submit{
		Kind: "llm.chat", Input: json.RawMessage(`{"model":"fake:ok","messages":[{"role":"user","content":"hello"}]}`),
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if task, err = cl.Wait(t.Context(), task.ID); err != nil || task.State != api.Succeeded {
		t.Fatalf("the task: %v, %v", task, err)
	}
}

func readCompose(t *testing.T) composed {
	t.Helper()
	root, err := casetest.Root()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "docker-compose.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var c composed
	// goccy/go-yaml counts what overrides a merge key as a duplicate.
	if err := yaml.UnmarshalWithOptions([]byte(composeVariables(text)), &c, yaml.AllowDuplicateMapKey()); err != nil {
		t.Fatal(err)
	}
	for service, want := range map[string]string{"migrate": "service_healthy", "api": "service_completed_successfully", "worker": "service_completed_successfully"} {
		on := map[string]string{"migrate": "postgres"}[service]
		if on == "" {
			on = "migrate"
		}
		if got := c.Services[service].DependsOn[on].Condition; got != want {
			t.Errorf("%s starts when %s is %q, want %q", service, on, got, want)
		}
	}
	return c
}

// composeVariables puts the defaults of ${NAME:-default} in.
func composeVariables(text []byte) string {
	return string(regexp.MustCompile(`\$\{\w+:-([^}]*)\}`).ReplaceAll(text, []byte("$1")))
}

// composeHere makes an empty database as the postgres image would, and returns
// what stands for the names and ports of the compose network on this machine.
func composeHere(t *testing.T, model string) *strings.Replacer {
	t.Helper()
	cluster := pgtest.Cluster(t)
	u, err := url.Parse(cluster.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), u.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	for _, sql := range []string{"CREATE ROLE onefold SUPERUSER LOGIN PASSWORD 'onefold'", "CREATE DATABASE onefold OWNER onefold"} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	return strings.NewReplacer("@postgres:5432", "@"+u.Host, "https://api.openai.com/v1", model)
}

func composeCommand(ctx context.Context, bin string, command []string, env map[string]string, here *strings.Replacer) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(bin, filepath.Base(command[0])), command[1:]...)
	cmd.Env = []string{"PATH=/nowhere"} // the image holds nothing else
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+here.Replace(value))
	}
	cmd.Dir = os.TempDir()
	return cmd
}

func composeRun(t *testing.T, bin string, command []string, env map[string]string, here *strings.Replacer) ([]byte, error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := composeCommand(t.Context(), bin, command, env, here)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if err != nil {
		return append(stdout.Bytes(), stderr.Bytes()...), err
	}
	return stdout.Bytes(), nil
}

// composeStart starts a service on free ports, waits until its own health check
// is content, and returns the address the check asks.
func composeStart(t *testing.T, c composed, bin, service string, here *strings.Replacer) string {
	t.Helper()
	s := c.Services[service]
	command, check := slices.Clone(s.Command), slices.Clone(s.Healthcheck.Test[1:])
	var asked string
	for i, arg := range command {
		if _, _, err := net.SplitHostPort(arg); err != nil {
			continue
		}
		free := freeAddress(t)
		command[i] = free
		if at := slices.Index(check, arg); at >= 0 {
			check[at], asked = free, free
		}
	}
	if asked == "" {
		t.Fatalf("the health check of %s asks none of its addresses: %q, %q", service, s.Command, s.Healthcheck.Test)
	}
	var log bytes.Buffer
	cmd := composeCommand(context.WithoutCancel(t.Context()), bin, command, s.Environment, here)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // what compose sends
		select {
		case <-ended:
		case <-time.After(proc.Patience):
			_ = cmd.Process.Kill()
			<-ended
			t.Errorf("%s did not stop", service)
		}
		if t.Failed() {
			t.Logf("%s:\n%s", service, log.Bytes())
		}
	})
	proc.Until(t, service+" is healthy", func() bool {
		_, err := composeRun(t, bin, check, s.Environment, here)
		return err == nil
	})
	return asked
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
