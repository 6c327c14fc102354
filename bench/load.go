package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

// input is what each task brings, about the size of a short prompt.
const input = `{"text":"Invoice No. 4711 of 3 March 2026. Ten hours of consulting at 120.00 EUR, one journey at 80.00 EUR, ` +
	`19 % VAT. Total 1,523.20 EUR, payable within fourteen days to the account below. Thank you for your order."}`

const body = `{"kind":"` + kind + `","input":` + input + `}`

// patience ends a scenario that stands still; nothing is measured against it.
const patience = 2 * time.Minute

// load runs f over and over at each of the callers until d has passed, and
// returns how long each call took and how long it all took.
func load(ctx context.Context, callers int, d time.Duration, f func(ctx context.Context, caller, i int) error) (each []time.Duration, took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, d+patience)
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	took2 := make([][]time.Duration, callers)
	var all sync.WaitGroup
	start := time.Now()
	for c := range callers {
		all.Go(func() {
			for i := 0; time.Since(start) < d; i++ {
				began := time.Now()
				if err := f(ctx, c, i); err != nil {
					fail(err)
					return
				}
				took2[c] = append(took2[c], time.Since(began))
			}
		})
	}
	all.Wait()
	took = time.Since(start)
	return slices.Concat(took2...), took, context.Cause(ctx)
}

// warm is how long a scenario runs before it is measured, so that connections
// and prepared statements are there.
func warm(d time.Duration) time.Duration { return min(d/4, 300*time.Millisecond) }

// caller is one client with one kept-alive connection. It is as thin as pgbench
// is: what is measured is the server, and both share the same cores.
type caller struct {
	conn net.Conn
	in   *bufio.Reader
	out  []byte
	head string
}

func dial(addr, key, prefer string) (*caller, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("connect to the API: %w", err)
	}
	head := "POST /v1/tasks HTTP/1.1\r\nHost: " + addr + "\r\nAuthorization: Bearer " + key +
		"\r\nContent-Type: application/json\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n"
	if prefer != "" {
		head += "Prefer: " + prefer + "\r\n"
	}
	return &caller{conn: conn, in: bufio.NewReader(conn), head: head + "Idempotency-Key: "}, nil
}

// submit submits one task and returns the status and the body of the answer.
func (c *caller) submit(key string) (status int, answer []byte, err error) {
	c.out = append(append(append(append(c.out[:0], c.head...), key...), "\r\n\r\n"...), body...)
	if err := c.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return 0, nil, fmt.Errorf("submit: %w", err)
	}
	if _, err := c.conn.Write(c.out); err != nil {
		return 0, nil, fmt.Errorf("submit: %w", err)
	}
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return 0, nil, fmt.Errorf("read the answer: %w", err)
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	if err != nil {
		return 0, nil, fmt.Errorf("read the answer: %w", err)
	}
	return resp.StatusCode, answer, nil
}

// expect submits and refuses another status than the one given.
func (c *caller) expect(key string, want int) error {
	status, answer, err := c.submit(key)
	if err == nil && status != want {
		err = fmt.Errorf("a submit was answered %d, want %d: %s", status, want, answer)
	}
	return err
}

// await submits and refuses an answer without the result.
func (c *caller) await(key string) error {
	status, answer, err := c.submit(key)
	if err == nil && (status != http.StatusAccepted || !bytes.Contains(answer, []byte(`"state":"succeeded"`))) {
		err = fmt.Errorf("a submit that waits was answered %d without a result: %s", status, answer)
	}
	return err
}

// dialAll connects n callers.
func dialAll(n int, addr, key, prefer string) (all []*caller, end func(), err error) {
	end = func() {
		for _, c := range all {
			_ = c.conn.Close()
		}
	}
	for range n {
		c, err := dial(addr, key, prefer)
		if err != nil {
			end()
			return nil, nil, err
		}
		all = append(all, c)
	}
	return all, end, nil
}

// errNoTasks is what a scenario returns that measured nothing.
var errNoTasks = errors.New("nothing was measured: give it more -time")
