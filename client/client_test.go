package client_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/client"
)

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ url, key string }{
		{"", secret},
		{"127.0.0.1:8080", secret},
		{"ftp://x", secret},
		{"http://", secret},
		{"http://u:" + secret + "@x", secret},
		{"http://x/?a=b", secret},
		{"http://x:bad:" + secret, secret},
		{"http://x", ""},
		{"http://x", " \n"},
		{"http://x", secret + "\n" + secret},
	} {
		_, err := client.New(c.url, c.key, nil)
		var e *api.Error
		if !errors.As(err, &e) || e.Fix == "" && e.Code != api.CodeUnauthorized {
			t.Errorf("%q, %q: got %v, want an error with a fix", c.url, c.key, err)
		}
		if strings.Contains(fmt.Sprint(err), secret) {
			t.Errorf("the error shows the secret: %v", err)
		}
	}
}

func TestClientDoesNotPrintItsKey(t *testing.T) {
	t.Parallel()
	c := connect(t, "http://127.0.0.1:1", nil)
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		if got := fmt.Sprintf(format, c); strings.Contains(got, secret) {
			t.Errorf("%s: %s", format, got)
		}
		if got := fmt.Sprintf(format, *c); strings.Contains(got, secret) {
			t.Errorf("%s of the value: %s", format, got)
		}
	}
}

func TestBasePathAndHeaders(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var got []string
	_, s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, r.Method+" "+r.URL.EscapedPath()+" "+r.Header.Get("Authorization")+" "+r.Header.Get("User-Agent"))
		reply(w, 200, taskIn(api.Pending))
	}, nil)
	c, err := client.New(s.URL+"/llm%2Fqueue/", secret+"\n", &client.Opts{UserAgent: "billing/1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(t.Context(), "a/../b?c", nil); err != nil {
		t.Fatal(err)
	}
	want := []string{"GET /llm%2Fqueue/v1/tasks/a%2F..%2Fb%3Fc Bearer " + secret + " billing/1 onefold-go"}
	mu.Lock()
	defer mu.Unlock()
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("-got +want:\n%s", diff)
	}
	for _, id := range []string{"", ".", ".."} {
		if _, err := c.Get(t.Context(), id, nil); !errors.Is(err, api.ErrInvalid) {
			t.Errorf("id %q: got %v, want ErrInvalid", id, err)
		}
	}
}
