package client_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"sync"
	"testing"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/client"
)

// secret is the API key of every test; no error may show it.
const secret = "of_test0001_0123456789abcdef"

// serve starts a server that answers with h, and a client of it.
func serve(t *testing.T, h http.HandlerFunc, o *client.Opts) (*client.Client, *httptest.Server) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return connect(t, s.URL, o), s
}

func connect(t *testing.T, url string, o *client.Opts) *client.Client {
	t.Helper()
	c, err := client.New(url, secret, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// script is a network that gives one answer a try, the last one for ever. It
// works under synctest, where a real connection would stop the clock.
type script struct {
	mu    sync.Mutex
	steps []func(*http.Request) (*http.Response, error)
	sent  []*http.Request
	body  [][]byte
}

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	step := s.steps[min(len(s.sent), len(s.steps)-1)]
	s.sent = append(s.sent, r)
	s.body = append(s.body, readBody(r))
	s.mu.Unlock()
	resp, err := step(r)
	if errors.Is(err, errDial) {
		return nil, err
	}
	if t := httptrace.ContextClientTrace(r.Context()); t != nil && t.GotConn != nil {
		t.GotConn(httptrace.GotConnInfo{})
	}
	return resp, err
}

func (s *script) tries() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sent)
}

var (
	errDial  = errors.New("connect: connection refused") // before a connection
	errReset = errors.New("connection reset by peer")    // after one
)

func breaks(err error) func(*http.Request) (*http.Response, error) {
	return func(*http.Request) (*http.Response, error) { return nil, err }
}

// silent never answers; only the request's own end releases it.
func silent(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func answers(status int, header map[string]string, body string) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		w := httptest.NewRecorder()
		for k, v := range header {
			w.Header().Set(k, v)
		}
		w.WriteHeader(status)
		w.Body.WriteString(body)
		resp := w.Result()
		resp.Request = r
		return resp, nil
	}
}

// problemOf answers as the server does for code.
func problemOf(code api.Code, header ...string) func(*http.Request) (*http.Response, error) {
	e := api.Errorf(code, "as told")
	h := map[string]string{"Content-Type": "application/problem+json"}
	for i := 0; i+1 < len(header); i += 2 {
		h[header[i]] = header[i+1]
	}
	return answers(e.Status, h, mustJSON(e))
}

func mustJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func taskIn(state api.State) *api.Task {
	return &api.Task{ID: "t1", Kind: "k", Key: "key", State: state, Run: 1, Epoch: 1}
}

func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	if status >= 400 {
		w.Header().Set("Content-Type", "application/problem+json")
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // a client that has gone is the test's affair
}

func readBody(r *http.Request) []byte {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		panic(err)
	}
	return b
}
