package pg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// postmasterOf returns the process id of the Postgres server that really runs on
// data, or 0. A postmaster.pid alone proves nothing: after a crash its number
// may belong to any other process.
func postmasterOf(data string) int {
	b, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(b), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(first))
	if err != nil || pid <= 0 || !alive(pid) {
		return 0
	}
	// A server's working directory is its data folder.
	if cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid)); err == nil {
		if sameFile(cwd, data) {
			return pid
		}
		return 0
	}
	out, err := exec.Command("ps", "-o", "command=", "-p", strconv.Itoa(pid)).Output()
	if err == nil && strings.Contains(string(out), "postgres") && strings.Contains(string(out), data) {
		return pid
	}
	return 0
}

func sameFile(a, b string) bool {
	x, err1 := os.Stat(a)
	y, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && os.SameFile(x, y)
}

func alive(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}

// clearStale makes way for a new server on f, whose lock we hold: no process of
// ours uses it. A server left running there is stopped; a postmaster.pid that
// names somebody else's process is removed, because Postgres would believe it.
// One that names no process is Postgres' own business.
func clearStale(ctx context.Context, f *folder, note func(string, ...any)) error {
	if pid := postmasterOf(f.data()); pid != 0 {
		note("stopping the Postgres server (process %d) that an earlier run left in %s", pid, f.path)
		if err := syscall.Kill(pid, syscall.SIGINT); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("stop the Postgres server left in %s (process %d): %w", f.path, pid, err)
		}
		ctx, cancel := context.WithTimeout(ctx, stopPatience)
		defer cancel()
		if err := poll(ctx, func() bool { return postmasterOf(f.data()) != pid }); err != nil {
			return fmt.Errorf("wait for the Postgres server left in %s (process %d) to stop: %w", f.path, pid, err)
		}
	}
	file := filepath.Join(f.data(), "postmaster.pid")
	b, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	first, _, _ := strings.Cut(string(b), "\n")
	if pid, err := strconv.Atoi(strings.TrimSpace(first)); err == nil && !alive(pid) {
		return nil
	}
	note("removing the stale %s", file)
	if err := os.Remove(file); err != nil {
		return fmt.Errorf("remove a stale file: %w", err)
	}
	return nil
}

// pollEvery is how often things are looked at that signal nothing.
const pollEvery = 10 * time.Millisecond

// poll waits until done says so, or ctx ends.
func poll(ctx context.Context, done func() bool) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
	return nil
}
