package config

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/onefold-dev/onefold/internal/telemetry"
)

// Pos is a place in a configuration file, counted from 1. Zero means unknown.
type Pos struct{ Line, Column int }

// Error is one problem in a configuration file.
type Error struct {
	File string
	Pos
	// Path names the field, as in kinds.invoice.extract.effects[0].type.
	Path string
	// Message says what is wrong, Fix what to do about it. Neither quotes a secret.
	Message, Fix string

	excerpt string // the line of the file, for Format
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.place())
	if e.Path != "" {
		b.WriteString(e.Path + ": ")
	}
	b.WriteString(e.Message)
	if e.Fix != "" {
		b.WriteString(" (" + e.Fix + ")")
	}
	return b.String()
}

func (e *Error) place() string {
	switch {
	case e.Line > 0:
		return fmt.Sprintf("%s:%d:%d: ", e.File, e.Line, e.Column)
	case e.File != "":
		return e.File + ": "
	}
	return ""
}

// Errors is every problem found in one configuration, in the order of the file.
type Errors []*Error

func (es Errors) Error() string {
	lines := make([]string, len(es))
	for i, e := range es {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap lets errors.As find a single *Error.
func (es Errors) Unwrap() []error {
	out := make([]error, len(es))
	for i, e := range es {
		out[i] = e
	}
	return out
}

// Write shows the problems on a terminal: place, message, the line with a mark below the column, and the fix. With
// color the place and the mark are coloured by ANSI escapes.
func (es Errors) Write(w io.Writer, color bool) error {
	bold, red, green, off := "", "", "", ""
	if color {
		bold, red, green, off = "\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[0m"
	}
	var b strings.Builder
	for _, e := range es {
		fmt.Fprintf(&b, "%s%s%s", bold, e.place(), off)
		if e.Path != "" {
			b.WriteString(e.Path + ": ")
		}
		fmt.Fprintf(&b, "%s%s%s\n", red, e.Message, off)
		if e.excerpt != "" {
			text, col := shorten(e.excerpt, e.Column)
			fmt.Fprintf(&b, "  %5d | %s\n        | %s%s^%s\n", e.Line, text, strings.Repeat(" ", col), red, off)
		}
		if e.Fix != "" {
			fmt.Fprintf(&b, "        %s= %s%s\n", green, e.Fix, off)
		}
	}
	n := "1 problem"
	if len(es) != 1 {
		n = fmt.Sprintf("%d problems", len(es))
	}
	b.WriteString(n + "\n")
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write configuration problems: %w", err)
	}
	return nil
}

// maxExcerpt is how much of a line is shown, in characters.
const maxExcerpt = 100

// shorten cuts a long line around the column and returns it with the column's offset in characters.
func shorten(line string, column int) (text string, offset int) {
	rs := []rune(strings.ReplaceAll(line, "\t", " "))
	offset = min(max(column-1, 0), len(rs))
	from := 0
	if offset > maxExcerpt-20 {
		from = offset - maxExcerpt/2
	}
	to := min(len(rs), from+maxExcerpt)
	return string(rs[from:to]), offset - from
}

// problems gathers errors while one file is read.
type problems struct {
	file string
	src  []byte
	list Errors
	more int // problems beyond maxProblems
}

// maxProblems is how many problems are listed: enough for any honest file, few enough to be read.
const maxProblems = 200

func (p *problems) add(pos Pos, path, message, fix string) {
	if len(p.list) >= maxProblems {
		p.more++
		return
	}
	p.list = append(p.list, p.at(pos, path, message, fix))
}

// at builds an error at pos with the line it stands in.
func (p *problems) at(pos Pos, path, message, fix string) *Error {
	line := lineAt(p.src, pos.Line)
	if len(line) > 1000 || telemetry.ScrubText(line) != line {
		line = "" // something in it looks like a credential
	}
	return &Error{File: p.file, Pos: pos, Path: path, Message: telemetry.ScrubText(message), Fix: fix, excerpt: line}
}

// err returns the problems in the order of the file, or nil when there are none.
func (p *problems) err() error {
	if len(p.list) == 0 {
		return nil
	}
	slices.SortStableFunc(p.list, func(a, b *Error) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
	if p.more > 0 {
		p.list = append(p.list, &Error{File: p.file, Message: fmt.Sprintf("there are %d more problems", p.more), Fix: "mend these first"})
	}
	return p.list
}

func lineAt(src []byte, line int) string {
	for n := 1; len(src) > 0 && line > 0; n++ {
		text, rest, _ := bytes.Cut(src, []byte("\n"))
		if n == line {
			text = bytes.TrimSuffix(text, []byte("\r"))
			if !utf8.Valid(text) {
				return ""
			}
			return string(text)
		}
		src = rest
	}
	return ""
}
