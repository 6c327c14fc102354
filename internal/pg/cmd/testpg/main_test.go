package main

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// TestMain lets the test binary be testpg itself, for the tests that signal it.
func TestMain(m *testing.M) {
	if os.Getenv("TESTPG_TEST_MAIN") == "1" {
		main()
	}
	os.Exit(m.Run())
}

const printURL = `echo "$ONEFOLD_TEST_DATABASE_URL"`

// testpg starts the program with a shell script as its command and returns the
// first line the script prints.
func testpg(t *testing.T, script string, env ...string) (*exec.Cmd, string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "sh", "-c", script)
	cmd.Env = append(os.Environ(), append([]string{"TESTPG_TEST_MAIN=1", envURL + "="}, env...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that a Ctrl-C can be meant for it alone
	// Its input stays open: scripts wait for it.
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return cmd, strings.TrimSpace(line)
}

func listens(t *testing.T, dsn string) bool {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil || u.Host == "" {
		t.Fatalf("the command got the URL %q (%v)", dsn, err)
	}
	conn, err := net.Dial("tcp", u.Host)
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

func TestExitCode(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]int{printURL: 0, printURL + "; exit 7": 7, printURL + "; kill -9 $$": 1} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			cmd, dsn := testpg(t, script)
			_ = cmd.Wait()
			if got := cmd.ProcessState.ExitCode(); got != want {
				t.Errorf("exit code: got %d, want %d", got, want)
			}
			if listens(t, dsn) {
				t.Error("the cluster still runs")
			}
		})
	}
}

// TestSignals ends testpg as a terminal does, which signals the command too, and
// as a supervisor does, which does not.
func TestSignals(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(pid int) error{
		"ctrl-c":  func(pid int) error { return syscall.Kill(-pid, syscall.SIGINT) },
		"sigterm": func(pid int) error { return syscall.Kill(pid, syscall.SIGTERM) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd, dsn := testpg(t, printURL+"; exec cat")
			if !listens(t, dsn) {
				t.Fatal("no cluster runs")
			}
			if err := stop(cmd.Process.Pid); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err == nil {
				t.Error("a command that was stopped counts as good")
			}
			if listens(t, dsn) {
				t.Error("the cluster still runs")
			}
		})
	}
}

func TestGivenURL(t *testing.T) {
	t.Parallel()
	const given = "postgres://somebody@db.example.com/x"
	cmd, got := testpg(t, printURL, envURL+"="+given)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if got != given {
		t.Errorf("got %s, want %s", got, given)
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	if code, err := run(nil, nil, io.Discard, io.Discard); code != 2 || err == nil {
		t.Errorf("got %d, %v; want 2 and how to use it", code, err)
	}
	var out strings.Builder
	if code, err := run([]string{"-install"}, nil, &out, io.Discard); code != 0 || err != nil || strings.TrimSpace(out.String()) == "" {
		t.Errorf("-install: got %d, %v, %q", code, err, out.String())
	}
	out.Reset()
	if code, err := run([]string{"-find"}, nil, &out, io.Discard); code != 0 || err != nil || !strings.Contains(out.String(), "/") {
		t.Errorf("-find: got %d, %v, %q", code, err, out.String())
	}
}
