package openai_test

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/onefold-dev/onefold/internal/provider"
	"github.com/onefold-dev/onefold/internal/provider/openai"
	"github.com/onefold-dev/onefold/internal/provider/providertest"
)

// TestFieldsGoOutByteForByte looks at what arrives: the caller's fields as they were, stream and usage as they must be.
func TestFieldsGoOutByteForByte(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in     string
		stream bool
		want   string
	}{
		{`{"model":"m", "seed":12345678901234567890, "temperature":1.0e0, "x":"\u00e9\/ é"}`, true, `{"model":"m","seed":12345678901234567890,"temperature":1.0e0,"x":"\u00e9\/ é","stream":true,"stream_options":{"include_usage":true}}`},
		{`{"stream":true,"model":"m","stream_options":{"include_usage":false,"include_obfuscation":false}}`, true, `{"model":"m","stream":true,"stream_options":{"include_obfuscation":false,"include_usage":true}}`},
		{`{"stream":true,"model":"m","stream_options":{"include_usage":true}}`, false, `{"model":"m"}`},
		{`{"a": [1, 2.50],"stream_options":null}`, true, `{"a":[1, 2.50],"stream":true,"stream_options":{"include_usage":true}}`},
	} {
		got := make(chan [2]string, 1)
		s := providertest.Serve(t, nil, func(k *providertest.Conn) {
			if k.Read() {
				got <- [2]string{string(k.Body), k.Head.Header.Get("Idempotency-Key") + k.Head.URL.String()}
			}
		})
		p, err := openai.New(openai.Opts{BaseURL: "http://" + s.Addr() + "/base/v1/?api-version=7"})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = p.Call(t.Context(), provider.Request{Body: []byte(c.in), Key: "order-7", Stream: c.stream})
		arrived := <-got
		if arrived[0] != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.in, arrived[0], c.want)
		}
		if arrived[1] != "/base/v1/chat/completions?api-version=7" {
			t.Errorf("path and idempotency key: %q", arrived[1])
		}
		p.Close()
	}
}

func TestBadRequestsAreNotSent(t *testing.T) {
	t.Parallel()
	s := providertest.Serve(t, nil, (*providertest.Conn).Hold)
	p, err := openai.New(openai.Opts{BaseURL: "http://" + s.Addr()})
	if err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{"", "null", "[]", `"x"`, "{", `{"a":1,"a":2}`, `{"a":1} x`, "{\"a\":\"\xff\"}"} {
		_, err := p.Call(t.Context(), provider.Request{Body: []byte(body)})
		if f := provider.AsError(err); f == nil || f.Code != provider.CodeBadRequestBody || f.Sent() {
			t.Errorf("%q: %v, want a refusal before the send", body, err)
		}
	}
	if n := s.Conns.Load(); n != 0 {
		t.Errorf("%d connections, want none", n)
	}
}

func TestBadAddressesAreTold(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"", "api.openai.com/v1", "ftp://h/v1", "http://", "http://h/v1#x", "http://u:pa55word@h:x/"} {
		if _, err := openai.New(openai.Opts{BaseURL: url}); err == nil || strings.Contains(err.Error(), "pa55word") {
			t.Errorf("%q: %v, want an error that says what is wrong and no password", url, err)
		}
	}
}

// TestManySlowStreams holds many streams at once and reports what one costs the process. The number is kept low where
// the test runs with others; ONEFOLD_STREAMS=5000 measures.
func TestManySlowStreams(t *testing.T) {
	if os.Getenv("ONEFOLD_STREAMS") == "server" {
		serveSlowStreams(t)
		return
	}
	n, err := strconv.Atoi(os.Getenv("ONEFOLD_STREAMS"))
	if err != nil {
		n = 200
	}
	url, release := slowServer(t)
	p, err := openai.New(openai.Opts{BaseURL: url})
	if err != nil {
		t.Fatal(err)
	}
	before := inUse()
	var begun, ended sync.WaitGroup
	begun.Add(n)
	var failed sync.Map
	for i := range n {
		ended.Go(func() {
			var once sync.Once
			defer once.Do(begun.Done) // a call that fails has begun, too
			_, err := p.Call(t.Context(), provider.Request{
				Body: []byte(`{"model":"m","messages":[]}`), Stream: true,
				OnPhase: func(ph provider.Phase) {
					if ph == provider.PhaseFirstToken {
						once.Do(begun.Done)
					}
				},
			})
			if err != nil {
				failed.Store(i, err)
			}
		})
	}
	begun.Wait()
	each := (inUse() - before) / int64(n)
	t.Logf("%d streams: %d bytes each (heap and stacks in use)", n, each)
	if each > 5*64<<10 {
		t.Errorf("%d bytes a stream, want at most 64 KiB (tested at five times that)", each)
	}
	release()
	ended.Wait()
	failed.Range(func(i, err any) bool {
		t.Errorf("stream %v: %v", i, err)
		return false
	})
}

func inUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// slowServer starts a server in a process of its own, so that only the client's side is measured.
func slowServer(t *testing.T) (url string, release func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=TestManySlowStreams$", "-test.timeout=10m")
	cmd.Env = append(os.Environ(), "ONEFOLD_STREAMS=server")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	line := make([]byte, 64)
	k, err := out.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	return "http://" + strings.TrimSpace(string(line[:k])), func() { _, _ = in.Write([]byte("\n")) }
}

// serveSlowStreams sends each stream 50 tokens, then none until it is told to end.
func serveSlowStreams(t *testing.T) {
	t.Helper()
	end := make(chan struct{})
	token := string(event(map[string]any{"id": "x", "choices": []any{map[string]any{"index": 0, "delta": map[string]any{"content": "word "}}}}))
	s := providertest.Serve(t, nil, func(c *providertest.Conn) {
		c.Read()
		c.Send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
		for range 50 {
			c.Chunk([]byte(token))
		}
		<-end
		c.Chunk([]byte("data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"))
		c.Send("0\r\n\r\n")
		c.Hold()
	})
	_, _ = os.Stdout.WriteString(s.Addr() + "\n")
	buf := make([]byte, 1)
	_, _ = os.Stdin.Read(buf)
	close(end)
	_, _ = os.Stdin.Read(buf) // the end of the parent's pipe
}
