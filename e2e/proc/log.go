package proc

import (
	"bytes"
	"slices"
	"strings"
	"sync"
)

// output is what a process writes, line by line, with a signal for each.
type output struct {
	mu    sync.Mutex
	part  []byte
	lines []string
	more  chan struct{} // closed and made anew with every line
}

func newOutput() *output { return &output{more: make(chan struct{})} }

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.part = append(o.part, b...)
	for {
		i := bytes.IndexByte(o.part, '\n')
		if i < 0 {
			return len(b), nil
		}
		o.lines = append(o.lines, string(o.part[:i]))
		o.part = append(o.part[:0], o.part[i+1:]...)
		close(o.more)
		o.more = make(chan struct{})
	}
}

// find returns the first line at or after from that ok accepts, or the number
// of lines so far and the channel that is closed with the next one.
func (o *output) find(from int, ok func(string) bool) (line string, found bool, n int, more <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, line := range o.lines[min(from, len(o.lines)):] {
		if ok(line) {
			return line, true, len(o.lines), o.more
		}
	}
	return "", false, len(o.lines), o.more
}

func (o *output) text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Join(o.lines, "\n") + "\n" + string(o.part)
}

// tail is the last n lines, for the story of a process that failed.
func (o *output) tail(n int) string { return o.last(n, func(string) bool { return true }) }

// last is the last n lines that ok accepts.
func (o *output) last(n int, ok func(string) bool) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var found []string
	for i := len(o.lines) - 1; i >= 0 && len(found) < n; i-- {
		if ok(o.lines[i]) {
			found = append(found, o.lines[i])
		}
	}
	slices.Reverse(found)
	return strings.Join(found, "\n")
}

// routine says whether a line tells only that all is well.
func routine(line string) bool { return strings.Contains(line, `"level":"INFO"`) }
