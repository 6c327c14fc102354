//go:build failpoints

package failpoint

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Enabled says whether this build has failpoints.
const Enabled = true

// The environment of a process under test:
//
//	ONEFOLD_FAILPOINTS      name=mode[@n][;...]  mode: kill, error, stall:20s; the n-th hit, 1 if absent; @all for every hit
//	ONEFOLD_FAILPOINTS_LOG  a file that gets one line "name mode" per point reached
var (
	mu    sync.Mutex
	armed = parse(os.Getenv("ONEFOLD_FAILPOINTS"))
	hits  = map[Point]int{}
	log   = openLog(os.Getenv("ONEFOLD_FAILPOINTS_LOG"))
)

type arm struct {
	mode  string
	stall time.Duration
	at    int // 0 = every hit
}

func parse(s string) map[Point]arm {
	out := map[Point]arm{}
	for _, part := range strings.FieldsFunc(s, func(r rune) bool { return r == ';' }) {
		name, what, ok := strings.Cut(part, "=")
		if !ok {
			panic("failpoint: want name=mode, got " + part)
		}
		what, nth, _ := strings.Cut(what, "@")
		a := arm{at: 1}
		if nth == "all" {
			a.at = 0
		} else if nth != "" {
			n, err := strconv.Atoi(nth)
			if err != nil {
				panic("failpoint: bad hit number in " + part)
			}
			a.at = n
		}
		mode, dur, _ := strings.Cut(what, ":")
		a.mode = mode
		if mode == "stall" {
			d, err := time.ParseDuration(dur)
			if err != nil {
				panic("failpoint: bad stall in " + part)
			}
			a.stall = d
		}
		out[Point(name)] = a
	}
	return out
}

func openLog(path string) *os.File {
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
	if err != nil {
		panic(err)
	}
	return f
}

// Hit notes that the point was reached and does what the environment says.
func Hit(p Point) error {
	mu.Lock()
	hits[p]++
	n, a := hits[p], armed[p]
	fire := a.mode != "" && (a.at == 0 || a.at == n)
	if log != nil && (n == 1 || fire) {
		mode := "reached"
		if fire {
			mode = a.mode
		}
		fmt.Fprintf(log, "%s %s\n", p, mode)
	}
	mu.Unlock()
	if !fire {
		return nil
	}
	switch a.mode {
	case "kill":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case "stall":
		time.Sleep(a.stall)
		return nil
	case "error":
		return fmt.Errorf("%w at %s", ErrInjected, p)
	}
	panic("failpoint: unknown mode " + a.mode)
}
