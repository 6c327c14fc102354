package proc

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Patience bounds every wait of this package: far more than a loaded machine
// needs, so that only something that never comes is given up.
const Patience = 90 * time.Second

// Spec says what process to start.
type Spec struct {
	Name string   // of the program: api, worker or onefold
	Args []string // besides those every process of the World gets
	Env  []string // over the test's own environment, "NAME=value"
	// Ready is what the line on standard output begins with that says that the
	// process is ready; "" takes any line.
	Ready string
	// Bin is a folder of programs other than the World's own; see [Bin].
	Bin string
}

// Process is a running program, and after Restart its successor. Its methods
// may be called from several goroutines; those that take a testing.TB only from
// the test's own, the others return errors instead.
type Process struct {
	spec Spec
	path string

	starts sync.Mutex // one Start at a time

	mu    sync.Mutex
	cmd   *exec.Cmd
	ended chan struct{}
	ready string // what the ready line says after Spec.Ready
	out   *output
	log   *output // over all lives
	lives int
}

// spawner starts processes from one thread that lives as long as this one:
// Linux sends the death signal when the starting thread ends.
var spawner = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

func startCmd(cmd *exec.Cmd) error {
	done := make(chan error)
	spawner() <- func() { done <- cmd.Start() }
	return <-done
}

// Start starts the process again after it ended, with the same arguments, and
// returns when it is ready. An api gets a new port: ask URL again.
func (p *Process) Start() error {
	p.starts.Lock()
	defer p.starts.Unlock()
	if cmd, ended := p.now(); cmd != nil {
		select {
		case <-ended:
		default:
			return fmt.Errorf("%s still runs", p.spec.Name)
		}
	}
	cmd := exec.Command(p.path, p.spec.Args...)
	cmd.Env = append(os.Environ(), p.spec.Env...)
	// A group of its own, so that an interrupted test run ends by cleaning up.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
	out, ended := newOutput(), make(chan struct{})
	cmd.Stdout, cmd.Stderr = out, p.log
	if err := p.spawn(cmd, out, ended); err != nil {
		return fmt.Errorf("start %s: %w", p.spec.Name, err)
	}
	line, err := await(out, 0, ended, func(l string) bool { return strings.HasPrefix(l, p.spec.Ready) })
	if err != nil {
		_ = cmd.Process.Kill()
		<-ended
		return fmt.Errorf("%s did not get ready: %w\n%s", p.spec.Name, err, p.log.tail(20))
	}
	p.mu.Lock()
	p.ready = strings.TrimSpace(strings.TrimPrefix(line, p.spec.Ready))
	p.mu.Unlock()
	return nil
}

// spawn makes cmd the process's present life.
func (p *Process) spawn(cmd *exec.Cmd, out *output, ended chan struct{}) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := startCmd(cmd); err != nil {
		return err
	}
	p.cmd, p.ended, p.out = cmd, ended, out
	p.lives++
	go func() {
		_ = cmd.Wait() // ExitCode tells
		close(ended)
	}()
	return nil
}

// await waits for a line of o until the process has ended.
func await(o *output, from int, ended <-chan struct{}, ok func(string) bool) (string, error) {
	late := time.NewTimer(Patience)
	defer late.Stop()
	for {
		line, found, n, more := o.find(from, ok)
		if found {
			return line, nil
		}
		select {
		case <-more:
			from = n
		case <-ended:
			if line, found, _, _ := o.find(from, ok); found {
				return line, nil
			}
			return "", fmt.Errorf("the process ended")
		case <-late.C:
			return "", fmt.Errorf("nothing came within %s", Patience)
		}
	}
}

func (p *Process) now() (*exec.Cmd, chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd, p.ended
}

// Name is the program's name.
func (p *Process) Name() string { return p.spec.Name }

// PID is the process's number, also after it has ended.
func (p *Process) PID() int {
	cmd, _ := p.now()
	return cmd.Process.Pid
}

// URL is where an api serves now, or served last while it starts.
func (p *Process) URL() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ready
}

// Done is closed when the process that runs now has ended.
func (p *Process) Done() <-chan struct{} {
	_, ended := p.now()
	return ended
}

// Signal sends sig. SIGSTOP and SIGCONT reach the process at once; whoever
// stops it starts it again, or Kill ends it.
func (p *Process) Signal(sig syscall.Signal) error {
	cmd, _ := p.now()
	if err := cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("send %s to %s: %w", sig, p.spec.Name, err)
	}
	return nil
}

// Exit waits until the process has ended and returns its exit code, -1 when a
// signal ended it.
func (p *Process) Exit() (int, error) {
	cmd, ended := p.now()
	late := time.NewTimer(Patience)
	defer late.Stop()
	select {
	case <-ended:
		return cmd.ProcessState.ExitCode(), nil
	case <-late.C:
		return 0, fmt.Errorf("%s did not end within %s", p.spec.Name, Patience)
	}
}

// End kills the process with -9 and waits until it is gone. It is no error when
// it is gone already.
func (p *Process) End() error {
	cmd, _ := p.now()
	_ = cmd.Process.Kill()
	_, err := p.Exit()
	return err
}

// Output is all that it wrote to standard output in its present life.
func (p *Process) Output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.text()
}

// Log is all that it wrote to standard error, over all its lives.
func (p *Process) Log() string { return p.log.text() }

// AwaitLog waits for a line of the log that contains text, from the process's
// first life on, and returns it.
func (p *Process) AwaitLog(tb testing.TB, text string) string {
	tb.Helper()
	line, err := await(p.log, 0, p.Done(), func(l string) bool { return strings.Contains(l, text) })
	if err != nil {
		tb.Fatalf("wait for %q in the log of %s: %v\n%s", text, p.spec.Name, err, p.log.tail(20))
	}
	return line
}

// Kill is End for the test's own goroutine.
func (p *Process) Kill(tb testing.TB) {
	tb.Helper()
	if err := p.End(); err != nil {
		tb.Fatal(err)
	}
}

// Stop sends SIGTERM, waits until the process has ended and demands that it
// calls the stop a success.
func (p *Process) Stop(tb testing.TB) {
	tb.Helper()
	if err := p.Signal(syscall.SIGTERM); err != nil {
		tb.Fatal(err)
	}
	code, err := p.Exit()
	if err != nil || code != 0 {
		tb.Fatalf("after SIGTERM %s ended with %d, %v; want 0\n%s", p.spec.Name, code, err, p.log.tail(30))
	}
}

// Pause stops the process with SIGSTOP; Resume lets it go on.
func (p *Process) Pause(tb testing.TB) { tb.Helper(); p.must(tb, syscall.SIGSTOP) }

// Resume lets a paused process go on.
func (p *Process) Resume(tb testing.TB) { tb.Helper(); p.must(tb, syscall.SIGCONT) }

func (p *Process) must(tb testing.TB, sig syscall.Signal) {
	tb.Helper()
	if err := p.Signal(sig); err != nil {
		tb.Fatal(err)
	}
}

// Restart is Start for the test's own goroutine.
func (p *Process) Restart(tb testing.TB) {
	tb.Helper()
	if err := p.Start(); err != nil {
		tb.Fatal(err)
	}
}

func newProcess(bin string, s Spec) *Process {
	return &Process{spec: s, path: filepath.Join(bin, s.Name), log: newOutput()}
}
