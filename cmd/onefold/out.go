package main

import (
	"bytes"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/onefold-dev/onefold/api"
)

// Colours of what is worth a look.
const (
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	cyan   = "\x1b[36m"
	grey   = "\x1b[90m"
	off    = "\x1b[0m"
)

func (e *env) red(s string) string {
	if !e.errColor {
		return s
	}
	return red + s + off
}

// state shows a state's word, padded to width so that colours do not shift
// the columns.
func (e *env) state(s api.State, width int) string {
	word := fmt.Sprintf("%-*s", width, clean(string(s)))
	if !e.color {
		return word
	}
	colors := map[api.State]string{
		api.Succeeded: green, api.Failed: red, api.Unknown: yellow, api.Cancelled: grey, api.Running: cyan, api.Pending: cyan,
	}
	return colors[s] + word + off
}

// when shows a time: how long ago to a person, exactly to a program.
func (e *env) when(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	exact := t.UTC().Format(time.RFC3339)
	if !e.tty {
		return exact
	}
	return relative(t.Sub(e.now()))
}

// both shows a time in both ways, where there is room.
func (e *env) both(t time.Time) string {
	if !e.tty {
		return e.when(t)
	}
	return fmt.Sprintf("%s (%s)", e.when(t), t.UTC().Format(time.RFC3339))
}

// relative says d in one unit: "3 min ago", "in 2 h".
func relative(d time.Duration) string {
	n := d.Abs()
	var s string
	switch {
	case n < time.Second:
		return "now"
	case n < time.Minute:
		s = fmt.Sprintf("%d s", n/time.Second)
	case n < time.Hour:
		s = fmt.Sprintf("%d min", n/time.Minute)
	case n < 48*time.Hour:
		s = fmt.Sprintf("%d h", n/time.Hour)
	default:
		s = fmt.Sprintf("%d days", n/(24*time.Hour))
	}
	if d < 0 {
		return s + " ago"
	}
	return "in " + s
}

// clean makes text of others safe for a terminal: what does not print, escape
// sequences above all, is shown as its code.
func clean(s string) string {
	if strings.IndexFunc(s, hidden) < 0 && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if hidden(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

func hidden(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }

// rows prints columns, each as wide as its widest cell. The paint of a column
// gets the padded cell.
func (e *env) rows(rows [][]string, paint map[int]func(cell string) string) error {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for n, row := range rows {
		for i, cell := range row {
			last := i == len(row)-1
			if !last {
				cell += strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			}
			if p := paint[i]; p != nil && n > 0 {
				cell = p(cell)
			}
			b.WriteString(cell)
			if !last {
				b.WriteString("  ")
			}
		}
		b.WriteByte('\n')
	}
	return e.print(b.String())
}

func (e *env) print(s string) error {
	if _, err := fmt.Fprint(e.stdout, s); err != nil {
		return fmt.Errorf("write the output: %w", err)
	}
	return nil
}

// document prints a task as one JSON document, its result byte for byte.
func (e *env) document(t *api.Task) error {
	b, err := t.Append(nil)
	if err != nil {
		return err
	}
	return e.print(string(b) + "\n")
}

// line prints a task as one line of JSON. Line breaks between the tokens of a
// result (none can stand inside a string) become spaces.
func (e *env) line(t *api.Task) error {
	b, err := t.Append(nil)
	if err != nil {
		return err
	}
	b = bytes.ReplaceAll(bytes.ReplaceAll(b, []byte("\n"), []byte(" ")), []byte("\r"), []byte(" "))
	return e.print(string(b) + "\n")
}
