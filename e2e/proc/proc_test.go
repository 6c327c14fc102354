package proc_test

import (
	"encoding/json"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/e2e/proc"
)

func TestMain(m *testing.M) { proc.Main(m) }

func work(text string) api.Submit {
	input, _ := json.Marshal(map[string]string{"model": "fake:ok", "text": text})
	return api.Submit{Kind: "work", Input: input}
}

// TestLife walks a process through all that tests do to it.
func TestLife(t *testing.T) {
	t.Parallel()
	w := proc.New(t, nil)
	front, back := w.API(t), w.Worker(t)
	got, err := w.Client(t, front).Do(t.Context(), "first", work("one"))
	if err != nil || string(got.Result) != `"one"` {
		t.Fatalf("got %+v, %v; want the echo", got, err)
	}
	for len(w.Receiver.Received()) == 0 {
		<-w.Receiver.More()
	}
	if bad := w.Receiver.Bad(); bad != 0 {
		t.Errorf("%d webhooks had a wrong signature", bad)
	}
	pid := back.PID()
	back.Kill(t)
	back.Restart(t)
	if back.PID() == pid {
		t.Error("the restarted worker is the killed one")
	}
	back.Pause(t)
	back.Resume(t)
	if got, err = w.Client(t, front).Do(t.Context(), "second", work("two")); err != nil || string(got.Result) != `"two"` {
		t.Errorf("after the restart: got %+v, %v; want the echo", got, err)
	}
	back.Stop(t)
	front.Stop(t)
	if line := back.AwaitLog(t, `"stopping"`); !strings.Contains(line, "terminated") {
		t.Errorf("got the line %s, want the signal in it", line)
	}
	if calls := w.Model.Calls().Received; calls != 2 {
		t.Errorf("got %d model calls, want 2", calls)
	}
}

// TestBadStart: a process that ends instead of getting ready says why.
func TestBadStart(t *testing.T) {
	t.Parallel()
	w := proc.New(t, nil)
	_, err := w.Start(proc.APISpec("--log-level", "loud"))
	if err == nil || !strings.Contains(err.Error(), "loud") {
		t.Errorf("got %v, want the reason", err)
	}
}

// TestCleanUp: a stopped process is gone with its test.
func TestCleanUp(t *testing.T) {
	t.Parallel()
	var pid int
	t.Run("inner", func(t *testing.T) {
		p := proc.New(t, nil).API(t)
		p.Pause(t)
		pid = p.PID()
	})
	if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
		t.Errorf("got %v for the process of an ended test, want none", err)
	}
}

// TestOnefold: the CLI of the same build is there.
func TestOnefold(t *testing.T) {
	t.Parallel()
	if out, err := exec.Command(proc.Bin(t, proc.Build{})+"/onefold", "version").CombinedOutput(); err != nil {
		t.Errorf("onefold version: %v\n%s", err, out)
	}
}
