package main

import (
	"bufio"
	"context"
	_ "embed"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onefold-dev/onefold/internal/auth"
	"github.com/onefold-dev/onefold/internal/fakellm"
	"github.com/onefold-dev/onefold/internal/pg"
	"github.com/onefold-dev/onefold/migrations"
)

//go:embed onefold.yaml.tmpl
var configTemplate string

const secret = "whsec_ZGVtby1zZWNyZXQtZGVtby1zZWNyZXQtZGVtby0zMg=="

// stage is everything the demo runs on.
type stage struct {
	bin, dir, config string
	db               *pgxpool.Pool
	url, key         string
	model            *fakellm.Server
	receiver         *receiver
	procs            []*exec.Cmd
	close            []func()
}

// receiver is the customer's system: it verifies each webhook and counts by id.
type receiver struct {
	mu  sync.Mutex
	ids map[string]int
	bad int
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(io.LimitReader(req.Body, 1<<20))
	hook, err := standardwebhooks.NewWebhook(secret)
	if err == nil {
		err = hook.Verify(body, req.Header)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.bad++
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	r.ids[req.Header.Get("webhook-id")]++
}

func setUp(ctx context.Context, bin string) (*stage, error) {
	s := &stage{bin: bin, receiver: &receiver{ids: map[string]int{}}}
	var err error
	if s.dir, err = os.MkdirTemp("", "onefold-demo-"); err != nil {
		return s, err
	}
	s.close = append(s.close, func() { _ = os.RemoveAll(s.dir) })
	server, err := pg.Start(context.WithoutCancel(ctx), pg.Opts{Ephemeral: true, Log: io.Discard})
	if err != nil {
		return s, fmt.Errorf("start postgres: %w", err)
	}
	s.close = append(s.close, func() { _ = server.Close() })
	s.url = server.URL("postgres")
	if err := migrations.Up(ctx, s.url); err != nil {
		return s, err
	}
	if s.db, err = pgxpool.New(ctx, s.url); err != nil {
		return s, err
	}
	s.close = append(s.close, s.db.Close)
	if _, err := s.db.Exec(ctx, `CREATE TABLE public.invoices (key text, number text, total numeric, currency text)`); err != nil {
		return s, err
	}
	if s.key, _, err = auth.Create(ctx, s.db, auth.NewKey{Tenant: "demo", Actor: "demo"}); err != nil {
		return s, err
	}
	s.model = fakellm.New()
	hooks := httptest.NewServer(s.receiver)
	s.close = append(s.close, s.model.Close, hooks.Close)
	text := strings.NewReplacer("{{FAKELLM}}", s.model.URL(), "{{RECEIVER}}", hooks.URL+"/hooks").Replace(configTemplate)
	s.config = filepath.Join(s.dir, "onefold.yaml")
	return s, os.WriteFile(s.config, []byte(text), 0o600)
}

// start runs one of our programs and returns its first line once it is ready.
func (s *stage) start(name string, args ...string) (*exec.Cmd, string, error) {
	log, err := os.Create(filepath.Join(s.dir, fmt.Sprintf("%s-%d.log", name, len(s.procs))))
	if err != nil {
		return nil, "", err
	}
	cmd := exec.Command(filepath.Join(s.bin, name), append([]string{"--config", s.config, "--database-url", s.url}, args...)...)
	cmd.Env = append(os.Environ(), "CRM_SECRET="+secret)
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, "", err
	}
	if err := cmd.Start(); err != nil {
		return nil, "", fmt.Errorf("start %s (run `make build` first): %w", name, err)
	}
	s.procs = append(s.procs, cmd)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		why, _ := os.ReadFile(log.Name())
		return nil, "", fmt.Errorf("%s did not start: %s", name, why)
	}
	return cmd, strings.TrimSpace(line), nil
}

func (s *stage) tearDown() {
	for _, p := range s.procs {
		_ = p.Process.Kill()
		_ = p.Wait()
	}
	for i := len(s.close) - 1; i >= 0; i-- {
		s.close[i]()
	}
}
