package seeing

import (
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/onefold-dev/onefold/e2e/proc"
)

// spans is a receiver of traces.
type spans struct {
	mu  sync.Mutex
	all []*otlp.Span
	raw []byte
}

func (s *spans) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var got collector.ExportTraceServiceRequest
	if err := proto.Unmarshal(body, &got); err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.raw = append(s.raw, body...)
	for _, of := range got.ResourceSpans {
		for _, scope := range of.ScopeSpans {
			s.all = append(s.all, scope.Spans...)
		}
	}
}

// named is the one span of that name in a trace, nil while there is none.
func (s *spans) named(trace, name string) *otlp.Span {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sp := range s.all {
		if hex.EncodeToString(sp.TraceId) == trace && sp.Name == name {
			return sp
		}
	}
	return nil
}

// count is how many spans of that name came.
func (s *spans) count(name string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sp := range s.all {
		if sp.Name == name {
			n++
		}
	}
	return n
}

// bytes is all that came.
func (s *spans) bytes() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.raw)
}

func attr(s *otlp.Span, key string) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value.String()
		}
	}
	return ""
}

const theTrace = "0af7651916cd43dd8448eb211c80319c"

// TestTrace follows one task from its caller's traceparent to the delivery of its
// effect: one trace, under the id that the task shows.
func TestTrace(t *testing.T) {
	t.Parallel()
	got := &spans{}
	srv := httptest.NewServer(got)
	t.Cleanup(srv.Close)
	b := setup(t, &proc.Opts{Env: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + srv.URL, "OTEL_BSP_SCHEDULE_DELAY=50"}})
	if status, body := b.post("k1", "fake:ok", "PROMPT-CANARY", "00-"+theTrace+"-b7ad6b7169203331-01"); status != http.StatusAccepted {
		t.Fatalf("submit: %d %s", status, body)
	}
	b.drained()
	names := []string{"POST /v1/tasks", "send work", "process work", "chat fake:ok", "finish work", "process crm", "POST"}
	at := map[string]*otlp.Span{}
	proc.Until(t, "all spans came", func() bool {
		for _, n := range names {
			if at[n] = got.named(theTrace, n); at[n] == nil {
				return false
			}
		}
		return true
	})
	if hex.EncodeToString(at[names[0]].ParentSpanId) != "b7ad6b7169203331" {
		t.Error("the request's span does not continue the caller's")
	}
	for child, parent := range map[string]string{
		"send work": "POST /v1/tasks", "process work": "send work", "chat fake:ok": "process work", "finish work": "process work",
		"process crm": "finish work", "POST": "process crm",
	} {
		if string(at[child].ParentSpanId) != string(at[parent].SpanId) {
			t.Errorf("%s is not within %s", child, parent)
		}
	}
	for consumer, producer := range map[string]string{"process work": "send work", "process crm": "finish work"} {
		if l := at[consumer].Links; len(l) != 1 || string(l[0].SpanId) != string(at[producer].SpanId) {
			t.Errorf("%s has no link to %s: %v", consumer, producer, l)
		}
	}
	for name, kind := range map[string]otlp.Span_SpanKind{
		"POST /v1/tasks": otlp.Span_SPAN_KIND_SERVER, "send work": otlp.Span_SPAN_KIND_PRODUCER, "process work": otlp.Span_SPAN_KIND_CONSUMER,
		"chat fake:ok": otlp.Span_SPAN_KIND_CLIENT, "finish work": otlp.Span_SPAN_KIND_INTERNAL, "process crm": otlp.Span_SPAN_KIND_CONSUMER,
		"POST": otlp.Span_SPAN_KIND_CLIENT,
	} {
		if at[name].Kind != kind {
			t.Errorf("%s is of kind %s", name, at[name].Kind)
		}
	}
	for _, want := range [][3]string{
		{"POST /v1/tasks", "http.route", "/v1/tasks"},
		{"send work", "onefold.key", "k1"},
		{"send work", "messaging.destination.name", "work"},
		{"chat fake:ok", "gen_ai.operation.name", "chat"},
		{"chat fake:ok", "gen_ai.provider.name", "openai"},
		{"chat fake:ok", "gen_ai.request.model", "fake:ok"},
		{"chat fake:ok", "gen_ai.usage.input_tokens", "int_value"},
		{"chat fake:ok", "gen_ai.response.finish_reasons", "stop"},
		{"finish work", "onefold.state", "succeeded"},
		{"process crm", "onefold.effect.name", "notify"},
		{"POST", "http.response.status_code", "204"},
	} {
		if v := attr(at[want[0]], want[1]); !strings.Contains(v, want[2]) {
			t.Errorf("%s: %s is %q, want %s in it", want[0], want[1], v, want[2])
		}
	}
	if list := b.cli("list", "--trace", theTrace); !strings.Contains(list, "k1") {
		t.Errorf("onefold list --trace does not find the task:\n%s", list)
	}
	got.mu.Lock()
	defer got.mu.Unlock()
	for _, secret := range []string{"PROMPT-CANARY", b.Key, proc.Secret} {
		if strings.Contains(string(got.raw), secret) {
			t.Errorf("a span shows %.12s", secret)
		}
	}
}

// TestTraceReceiverDead: work goes on, and stops, whatever becomes of spans.
func TestTraceReceiverDead(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.NotFoundHandler())
	srv.Close()
	b := setup(t, &proc.Opts{Env: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + srv.URL, "OTEL_BSP_SCHEDULE_DELAY=50"}})
	if status, body := b.post("k1", "fake:ok", "x", ""); status != http.StatusAccepted {
		t.Fatalf("submit: %d %s", status, body)
	}
	b.drained()
	if n := b.Count(t, `SELECT count(*) FROM onefold.tasks WHERE state = 'succeeded'`); n != 1 {
		t.Error("the task did not succeed")
	}
	proc.Until(t, "what is dropped is counted", func() bool {
		return b.scrape(b.work)[`onefold_spans_dropped_total{what="not_sent"}`] > 0
	})
}

// TestTraceOff: without a variable that asks for it nothing of the SDK runs.
func TestTraceOff(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	if status, body := b.post("k1", "fake:ok", "x", "00-"+theTrace+"-b7ad6b7169203331-01"); status != http.StatusAccepted {
		t.Fatalf("submit: %d %s", status, body)
	}
	b.drained()
	for _, p := range []*proc.Process{b.api, b.work} {
		resp, err := b.http.Get("http://" + adminAddr.FindStringSubmatch(p.AwaitLog(t, "admin listening"))[1] + "/debug/pprof/goroutine?debug=2")
		if err != nil {
			t.Fatal(err)
		}
		stacks, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if strings.Contains(string(stacks), "opentelemetry") || !strings.Contains(string(stacks), "goroutine") {
			t.Error("the SDK runs though nobody asked for it")
		}
	}
	if list := b.cli("list", "--trace", theTrace); !strings.Contains(list, "k1") {
		t.Errorf("the caller's trace id is not kept:\n%s", list)
	}
}
