package batchrun

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// memory follows what processes take, by name, over all their lives.
type memory struct {
	began time.Time
	stop  chan struct{}
	over  sync.WaitGroup

	mu   sync.Mutex
	pids map[string]int
	took map[string][]sample
}

type sample struct {
	at  time.Duration
	mib float64
}

const sampleEvery = 500 * time.Millisecond

func newMemory(t *testing.T) *memory {
	t.Helper()
	m := &memory{began: time.Now(), stop: make(chan struct{}), pids: map[string]int{}, took: map[string][]sample{}}
	m.over.Go(func() {
		for tick := time.NewTicker(sampleEvery); ; {
			select {
			case <-m.stop:
				return
			case <-tick.C:
				m.sample()
			}
		}
	})
	t.Cleanup(func() {
		close(m.stop)
		m.over.Wait()
	})
	return m
}

// follow has a process be looked at under name from now on.
func (m *memory) follow(name string, pid int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pids[name] = pid
}

func (m *memory) sample() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, pid := range m.pids {
		if mib := resident(pid); mib > 0 {
			m.took[name] = append(m.took[name], sample{time.Since(m.began), mib})
		}
	}
}

// resident is what a process has in memory, in MiB; 0 where that cannot be told.
func resident(pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(text) {
		if rest, ok := bytes.CutPrefix(line, []byte("VmRSS:")); ok {
			kib, _ := strconv.ParseFloat(strings.Fields(string(rest))[0], 64)
			return kib / 1024
		}
	}
	return 0
}

// most is what a process took at most.
func (m *memory) most(name string) (mib float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.took[name] {
		mib = max(mib, s.mib)
	}
	return mib
}

// between is the median of what a process took in a span of time.
func (m *memory) between(name string, from, to time.Duration) float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []float64
	for _, s := range m.took[name] {
		if s.at >= from && s.at < to {
			all = append(all, s.mib)
		}
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)/2]
}

func (m *memory) now() time.Duration { return time.Since(m.began) }

// tenths says what a process took in each tenth of a span.
func (m *memory) tenths(name string, until time.Duration) string {
	out := make([]string, 10)
	for i := range out {
		out[i] = fmt.Sprintf("%.0f", m.between(name, until*time.Duration(i)/10, until*time.Duration(i+1)/10))
	}
	return strings.Join(out, " ")
}
