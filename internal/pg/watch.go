package pg

import (
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"syscall"
)

// watchScript reads process ids, one a line, of which the last one counts; 0
// means that nothing runs. When its input ends, because its parent has, it stops
// that process and removes the folder, if it was given one. A dead process may
// stay a zombie for long where nobody reaps it, so its pid file is looked at too.
const watchScript = `
pid=0
while read -r p; do pid=$p; done
if [ "$pid" -gt 0 ]; then
	kill -s "$1" "$pid" 2>/dev/null
	n=0
	while [ -e "$3" ] && kill -0 "$pid" 2>/dev/null && [ "$n" -lt 300 ]; do sleep 0.1; n=$((n+1)); done
	[ "$n" -lt 300 ] || kill -s KILL "$pid" 2>/dev/null
fi
[ -z "$2" ] || rm -rf -- "$2"
`

// watcher is a shell that outlives us by the moment it needs to stop Postgres.
// In its own process group it is spared a Ctrl-C or a kill meant for us.
type watcher struct {
	cmd *exec.Cmd
	in  io.WriteCloser
}

// startWatcher starts one. sig is the name of the signal that ends Postgres;
// remove is a folder to delete after that, or empty; pidFile is the file that
// Postgres removes when it ends.
func startWatcher(sig, remove, pidFile string) (*watcher, error) {
	cmd := exec.Command("/bin/sh", "-c", watchScript, "onefold-pg-watch", sig, remove, pidFile)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start the watcher of Postgres: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the watcher of Postgres: %w", err)
	}
	return &watcher{cmd: cmd, in: in}, nil
}

// watch names the process to stop if we die; 0 for none.
func (w *watcher) watch(pid int) error {
	if _, err := io.WriteString(w.in, strconv.Itoa(pid)+"\n"); err != nil {
		return fmt.Errorf("tell the watcher of Postgres: %w", err)
	}
	return nil
}

// end dismisses the watcher without anything being stopped or removed.
func (w *watcher) end() {
	_ = w.cmd.Process.Kill()
	_ = w.cmd.Wait() // always "signal: killed"; it also closes the pipe
}
