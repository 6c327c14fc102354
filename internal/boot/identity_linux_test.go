package boot_test

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/onefold-dev/onefold/internal/boot"
)

// TestEnded: a process that runs, is stopped, was killed, was waited for, or whose id another one has.
func TestEnded(t *testing.T) {
	t.Parallel()
	me := boot.Identity()
	if me == "" {
		t.Skip("this system does not tell")
	}
	if boot.Ended(me) {
		t.Error("this process has ended")
	}
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(me, "/")
	of := func(pid int, began string) string {
		return strings.Join(append(parts[:len(parts)-2:len(parts)-2], strconv.Itoa(pid), began), "/")
	}
	if !boot.Ended(of(cmd.Process.Pid, "1")) {
		t.Error("another process has the id, and the one that had it counts as alive")
	}
	began := boot.BeganAt(cmd.Process.Pid)
	child := of(cmd.Process.Pid, began)
	if boot.Ended(child) {
		t.Error("a running process has ended")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	until := time.After(time.Minute)
	for tick := time.NewTicker(10 * time.Millisecond); !boot.Ended(child); { // not waited for: what is left of it stands in the table still
		select {
		case <-tick.C:
		case <-until:
			t.Fatal("a killed process never ended")
		}
	}
	_ = cmd.Wait()
	if !boot.Ended(child) {
		t.Error("a process that was waited for is alive")
	}
	for _, other := range []string{"", "x", "a/b", strings.Replace(child, parts[0], "another-boot", 1), child[:len(child)-len(began)-1], "////"} {
		if boot.Ended(other) {
			t.Errorf("%q: nobody can know that it has ended", other)
		}
	}
}
