package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/client"
)

// sink is where results are written: stdout, or a file beside the one asked for
// that takes its name once it is whole. That of a batch and run is found again by
// its name, so that a later command goes on behind its last whole line.
type sink struct {
	e     *env
	id    string
	order api.BatchOrder
	only  string
	fresh bool // begin anew whatever is there

	file  *os.File // nil: stdout
	w     *bufio.Writer
	part  string
	after int // the last line had, in the order wanted
	lines int
}

func (e *env) sink(b *api.Batch, asFinished bool, mark string) (*sink, error) {
	s := &sink{e: e, id: b.ID, order: api.OrderInput, w: bufio.NewWriterSize(e.stdout, 64<<10)}
	if asFinished {
		s.order = api.OrderFinished
		mark += "-finished"
	}
	if e.file == "" || e.file == "-" {
		return s, nil
	}
	dir, name := filepath.Split(e.file)
	s.part = filepath.Join(dir, fmt.Sprintf(".%s.%s-%d%s.part", name, b.ID, b.Run, mark))
	f, err := os.OpenFile(s.part, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, usage(fmt.Sprintf("the results cannot be written: %v", err), "Name a file in a folder that can be written to.")
	}
	s.file, s.w = f, bufio.NewWriterSize(f, 64<<10)
	return s, s.resume()
}

// resume goes to the end of the last whole line that is there already.
func (s *sink) resume() error {
	in := bufio.NewReaderSize(s.file, 1<<20)
	var end int64
	var last []byte
	for {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read the results so far: %w", err)
		}
		end += int64(len(line))
		last = line
		s.lines++
	}
	if s.lines > 0 {
		l, err := client.ParseResult(bytes.TrimSpace(last))
		if err != nil { // not ours after all: begin anew
			end, s.lines = 0, 0
		} else if s.after = l.Line; s.order == api.OrderFinished {
			s.after = l.Finished
		}
	}
	if err := s.file.Truncate(end); err != nil {
		return fmt.Errorf("cut off half a line: %w", err)
	}
	_, err := s.file.Seek(end, io.SeekStart)
	return err
}

// more writes the results that have come since.
func (s *sink) more(ctx context.Context, cl *client.Client) error {
	if s.fresh && s.file != nil {
		if err := s.restart(); err != nil {
			return err
		}
	}
	for l, err := range cl.BatchResults(ctx, s.id, &client.ResultsOpts{Order: s.order, After: s.after, Only: s.only}) {
		if err != nil {
			_ = s.w.Flush() // what is there is there; the error tells
			return err
		}
		if _, err := s.w.Write(append(l.Text, '\n')); err != nil {
			return fmt.Errorf("write the results: %w", err)
		}
		s.lines++
		if s.after = l.Line; s.order == api.OrderFinished {
			s.after = l.Finished
		}
	}
	if err := s.w.Flush(); err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	return nil
}

func (s *sink) restart() error {
	s.fresh, s.after, s.lines = false, 0, 0
	if err := s.file.Truncate(0); err != nil {
		return fmt.Errorf("begin anew: %w", err)
	}
	_, err := s.file.Seek(0, io.SeekStart)
	return err
}

// leave closes the file as it is, for the next time.
func (s *sink) leave() {
	_ = s.w.Flush()
	if s.file != nil {
		_ = s.file.Close()
	}
}

// finish gives the whole file its name.
func (s *sink) finish() error {
	if s.file == nil {
		return nil
	}
	if err := errors.Join(s.file.Sync(), s.file.Close()); err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	if err := os.Rename(s.part, s.e.file); err != nil {
		return fmt.Errorf("name the results: %w", err)
	}
	return nil
}
