package batchrun

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/onefold-dev/onefold/e2e/proc"
)

// command is `onefold batch run` as a person runs it, again and again.
type command struct {
	w       *proc.World
	url     string
	in, out string

	cmd  *exec.Cmd
	done chan struct{}
	said *buffer
}

// start runs the command; it is the same one each time.
func (c *command) start(t *testing.T) {
	t.Helper()
	c.cmd = exec.Command(filepath.Join(proc.Bin(t, proc.Build{}), "onefold"), "batch", "run", c.in, "-o", c.out)
	c.cmd.Env = append(os.Environ(), "ONEFOLD_URL="+c.url, "ONEFOLD_API_KEY="+c.w.Key)
	c.said, c.done = &buffer{}, make(chan struct{})
	c.cmd.Stdout, c.cmd.Stderr = c.said, c.said
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	cmd, done := c.cmd, c.done
	go func() {
		_ = cmd.Wait() // ProcessState tells
		close(done)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-done
	})
}

// stop signals the command and returns its exit code, -1 for a signal.
func (c *command) stop(t *testing.T, sig syscall.Signal) int {
	t.Helper()
	if err := c.cmd.Process.Signal(sig); err != nil {
		t.Fatalf("the command ended before it could be stopped: %v\n%s", err, c.said)
	}
	<-c.done
	return c.cmd.ProcessState.ExitCode()
}

type buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
