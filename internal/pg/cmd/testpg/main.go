// Command testpg runs a command, such as `go test ./...`, beside one Postgres
// cluster for the tests, which it stops afterwards whatever happens:
//
//	testpg go test ./...
//
// The command finds the cluster's URL in ONEFOLD_TEST_DATABASE_URL. When that is
// set already, it is left alone and no cluster is started. The exit code is that
// of the command. For scripts/ensure-postgres.sh there are also
//
//	testpg -find      prints the folder of the server's programs, or what is missing
//	testpg -install   prints the command that installs Postgres here
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/onefold-dev/onefold/internal/pg"
)

func main() {
	code, err := run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testpg:", err)
	}
	os.Exit(code)
}

// envURL is pgtest.EnvURL. That package is not imported here: it needs the
// migrations, and this command must build while they do not.
const envURL = "ONEFOLD_TEST_DATABASE_URL"

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) (code int, err error) {
	if len(args) == 0 {
		return 2, errors.New("usage: testpg COMMAND [ARGUMENT...] | -find | -install")
	}
	switch args[0] {
	case "-find":
		dir, _, err := pg.Find()
		if err != nil {
			return 1, err
		}
		fmt.Fprintln(stdout, dir)
		return 0, nil
	case "-install":
		fmt.Fprintln(stdout, pg.InstallCommand())
		return 0, nil
	}
	return beside(args, stdin, stdout, stderr)
}

// beside runs the command beside a cluster.
func beside(args []string, stdin io.Reader, stdout, stderr io.Writer) (code int, err error) {
	// The command is in our process group and hears a Ctrl-C itself; we only must
	// outlive it. SIGTERM reaches us alone and is passed on.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)

	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, stderr
	cmd.Env = os.Environ()
	if os.Getenv(envURL) == "" {
		s, startErr := pg.Start(context.Background(), pg.Opts{
			Ephemeral: true, Settings: map[string]string{"max_connections": "400"},
		})
		if startErr != nil {
			return 1, startErr
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		cmd.Env = append(cmd.Env, envURL+"="+s.URL("postgres"))
	}
	if err := cmd.Start(); err != nil {
		return 1, fmt.Errorf("start %s: %w", args[0], err)
	}
	return wait(cmd, signals)
}

// wait returns the exit code of a started command.
func wait(cmd *exec.Cmd, signals <-chan os.Signal) (int, error) {
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case s := <-signals:
			if s == syscall.SIGTERM {
				_ = cmd.Process.Signal(s) // it may just have ended
			}
		case err := <-ended:
			var exit *exec.ExitError
			if errors.As(err, &exit) && exit.ExitCode() > 0 {
				return exit.ExitCode(), nil // it has said itself what was wrong
			}
			if err != nil {
				return 1, fmt.Errorf("%s: %w", cmd.Path, err)
			}
			return 0, nil
		}
	}
}
