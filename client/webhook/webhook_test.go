package webhook

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

const (
	oldSecret = "whsec_b2xkLXNlY3JldC1vZi10aGUtc2hvcC0zMi1ieXRlcyE="
	newSecret = "whsec_bmV3LXNlY3JldC1vZi10aGUtc2hvcC0zMi1ieXRlcyE="
)

func signed(t *testing.T, secret, id string, at time.Time, body string) http.Header {
	t.Helper()
	w, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	sig, err := w.Sign(id, at, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return http.Header{"Webhook-Id": {id}, "Webhook-Timestamp": {strconv.FormatInt(at.Unix(), 10)}, "Webhook-Signature": {sig}}
}

func TestVerify(t *testing.T) {
	t.Parallel()
	now := time.Unix(1767225600, 0)
	v, err := New(newSecret, oldSecret)
	if err != nil {
		t.Fatal(err)
	}
	v.now = func() time.Time { return now }
	twice := signed(t, newSecret, "e1", now, "{}")
	twice.Add("Webhook-Id", "e2")
	for name, c := range map[string]struct {
		h    http.Header
		body string
		want error
	}{
		"new secret":    {signed(t, newSecret, "e1", now, "{}"), "{}", nil},
		"old secret":    {signed(t, oldSecret, "e1", now, "{}"), "{}", nil},
		"changed body":  {signed(t, newSecret, "e1", now, "{}"), "{ }", ErrSignature},
		"four minutes":  {signed(t, newSecret, "e1", now.Add(-4*time.Minute), "{}"), "{}", nil},
		"six minutes":   {signed(t, newSecret, "e1", now.Add(-6*time.Minute), "{}"), "{}", ErrTooOld},
		"from tomorrow": {signed(t, newSecret, "e1", now.Add(24*time.Hour), "{}"), "{}", ErrTooOld},
		"no headers":    {http.Header{}, "{}", ErrSignature},
		"two ids":       {twice, "{}", ErrSignature},
	} {
		e, err := v.VerifyBody(c.h, []byte(c.body))
		if !errors.Is(err, c.want) || (err == nil) != (e != nil) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
		if e != nil && (e.ID != "e1" || string(e.Body) != c.body) {
			t.Errorf("%s: got %+v", name, e)
		}
	}
	for _, bad := range [][]string{nil, {""}, {"whsec_"}, {newSecret, ""}, {"whsec_!!!!!!!!!!!!!!!!!!!!!"}} {
		if _, err := New(bad...); err == nil {
			t.Errorf("the secrets %q were taken", bad)
		}
	}
}

// Ten deliveries of one effect at once are worked on once; one that failed comes again and is worked on again.
func TestHandlerFolds(t *testing.T) {
	t.Parallel()
	v, err := New(newSecret)
	if err != nil {
		t.Fatal(err)
	}
	var done, failed atomic.Int64
	srv := httptest.NewServer(Handler(v, &Memory{}, func(_ context.Context, e *Event) error {
		if e.ID == "shaky" && failed.Add(1) == 1 {
			return errors.New("not now")
		}
		done.Add(1)
		return nil
	}))
	defer srv.Close()
	post := func(id string, h http.Header) int {
		req, err := http.NewRequest("POST", srv.URL, strings.NewReader("{}"))
		if err != nil {
			t.Error(err)
			return 0
		}
		req.Header = h
		resp, err := srv.Client().Do(req)
		if err != nil {
			t.Errorf("%s: %v", id, err)
			return 0
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		return resp.StatusCode
	}
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			if got := post("one", signed(t, newSecret, "one", time.Now(), "{}")); got != 204 {
				t.Errorf("got %d, want 204", got)
			}
		})
	}
	all.Wait()
	if done.Load() != 1 {
		t.Errorf("worked %d times, want once", done.Load())
	}
	for i, want := range []int{500, 204, 204} {
		if got := post("shaky", signed(t, newSecret, "shaky", time.Now(), "{}")); got != want {
			t.Errorf("try %d: got %d, want %d", i, got, want)
		}
	}
	if done.Load() != 2 {
		t.Errorf("worked %d times, want twice", done.Load())
	}
	if got := post("forged", signed(t, oldSecret, "forged", time.Now(), "{}")); got != 401 {
		t.Errorf("got %d, want 401", got)
	}
}
