package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/onefold-dev/onefold/api"
)

// ResultLine is one line of a batch's results. Text is the line as it came, in
// the form of the batch's file, without its end: an api.BatchResult or an
// api.OpenAIResult.
type ResultLine struct {
	Line     int // in the file, from 1
	Finished int // place in the order of finishing, from 1
	Text     []byte
}

// ResultsOpts are the choices of BatchResults; nil means none of them.
type ResultsOpts struct {
	Order api.BatchOrder // api.OrderInput when empty
	// After is the last line had already: its Line in input order, its Finished
	// in order of finishing.
	After int
	Only  string // "succeeded", "errors", or all
}

// BatchResults goes through the results there are so far: in input order up to
// the first line that has not settled, or as they finished. Of a batch that has
// ended these are all. A connection that breaks in between is made again behind
// the last line had; an error that stays ends the loop.
func (c *Client) BatchResults(ctx context.Context, id string, o *ResultsOpts) iter.Seq2[ResultLine, error] {
	if o == nil {
		o = &ResultsOpts{}
	}
	return func(yield func(ResultLine, error) bool) {
		r, err := onBatch("results", http.MethodGet, id, "results")
		if err != nil {
			yield(ResultLine{}, err)
			return
		}
		s := &results{c: c, r: r, after: o.After, finished: o.Order == api.OrderFinished, yield: yield}
		if o.Order != "" {
			r.query.Set("order", string(o.Order))
		}
		if o.Only != "" {
			r.query.Set("only", o.Only)
		}
		r.header.Set("Accept", "application/jsonl, application/problem+json")
		s.run(ctx)
	}
}

// results is one walk through a batch's results.
type results struct {
	c        *Client
	r        *request
	after    int
	finished bool
	yield    func(ResultLine, error) bool
}

func (s *results) run(ctx context.Context) {
	for try := 1; ; try++ {
		before := s.after
		done, f := s.once(ctx)
		if done {
			return
		}
		if s.after > before {
			try = 1 // it came on
		}
		wait, again := s.c.again(ctx, s.r, f, try)
		if !again {
			s.yield(ResultLine{}, f.final(s.r, try, false))
			return
		}
		if s.c.onRetry != nil {
			s.c.onRetry(Retried{Op: s.r.op, Try: try, Wait: wait, Err: f.err})
		}
		if err := sleep(ctx, wait); err != nil {
			f = &failure{err: ended(ctx), cause: err}
			s.yield(ResultLine{}, f.final(s.r, try, false))
			return
		}
	}
}

// once reads one answer. done: to its end, or nobody wants more.
func (s *results) once(ctx context.Context) (done bool, f *failure) {
	if s.after > 0 {
		s.r.query.Set("after", strconv.Itoa(s.after))
	}
	// Each line has time of its own, not all of them together.
	limited, cancel := context.WithCancel(ctx)
	defer cancel()
	silent := time.AfterFunc(s.c.timeout, cancel)
	defer silent.Stop()
	req, err := s.c.build(limited, s.r, nil)
	if err != nil {
		return false, &failure{err: api.Errorf(api.CodeInvalidParam, "the request cannot be built: %v", err)}
	}
	resp, err := s.c.http.Do(req)
	if err != nil {
		return false, s.c.broken(ctx, limited, s.r, err, true)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, maxProblem)) // as much of it as came says enough
		return false, refused(resp, body)
	}
	in := bufio.NewReaderSize(resp.Body, 64<<10)
	for {
		silent.Reset(s.c.timeout)
		text, err := readLine(in)
		if errors.Is(err, io.EOF) && len(text) == 0 {
			return true, nil
		}
		if err != nil {
			return false, s.c.broken(ctx, limited, s.r, fmt.Errorf("read the results: %w", err), true)
		}
		silent.Stop() // while the caller works on it
		l, err := resultLine(text)
		if err != nil {
			return false, &failure{err: api.Errorf(api.CodeConnection, "a line of the answer is no result: %v", err), cause: err}
		}
		if !s.yield(l, nil) {
			return true, nil
		}
		if s.after = l.Line; s.finished {
			s.after = l.Finished
		}
	}
}

// readLine reads a line without its end; one that is cut is an error.
func readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			return bytes.TrimSuffix(line, []byte("\n")), nil
		case len(line) > maxBody:
			return line, fmt.Errorf("a line is longer than %d MiB", maxBody>>20)
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(line) > 0:
			return line, io.ErrUnexpectedEOF
		default:
			return line, err
		}
	}
}

// resultLine finds out which line a text is the result of.
func resultLine(text []byte) (ResultLine, error) {
	var head struct {
		Line, Finished int
		ID             string
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return ResultLine{}, err
	}
	l := ResultLine{Line: head.Line, Finished: head.Finished, Text: text}
	if rest, ok := strings.CutPrefix(head.ID, "batch_req_"); ok {
		if parts := strings.Split(rest, "_"); len(parts) == 3 {
			l.Line, _ = strconv.Atoi(parts[1]) // 0 is refused below
			l.Finished, _ = strconv.Atoi(parts[2])
		}
	}
	if l.Line < 1 {
		return l, errors.New("it names no line")
	}
	return l, nil
}

// ParseResult reads a line of results, as a file of them holds it.
func ParseResult(text []byte) (ResultLine, error) { return resultLine(text) }
