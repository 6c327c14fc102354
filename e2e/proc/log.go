package proc

import (
	"bytes"
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

// tail is the last n lines, for the story of a test that failed.
func (o *output) tail(n int) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Join(o.lines[max(0, len(o.lines)-n):], "\n")
}
