package openai_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/internal/provider"
	"github.com/onefold-dev/onefold/internal/provider/openai"
	"github.com/onefold-dev/onefold/internal/provider/providertest"
)

// jobs is a scripted endpoint of background responses: it answers each request with the next of the answers, "STATUS
// BODY", and notes what was asked.
type jobs struct {
	mu      sync.Mutex
	answers []string
	asked   []string
}

func (j *jobs) serve(k *providertest.Conn) {
	for k.Read() {
		j.mu.Lock()
		j.asked = append(j.asked, k.Head.Method+" "+k.Head.URL.Path+" "+string(k.Body))
		answer := j.answers[0]
		if len(j.answers) > 1 {
			j.answers = j.answers[1:]
		}
		j.mu.Unlock()
		status, body, _ := strings.Cut(answer, " ")
		k.Send("HTTP/1.1 "+status+" X\r\nContent-Type: application/json\r\n", fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body))
	}
}

func background(t *testing.T, answers ...string) (*openai.Background, *jobs) {
	t.Helper()
	j := &jobs{answers: answers}
	s := providertest.Serve(t, nil, j.serve)
	b, err := openai.NewBackground(openai.Opts{BaseURL: "http://" + s.Addr() + "/v1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b, j
}

func job(status string) string { return "200 " + string(encode(response(status, "hello"))) }

func TestBackground(t *testing.T) {
	t.Parallel()
	b, j := background(t, job("queued"), job("in_progress"), "503 {}", "429 {}", job("completed"))
	r := provider.Request{Body: []byte(`{"model":"m","store":false,"stream":true,"input":"x"}`)}
	providertest.Contract(t, b, r)
	want := []string{
		`POST /v1/responses {"model":"m","input":"x","background":true}`,
		"GET /v1/responses/resp_1 ", "GET /v1/responses/resp_1 ", "GET /v1/responses/resp_1 ", "GET /v1/responses/resp_1 ",
	}
	if diff := cmp.Diff(j.asked, want); diff != "" {
		t.Error(diff)
	}
}

// TestPollsThatBringNothing: only an answer about the response itself ends it.
func TestPollsThatBringNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answers []string
		code    string
		over    bool
	}{
		"gone":        {[]string{"404 {}"}, provider.CodeJobGone, true},
		"cancelled":   {[]string{job("cancelled")}, provider.CodeJobCancelled, true},
		"failed":      {[]string{job("failed")}, provider.CodeUpstreamError, true},
		"credential":  {[]string{"401 {}"}, provider.CodeUnauthorized, false},
		"late":        {[]string{job("in_progress"), "500 {}"}, provider.CodeTotalTimeout, false},
		"late, ended": {[]string{job("in_progress"), job("cancelled")}, provider.CodeTotalTimeout, true},
		"not JSON":    {[]string{"200 <html>", "500 {}"}, provider.CodeTotalTimeout, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, _ := background(t, c.answers...)
			r := provider.Request{}
			if c.code == provider.CodeTotalTimeout {
				r.Timeouts.Total = 300 * time.Millisecond
			}
			_, err := b.Poll(t.Context(), r, "resp_1")
			if f := provider.AsError(err); f == nil || f.Code != c.code || f.JobOver != c.over || !f.Sent() {
				t.Errorf("got %+v, want %s, over %t", f, c.code, c.over)
			}
		})
	}
	t.Run("finished just in time", func(t *testing.T) {
		t.Parallel()
		b, j := background(t, job("in_progress"), job("completed"))
		resp, err := b.Poll(t.Context(), provider.Request{Timeouts: provider.Timeouts{Total: 300 * time.Millisecond}}, "resp_1")
		if err != nil || resp.Text != "hello" || !strings.HasPrefix(j.asked[1], "POST /v1/responses/resp_1/cancel") {
			t.Errorf("got %+v, %v, asked %v", resp, err, j.asked)
		}
	})
	t.Run("ended by the caller", func(t *testing.T) {
		t.Parallel()
		b, j := background(t, job("in_progress"))
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		_, err := b.Poll(ctx, provider.Request{}, "resp_1")
		if f := provider.AsError(err); f == nil || f.Code != provider.CodeCancelled || f.JobOver || len(j.asked) != 1 {
			t.Errorf("got %+v, asked %v", f, j.asked)
		}
	})
}
