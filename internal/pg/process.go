package pg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// environment is all that Postgres' programs get: fixed language, so that our
// user's locale does not end up in a cluster, and no PG* variables.
func environment() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC"}
}

// process is one run of the postgres program.
type process struct {
	pid  int
	done chan struct{} // closed when it has ended
	tail *tail
}

// startProcess runs postgres. It has a process group of its own, so that a
// Ctrl-C in the terminal reaches us and not it: we decide when it stops.
func startProcess(binDir string, f *folder, args []string, death syscall.Signal, log io.Writer) (*process, error) {
	p := &process{done: make(chan struct{}), tail: &tail{next: log}}
	cmd := exec.Command(filepath.Join(binDir, "postgres"), args...)
	cmd.Dir = f.data()
	cmd.Env = environment()
	cmd.Stdout, cmd.Stderr = p.tail, p.tail
	cmd.WaitDelay = time.Second // backends may hold the pipe a little longer than the server lives
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: f.as.credential(), Setpgid: true}
	dieWithParent(cmd.SysProcAttr, death)

	started := make(chan error)
	go func() {
		// The kernel ties the death signal to this thread, not to our process.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			p.pid = cmd.Process.Pid
		}
		started <- err
		if err != nil {
			return
		}
		_ = cmd.Wait() // how it ended stands in its log
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start Postgres: %w", err)
	}
	return p, nil
}

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// stopPatience is how long a stop may take before a harder one follows; a fast
// stop writes a checkpoint, which on a slow disk takes seconds.
const stopPatience = 30 * time.Second

// stop sends sig, waits, and hardens when that does not help.
func (p *process) stop(sig syscall.Signal) error {
	for _, s := range []syscall.Signal{sig, syscall.SIGQUIT, syscall.SIGKILL} {
		if !p.running() {
			return nil
		}
		if err := syscall.Kill(p.pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("stop Postgres (process %d): %w", p.pid, err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), stopPatience)
		select {
		case <-p.done:
		case <-ctx.Done():
		}
		cancel()
	}
	if p.running() {
		return fmt.Errorf("stop Postgres (process %d): it ignores every signal", p.pid)
	}
	return nil
}

// tail passes a log on and keeps its last lines for error messages.
type tail struct {
	mu   sync.Mutex
	last []byte
	next io.Writer
}

const tailSize = 4 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = append(t.last, b...)
	if extra := len(t.last) - tailSize; extra > 0 {
		t.last = t.last[extra:]
	}
	if t.next != nil {
		_, _ = t.next.Write(b) // a broken log must not stop the database
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.last)
}
