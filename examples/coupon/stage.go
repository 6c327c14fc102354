package main

import (
	"bufio"
	"context"
	_ "embed"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onefold-dev/onefold/internal/fakellm"
	"github.com/onefold-dev/onefold/internal/pg"
	"github.com/onefold-dev/onefold/migrations"
)

var (
	//go:embed onefold.yaml.tmpl
	configTemplate string
	//go:embed coupons.sql
	schema string
)

// The shop's secrets, before and after its rotation.
const (
	oldSecret = "whsec_b2xkLXNlY3JldC1vZi10aGUtc2hvcC0zMi1ieXRlcyE="
	newSecret = "whsec_bmV3LXNlY3JldC1vZi10aGUtc2hvcC0zMi1ieXRlcyE="
)

// stage is what the example runs on: a database, a model, two API processes and
// a worker.
type stage struct {
	bin, dir, config, url string
	db                    *pgxpool.Pool
	model                 *fakellm.Server
	apis                  []string
	procs                 []*exec.Cmd
	close                 []func()
}

func setUp(ctx context.Context, bin string) (*stage, error) {
	s := &stage{bin: bin}
	var err error
	if s.dir, err = os.MkdirTemp("", "onefold-coupon-"); err != nil {
		return s, fmt.Errorf("make a folder: %w", err)
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
		return s, fmt.Errorf("open the database: %w", err)
	}
	s.close = append(s.close, s.db.Close)
	if _, err := s.db.Exec(ctx, schema); err != nil {
		return s, fmt.Errorf("make the shop's tables: %w", err)
	}
	s.model = fakellm.New()
	s.close = append(s.close, s.model.Close)
	s.config = filepath.Join(s.dir, "onefold.yaml")
	if err := os.WriteFile(s.config, []byte(strings.ReplaceAll(configTemplate, "{{MODEL}}", s.model.URL())), 0o600); err != nil {
		return s, fmt.Errorf("write the configuration: %w", err)
	}
	return s, s.startAll()
}

func (s *stage) startAll() error {
	for range 2 {
		line, err := s.start("api", "--addr", "127.0.0.1:0")
		if err != nil {
			return err
		}
		s.apis = append(s.apis, line[strings.Index(line, "http"):])
	}
	_, err := s.start("worker")
	return err
}

// start runs one of our programs and returns its first line, which it prints
// when it is ready.
func (s *stage) start(name string, args ...string) (string, error) {
	log, err := os.Create(filepath.Join(s.dir, fmt.Sprintf("%s-%d.log", name, len(s.procs))))
	if err != nil {
		return "", fmt.Errorf("open a log: %w", err)
	}
	cmd := exec.Command(filepath.Join(s.bin, name), append([]string{"--config", s.config, "--database-url", s.url}, args...)...)
	cmd.Env = append(os.Environ(), "SHOP_SECRET_OLD="+oldSecret, "SHOP_SECRET="+newSecret)
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", fmt.Errorf("start %s: %w", name, err)
	}
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("start %s (run `make build` first): %w", name, err)
	}
	s.procs = append(s.procs, cmd)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		why, _ := os.ReadFile(log.Name())
		return "", fmt.Errorf("%s did not start: %s", name, why)
	}
	return strings.TrimSpace(line), nil
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
