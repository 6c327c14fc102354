package pg

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestMain turns the test binary into the process whose death the tests watch,
// when this variable holds the options of the server it is to start.
const helperEnv = "ONEFOLD_PG_TEST_HELPER"

type helperState struct {
	Dir string
	URL string
	PID int
	Err string
}

func TestMain(m *testing.M) {
	if o := os.Getenv(helperEnv); o != "" {
		os.Exit(helper(o))
	}
	os.Exit(m.Run())
}

// helper starts a server, says so in one line, and waits for its input to end.
func helper(options string) int {
	var o Opts
	if err := json.Unmarshal([]byte(options), &o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	var state helperState
	s, err := Start(context.Background(), o)
	if err != nil {
		state.Err = err.Error()
	} else {
		state = helperState{Dir: s.Dir(), URL: s.URL("postgres"), PID: s.PID()}
	}
	if err := json.NewEncoder(os.Stdout).Encode(state); err != nil {
		return 2
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err == nil && s.Close() != nil {
		return 1
	}
	return 0
}

type child struct {
	cmd   *exec.Cmd
	stdin io.Closer
	state helperState
}

// startChild starts this test binary as helper, as another user if as is given.
func startChild(t *testing.T, o Opts, as *account) *child {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if as != nil { // the folder `go test` builds in is closed to other users
		b, err := os.ReadFile(self)
		if err != nil {
			t.Fatal(err)
		}
		self = filepath.Join(openDir(t), "helper")
		if err := os.WriteFile(self, b, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	options, err := json.Marshal(map[string]any{"Dir": o.Dir, "Ephemeral": o.Ephemeral})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), helperEnv+"="+string(options))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as.credential()}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &child{cmd: cmd, stdin: stdin}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("the helper said nothing: %v", err)
	}
	if err := json.Unmarshal([]byte(line), &c.state); err != nil {
		t.Fatal(err)
	}
	if c.state.Err != "" {
		t.Fatalf("the helper: %s", c.state.Err)
	}
	return c
}

func (c *child) kill(t *testing.T) {
	t.Helper()
	if err := c.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.cmd.Wait() // "signal: killed"
}

// gone waits until nothing is left of the server of a dead helper.
func gone(t *testing.T, s helperState) {
	t.Helper()
	data := filepath.Join(s.Dir, "data")
	if err := poll(t.Context(), func() bool { return postmasterOf(data) == 0 && !sessions(t, data) }); err != nil {
		t.Fatalf("process %d is still there: %v", s.PID, err)
	}
}

// sessions says whether any process at all works in the data folder.
func sessions(t *testing.T, data string) bool {
	t.Helper()
	procs, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range procs {
		if cwd, err := os.Readlink(p); err == nil && strings.TrimSuffix(cwd, " (deleted)") == data {
			return true
		}
	}
	return false
}

// TestParentKilled kills the parent of a server with -9: no server stays, and
// only data that were meant to.
func TestParentKilled(t *testing.T) {
	t.Parallel()
	t.Run("ephemeral", func(t *testing.T) {
		t.Parallel()
		c := startChild(t, Opts{Ephemeral: true}, nil)
		if !alive(c.state.PID) {
			t.Fatal("the server did not run")
		}
		c.kill(t)
		gone(t, c.state)
		removed := func() bool { _, err := os.Stat(c.state.Dir); return errors.Is(err, os.ErrNotExist) }
		if err := poll(t.Context(), removed); err != nil {
			t.Errorf("the folder %s is still there", c.state.Dir)
		}
	})
	t.Run("kept", func(t *testing.T) {
		t.Parallel()
		dir := filepath.Join(openDir(t), "pg")
		c := startChild(t, Opts{Dir: dir}, nil)
		c.kill(t)
		// At once, while the old server may still be stopping.
		s := start(t, Opts{Dir: dir})
		if got := eval(t, s, "SELECT 'up'"); got != "up" {
			t.Errorf("got %q, want up", got)
		}
		if s.PID() == c.state.PID {
			t.Error("the orphan was taken over")
		}
	})
}

func TestParentEnds(t *testing.T) {
	t.Parallel()
	c := startChild(t, Opts{Ephemeral: true}, nil)
	if err := c.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Wait(); err != nil {
		t.Errorf("the helper: %v", err)
	}
	if _, err := os.Stat(c.state.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder %s is still there: %v", c.state.Dir, err)
	}
}

func asRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it is about running as another user")
	}
}

func TestRoot(t *testing.T) {
	t.Parallel()
	asRoot(t)
	s := start(t, Opts{Dir: filepath.Join(openDir(t), "pg")})
	info, err := os.Stat(fmt.Sprintf("/proc/%d", s.PID()))
	if err != nil {
		t.Fatal(err)
	}
	if uid := info.Sys().(*syscall.Stat_t).Uid; uid == 0 {
		t.Error("Postgres runs as root")
	}
}

func TestRootUnreachable(t *testing.T) {
	t.Parallel()
	asRoot(t)
	dir := filepath.Join(t.TempDir(), "closed", "pg")
	if err := os.Mkdir(filepath.Dir(dir), 0o700); err != nil {
		t.Fatal(err)
	}
	var log logBuffer
	s := start(t, Opts{Dir: dir, Log: &log})
	t.Cleanup(func() { os.RemoveAll(s.Dir()) })
	if s.Dir() == dir || !strings.Contains(log.String(), s.Dir()) {
		t.Errorf("got folder %s, log:\n%s\nwant another folder, and a note that names it", s.Dir(), &log)
	}
	mark(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := eval(t, start(t, Opts{Dir: dir}), readMark); got != "kept" {
		t.Errorf("the same folder again: got %q, want kept", got)
	}
}

// TestNotRoot runs the way of every developer's machine also where the tests run
// as root.
func TestNotRoot(t *testing.T) {
	t.Parallel()
	asRoot(t)
	nobody := &account{name: "nobody", uid: 65534, gid: 65534}
	for name, ephemeral := range map[string]bool{"ephemeral": true, "kept": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := Opts{Ephemeral: ephemeral}
			if !ephemeral {
				dir := openDir(t)
				if err := nobody.own(dir); err != nil {
					t.Fatal(err)
				}
				o.Dir = filepath.Join(dir, "pg")
			}
			c := startChild(t, o, nobody)
			c.kill(t)
			gone(t, c.state)
		})
	}
}
