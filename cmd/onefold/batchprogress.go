package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/onefold-dev/onefold/api"
)

// progress tells a person how far a batch is.
type progress interface {
	sent(bytes, of int64)
	show(b *api.Batch)
	close()
}

func (e *env) newProgress() progress {
	if e.json {
		return silent{}
	}
	m := meter{now: e.now}
	if !terminal(e.stderr) {
		return &plain{e: e, meter: m}
	}
	return newBar(e, m, columns(e.stderr))
}

// silent is for programs: they get the results and the exit code.
type silent struct{}

func (silent) sent(int64, int64) {}
func (silent) show(*api.Batch)   {}
func (silent) close()            {}

// meter works out the rate at which lines settle, over the last half minute.
type meter struct {
	now  func() time.Time
	seen []mark
}

type mark struct {
	at time.Time
	n  int
}

const meterSpan = 30 * time.Second

// rate is lines a second; 0 while nothing is known.
func (m *meter) rate(settled int) float64 {
	now := m.now()
	m.seen = append(m.seen, mark{now, settled})
	for len(m.seen) > 2 && now.Sub(m.seen[0].at) > meterSpan {
		m.seen = m.seen[1:]
	}
	first := m.seen[0]
	if took := now.Sub(first.at).Seconds(); took > 0 && settled > first.n {
		return float64(settled-first.n) / took
	}
	return 0
}

// line says how far a batch is in words: rate, time left, failures, money.
func (m *meter) line(b *api.Batch) string {
	settled := b.Counts.Settled()
	parts := []string{fmt.Sprintf("%d of %d", settled, b.Lines)}
	if b.State != api.BatchRunning {
		parts = append(parts, string(b.State))
	}
	if rate := m.rate(settled); rate > 0 && settled < b.Lines {
		left := time.Duration(float64(b.Lines-settled) / rate * float64(time.Second))
		parts = append(parts, fmt.Sprintf("%.1f/s", rate), left.Round(time.Second).String()+" left")
	}
	parts = append(parts, fmt.Sprintf("%d failed", bad(b.Counts)))
	if b.Usage.Cost != "" {
		parts = append(parts, "cost "+clean(b.Usage.Cost))
	}
	return strings.Join(parts, ", ")
}

// plain prints a line now and then, where there is no terminal.
type plain struct {
	e     *env
	meter meter
	last  time.Time
	said  string
}

const plainEvery = 10 * time.Second

func (p *plain) sent(int64, int64) {}

func (p *plain) show(b *api.Batch) {
	text := p.meter.line(b)
	now := p.e.now()
	if text == p.said || !b.State.Ended() && !p.last.IsZero() && now.Sub(p.last) < plainEvery {
		return
	}
	p.last, p.said = now, text
	p.e.say("%s", text)
}

func (p *plain) close() {}

// bar draws one line on a terminal, over and over. What else is said meanwhile
// appears above it. It is a dozen lines: the libraries for it draw from a
// goroutine of theirs, which loses what is said just before the end.
type bar struct {
	meter meter
	width int

	mu    sync.Mutex
	w     io.Writer
	drawn string // stands on the screen, without a line end
	at    time.Time
	over  bool
	e     *env
}

const drawEvery = 100 * time.Millisecond

func newBar(e *env, m meter, width int) *bar {
	b := &bar{meter: m, width: width, w: e.stderr, e: e}
	e.stderr = b
	return b
}

// Write prints what others say above the bar.
func (b *bar) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.drawn == "" {
		return b.w.Write(p)
	}
	if _, err := fmt.Fprintf(b.w, "\r\x1b[K%s%s", p, b.drawn); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (b *bar) sent(n, of int64) {
	b.draw(n, of, fmt.Sprintf("uploading, %d of %d KiB", n>>10, of>>10), n == of)
}

func (b *bar) show(of *api.Batch) {
	b.draw(int64(of.Counts.Settled()), int64(of.Lines), b.meter.line(of), true)
}

// draw replaces the line; one that is not urgent may be left out.
func (b *bar) draw(n, of int64, text string, urgent bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.e.now()
	if b.over || !urgent && now.Sub(b.at) < drawEvery {
		return
	}
	const cells = 24
	full := 0
	if of > 0 {
		full = int(cells * min(n, of) / of)
	}
	line := "[" + strings.Repeat("=", full) + strings.Repeat(" ", cells-full) + "] " + text
	if len(line) >= b.width {
		line = text[:min(len(text), max(b.width-1, 0))]
	}
	b.drawn, b.at = line, now
	fmt.Fprintf(b.w, "\r\x1b[K%s", line)
}

// close leaves the last line on the screen.
func (b *bar) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return
	}
	b.over, b.e.stderr = true, b.w
	if b.drawn != "" {
		fmt.Fprintln(b.w)
	}
}

// columns is how wide the terminal is.
func columns(v any) int {
	if f, ok := v.(*os.File); ok {
		if n, _, err := term.GetSize(int(f.Fd())); err == nil && n > 0 {
			return n
		}
	}
	return 80
}
