package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// result is one scenario in one round.
type result struct {
	n     int
	took  time.Duration
	each  []time.Duration // sorted; nil where nothing was timed one by one
	goCPU time.Duration   // of this process: onefold, and the callers
	pgCPU time.Duration   // of all processes of Postgres
	wal   int64           // bytes
}

func (r result) rate() float64 {
	if r.took <= 0 {
		return 0
	}
	return float64(r.n) / r.took.Seconds()
}

// meter measures one scenario.
type meter struct {
	cluster *cluster
	profile string // file, "" for none
	file    *os.File
	began   sample
	result  result
}

// sample is what has been used up to now.
type sample struct {
	goCPU, pgCPU time.Duration
	wal          int64
}

// begin is called after the warming up.
func (m *meter) begin(ctx context.Context) (err error) {
	runtime.GC() // what the setting up left is not the scenario's
	if m.profile != "" {
		if m.file, err = os.Create(m.profile); err != nil {
			return fmt.Errorf("make a profile: %w", err)
		}
		if err := pprof.StartCPUProfile(m.file); err != nil {
			return fmt.Errorf("profile: %w", err)
		}
	}
	m.began, err = m.sample(ctx)
	return err
}

// end is called when the measured work is done: n tasks, in the time it took.
func (m *meter) end(ctx context.Context, n int, took time.Duration, each []time.Duration) error {
	now, err := m.sample(ctx)
	if m.file != nil {
		pprof.StopCPUProfile()
		if cerr := m.file.Close(); err == nil {
			err = cerr
		}
	}
	if err != nil {
		return err
	}
	if n == 0 {
		return errNoTasks
	}
	slices.Sort(each)
	m.result = result{
		n: n, took: took, each: each,
		goCPU: now.goCPU - m.began.goCPU, pgCPU: now.pgCPU - m.began.pgCPU, wal: now.wal - m.began.wal,
	}
	return nil
}

func (m *meter) sample(ctx context.Context) (s sample, err error) {
	if err := m.cluster.admin.QueryRow(ctx, `SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint`).Scan(&s.wal); err != nil {
		return s, fmt.Errorf("read the log's position: %w", err)
	}
	var ru syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &ru); err != nil {
		return s, fmt.Errorf("read the CPU time: %w", err)
	}
	s.goCPU = time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
	s.pgCPU = postgresCPU(m.cluster.PID())
	return s, nil
}

// tick is the unit of CPU times in /proc: 1/100 s on every Linux (USER_HZ).
const tick = 10 * time.Millisecond

// postgresCPU is what the server has used with all its processes, those that have
// ended included. It is 0 where there is no /proc.
func postgresCPU(postmaster int) time.Duration {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0
	}
	var ticks int64
	for _, path := range stats {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // it has just ended
		}
		// After the name, which may hold anything: state ppid ... utime stime cutime cstime.
		f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
		if len(f) < 15 {
			continue
		}
		number := func(i int) int64 {
			n, _ := strconv.ParseInt(f[i], 10, 64)
			return n
		}
		switch {
		case filepath.Base(filepath.Dir(path)) == strconv.Itoa(postmaster):
			ticks += number(11) + number(12) + number(13) + number(14)
		case number(1) == int64(postmaster):
			ticks += number(11) + number(12)
		}
	}
	return time.Duration(ticks) * tick
}

func profileFile(dir, name string) string {
	return filepath.Join(dir, strings.ReplaceAll(name, "/", "-")+".pprof")
}
