package e2e

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/e2e/proc"
)

const streamsConfig = `
retention: {tasks: 720h}
providers:
  chat: {type: openai, base_url: "{{FAKELLM}}", concurrency: 10000, timeouts: {first_byte: 5m, idle: 5m, total: 20m}}
  responses: {type: openai, api: responses, base_url: "{{FAKELLM}}", concurrency: 10000, timeouts: {first_byte: 5m, idle: 5m, total: 20m}}
  messages: {type: anthropic, base_url: "{{FAKELLM}}", concurrency: 10000, timeouts: {first_byte: 5m, idle: 5m, total: 20m}}
kinds:
  chat: {provider: chat}
  responses: {provider: responses}
  messages: {provider: messages}
`

// mostPerStream is what a stream may take of a worker's memory over what the
// idle worker takes: 64 KiB, as a guard at five times the value.
const mostPerStream = 5 * 64 << 10

// TestSlowStreams measures the memory of one worker process that holds many
// streams at once, each of which brings a token now and then. It runs only with
// ONEFOLD_STREAMS, the number of streams.
func TestSlowStreams(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv("ONEFOLD_STREAMS"))
	if err != nil || n < 1 {
		t.Skip("ONEFOLD_STREAMS gives the number of streams")
	}
	for kind, input := range map[string]string{
		"chat":      `{"model":"slow","messages":[{"role":"user","content":"number %d"}]}`,
		"responses": `{"model":"slow","input":"number %d"}`,
		"messages":  `{"model":"slow","max_tokens":99,"messages":[{"role":"user","content":"number %d"}]}`,
	} {
		t.Run(kind, func(t *testing.T) {
			w := proc.New(t, &proc.Opts{Config: streamsConfig})
			if err := w.Model.Script("slow", "tokens=60,rate=0.2"); err != nil {
				t.Fatal(err)
			}
			front, back := w.API(t), w.Worker(t, "--lease", "15s")
			idle := resident(t, back)
			items := make([]api.Keyed, n)
			for i := range items {
				items[i] = api.Keyed{Key: fmt.Sprint(kind, "-", i), Submit: api.Submit{Kind: kind, Input: fmt.Appendf(nil, input, i)}}
			}
			for i, s := range w.Client(t, front).SubmitMany(t.Context(), items) {
				if s.Err != nil {
					t.Fatalf("task %d: %v", i, s.Err)
				}
			}
			proc.Until(t, "all streams are open", func() bool { return w.Model.Calls().Running == n })
			full := resident(t, back)
			each := (full - idle) / n
			t.Logf("%s: the idle worker takes %d KiB, with %d streams %d KiB: %.1f KiB each", kind, idle>>10, n, full>>10, float64(each)/1024)
			if each > mostPerStream {
				t.Errorf("%d bytes a stream, want at most %d", each, mostPerStream)
			}
		})
	}
}

// resident is the memory that a process takes, by the kernel's count.
func resident(t *testing.T, p *proc.Process) int {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		t.Skipf("this system does not tell: %v", err)
	}
	for line := range strings.Lines(string(raw)) {
		if kib, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(kib), " kB"))
			if err != nil {
				t.Fatal(err)
			}
			return n << 10
		}
	}
	t.Fatal("the kernel does not tell the resident memory")
	return 0
}
