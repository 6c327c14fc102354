package batchrun

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/e2e/proc"
)

func TestMain(m *testing.M) { proc.Main(m) }

const config = `
providers:
  model:
    type: openai
    base_url: "{{FAKELLM}}"
    prices: {"fake:stamp": {input: "1", output: "2"}}
kinds:
  llm.chat: {provider: model}
`

// Bounds of memory. A process may take mostMiB, and with a file of many lines
// not more at the end of the undisturbed last part than at its start, but for
// what a collector leaves lying about.
const (
	mostMiB   = 512
	manyLines = 50_000
	slack     = 1.5
	slackMiB  = 32
)

func wanted(t *testing.T) int {
	t.Helper()
	text := os.Getenv("ONEFOLD_BATCH_LINES")
	if text == "" {
		return 2000
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1000 {
		t.Fatalf("ONEFOLD_BATCH_LINES=%s is not a number from 1000", text)
	}
	return n
}

// story is one run of the test.
type story struct {
	*proc.World
	lines       int
	front, back *proc.Process
	door        *door
	cmd         *command
	memory      *memory
	lastKill    time.Duration
}

// TestKilledOnTheWay runs a file while the command, an api and a worker are
// killed under it: every line has one result, in order; the model was called
// once a line and once more for each call that the ledger says was lost.
func TestKilledOnTheWay(t *testing.T) {
	t.Parallel()
	s := begin(t, wanted(t))
	began := time.Now()
	s.run(t)
	s.until(t, "the upload under way", `SELECT count(*) FROM onefold.batch_lines`, 1)
	s.stop(t, syscall.SIGKILL, -1)
	s.run(t)
	const settled = `SELECT coalesce(max(finished), 0) FROM onefold.batches`
	for i, kill := range []func(){
		func() { s.restart(t, s.back) },
		func() { s.restart(t, s.front) },
		func() { s.stop(t, syscall.SIGINT, 130); s.run(t) },
		func() { s.restart(t, s.back); s.restart(t, s.front) },
		func() { s.stop(t, syscall.SIGKILL, -1); s.run(t) },
	} {
		n := s.lines * (i + 1) / 8
		s.until(t, fmt.Sprint(n, " settled lines"), settled, n)
		t.Logf("%7.1f s: %d of %d lines", time.Since(began).Seconds(), n, s.lines)
		kill()
	}
	s.lastKill = s.memory.now()
	t.Logf("%7.1f s: nothing is killed any more", time.Since(began).Seconds())
	s.end(t)
	took := time.Since(began)
	t.Logf("%7.1f s: all %d lines, %.0f a second", took.Seconds(), s.lines, float64(s.lines)/took.Seconds())
	s.output(t)
	s.ledger(t)
	s.flat(t)
}

func begin(t *testing.T, lines int) *story {
	t.Helper()
	w := proc.New(t, &proc.Opts{Config: config})
	s := &story{World: w, lines: lines, front: w.API(t), back: w.Worker(t), door: newDoor(t), memory: newMemory(t)}
	s.door.lead(t, s.front)
	s.memory.follow("api", s.front.PID())
	s.memory.follow("worker", s.back.PID())
	s.cmd = &command{w: w, url: s.door.url(), in: filepath.Join(w.Dir, "in.jsonl"), out: filepath.Join(w.Dir, "out.jsonl")}
	f, err := os.Create(s.cmd.in)
	if err != nil {
		t.Fatal(err)
	}
	out := bufio.NewWriter(f)
	for i := range lines {
		fmt.Fprintf(out, `{"custom_id":"row-%d","method":"POST","url":"/v1/chat/completions","body":{"model":"fake:stamp","messages":[{"role":"user","content":"say %d"}]}}`+"\n", i+1, i+1)
	}
	if err := out.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *story) run(t *testing.T) {
	t.Helper()
	s.cmd.start(t)
	s.memory.follow("command", s.cmd.cmd.Process.Pid)
}

// stop ends the command, which has to leave no output under its last name.
func (s *story) stop(t *testing.T, sig syscall.Signal, code int) {
	t.Helper()
	if got := s.cmd.stop(t, sig); got != code {
		t.Errorf("after %s the command ended with %d, want %d\n%s", sig, got, code, s.cmd.said)
	}
	if _, err := os.Stat(s.cmd.out); err == nil {
		t.Error("half the output has the name of the whole")
	}
}

// restart kills a process and starts it again.
func (s *story) restart(t *testing.T, p *proc.Process) {
	t.Helper()
	p.Kill(t)
	p.Restart(t)
	s.memory.follow(p.Name(), p.PID())
	if p == s.front {
		s.door.lead(t, p)
	}
}

// until waits until a count has come to n. The command must not end before.
func (s *story) until(t *testing.T, what, sql string, n int) {
	t.Helper()
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for last, late := 0, time.Now(); ; {
		got := s.Count(t, sql)
		if got >= n {
			return
		}
		if got != last {
			last, late = got, time.Now()
		}
		select {
		case <-look.C:
		case <-s.cmd.done:
			t.Fatalf("the command ended with %d before %s\n%s", s.cmd.cmd.ProcessState.ExitCode(), what, s.cmd.said)
		}
		if time.Since(late) > proc.Patience {
			t.Fatalf("%s: at %d nothing came for %s\n%s", what, got, proc.Patience, s.cmd.said)
		}
	}
}

// end waits for the command, as long as it gets on.
func (s *story) end(t *testing.T) {
	t.Helper()
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for last, late := 0, time.Now(); ; {
		select {
		case <-s.cmd.done:
			if code := s.cmd.cmd.ProcessState.ExitCode(); code != 0 {
				t.Fatalf("the command ended with %d\n%s", code, s.cmd.said)
			}
			return
		case <-look.C:
		}
		if got := s.Count(t, `SELECT coalesce(max(finished), 0) FROM onefold.batches`); got != last {
			last, late = got, time.Now()
		}
		if time.Since(late) > proc.Patience {
			t.Fatalf("at %d lines nothing came for %s\n%s", last, proc.Patience, s.cmd.said)
		}
	}
}

// output reads the file: one result a line, in order, each the answer to its own
// line.
func (s *story) output(t *testing.T) {
	t.Helper()
	f, err := os.Open(s.cmd.out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n := 0
	for in := bufio.NewScanner(f); in.Scan(); {
		n++
		var r api.OpenAIResult
		if err := json.Unmarshal(in.Bytes(), &r); err != nil || r.CustomID == nil || r.Response == nil {
			t.Fatalf("line %d is %s, %v", n, in.Bytes(), err)
		}
		var reply struct {
			Choices []struct{ Message struct{ Content string } }
		}
		if err := json.Unmarshal(r.Response.Body, &reply); err != nil || len(reply.Choices) != 1 ||
			*r.CustomID != fmt.Sprint("row-", n) || !strings.HasPrefix(reply.Choices[0].Message.Content, fmt.Sprintf("say %d ", n)) {
			t.Fatalf("line %d is %s, %v", n, in.Bytes(), err)
		}
	}
	if n != s.lines {
		t.Errorf("%d lines came out of %d", n, s.lines)
	}
}

// ledger compares the calls the model had with what the ledger says of them.
func (s *story) ledger(t *testing.T) {
	t.Helper()
	calls := s.Model.Calls()
	lost := s.Count(t, `SELECT count(*) FROM onefold.attempts WHERE outcome <> 'succeeded' AND billed = 'unknown'`)
	t.Logf("%d calls for %d lines; the ledger marks %d attempts of which it is not known whether they were billed", calls.Received, s.lines, lost)
	if calls.Received < s.lines || calls.Received > s.lines+lost {
		t.Errorf("%d calls, want %d and at most the %d more that the ledger marks", calls.Received, s.lines, lost)
	}
	rows, err := s.Pool.Query(t.Context(), `
SELECT t.id::text, count(a.task_id), count(*) FILTER (WHERE a.outcome = 'succeeded')
FROM onefold.tasks AS t
JOIN onefold.attempts AS a ON a.task_id = t.id
GROUP BY t.id`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	tasks := 0
	for rows.Next() {
		var id string
		var attempts, won int
		if err := rows.Scan(&id, &attempts, &won); err != nil {
			t.Fatal(err)
		}
		tasks++
		if n := calls.ByTask[id]; won != 1 || n < 1 || n > attempts {
			t.Errorf("task %s: %d calls in %d attempts, of which %d succeeded", id, n, attempts, won)
		}
	}
	if err := rows.Err(); err != nil || tasks != s.lines {
		t.Errorf("%d tasks for %d lines, %v", tasks, s.lines, err)
	}
	if n := s.Count(t, `SELECT count(*) FROM onefold.batches`); n != 1 {
		t.Errorf("%d batches of one file", n)
	}
}

// flat judges the memory of each process.
func (s *story) flat(t *testing.T) {
	t.Helper()
	over := s.memory.now()
	third := (over - s.lastKill) / 3
	for _, name := range []string{"api", "worker", "command"} {
		first := s.memory.between(name, s.lastKill, s.lastKill+third)
		last := s.memory.between(name, over-third, over)
		most := s.memory.most(name)
		t.Logf("%-7s MiB resident by tenths of the run: %s; at most %.0f; undisturbed part: %.0f at first, %.0f at last",
			name, s.memory.tenths(name, over), most, first, last)
		if most > mostMiB {
			t.Errorf("%s took %.0f MiB, want at most %d", name, most, mostMiB)
		}
		if s.lines >= manyLines && last > slack*first+slackMiB {
			t.Errorf("%s grew from %.0f to %.0f MiB", name, first, last)
		}
	}
}
