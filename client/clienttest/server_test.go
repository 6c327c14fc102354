package clienttest_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/client"
	"github.com/onefold-dev/onefold/client/clienttest"
)

// The contract itself is held against the real server in e2e/contract. Here is
// what only a fake one can be asked for.

var some = api.Submit{Kind: "k", Input: json.RawMessage(`{"n":1}`)}

func start(t *testing.T, k clienttest.Kind) *clienttest.Server {
	t.Helper()
	s := clienttest.New(map[string]clienttest.Kind{"k": k})
	t.Cleanup(s.Close)
	return s
}

func TestOneRunForManyCallers(t *testing.T) {
	t.Parallel()
	s := start(t, clienttest.Kind{Do: clienttest.Always(clienttest.Succeed(`1`))})
	var all sync.WaitGroup
	for range 50 {
		c := s.Client()
		all.Go(func() {
			if got, err := c.Do(t.Context(), "a", some); err != nil || string(got.Result) != `1` {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
	all.Wait()
	calls := s.Calls()
	if len(calls) != 1 || calls[0].Key != "a" || calls[0].Run != 1 || string(calls[0].Input) != `{"n":1}` {
		t.Errorf("got the calls %+v, want one", calls)
	}
	if len(s.Calls("other")) != 0 {
		t.Error("calls of another kind")
	}
}

func TestTrouble(t *testing.T) {
	t.Parallel()
	s := start(t, clienttest.Kind{Do: clienttest.Always(clienttest.Succeed(`1`))})
	var retried int
	c, err := client.New(s.URL, s.Key, &client.Opts{OnRetry: func(client.Retried) { retried++ }})
	if err != nil {
		t.Fatal(err)
	}
	s.Refuse(1, api.Errorf(api.CodeUnavailable, "away"))
	s.LoseAnswers(1)
	got, err := c.Submit(t.Context(), "a", some, nil)
	if err != nil || *got.Created || retried != 2 {
		t.Errorf("got %+v, %v after %d retries; want the task that the lost answer was about", got, err, retried)
	}
	s.Refuse(1, api.Errorf(api.CodeForbidden, "no"))
	if _, err := c.Submit(t.Context(), "b", some, nil); !errors.Is(err, api.ErrForbidden) {
		t.Errorf("got %v", err)
	}
	if _, err := c.Find(t.Context(), "k", "b"); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("what was refused is there: %v", err)
	}
	if _, err := c.FindBatch(t.Context(), "b"); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("a route that is not served: %v", err)
	}
}

func TestSettle(t *testing.T) {
	t.Parallel()
	s := start(t, clienttest.Kind{Dedupe: api.DedupeOpen})
	c := s.Client()
	got, err := c.Submit(t.Context(), "a", some, nil)
	if err != nil {
		t.Fatal(err)
	}
	for got.State != api.Running {
		if got, err = c.Get(t.Context(), got.ID, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Settle(got.ID, clienttest.Exhaust("no luck")); err != nil {
		t.Fatal(err)
	}
	if got, err = c.Wait(t.Context(), got.ID); !errors.Is(err, api.ErrFailed) || got.Error.Message != "no luck" {
		t.Errorf("got %+v, %v", got, err)
	}
	if s.Settle(got.ID, clienttest.Succeed(`1`)) == nil || s.Settle("nosuch", clienttest.Outcome{}) == nil {
		t.Error("what does not run was settled")
	}
	second, err := c.Submit(t.Context(), "a", some, nil)
	if err != nil || second.ID == got.ID {
		t.Fatalf("after its end: %+v, %v", second, err)
	}
	if _, err := c.Retry(t.Context(), got.ID, got.Epoch, "r"); !errors.Is(err, &api.Error{Code: api.CodeSuperseded}) {
		t.Errorf("a retry while another one holds the key: %v", err)
	}
}

func TestSequence(t *testing.T) {
	t.Parallel()
	s := start(t, clienttest.Kind{Do: clienttest.Sequence(clienttest.Exhaust("first"), clienttest.Succeed(`"second"`))})
	c := s.Client()
	if _, err := c.Do(t.Context(), "a", some); !errors.Is(err, api.ErrFailed) {
		t.Errorf("got %v", err)
	}
	if got, err := c.Do(t.Context(), "a", some); err != nil || string(got.Result) != `"second"` || got.Run != 2 {
		t.Errorf("got %+v, %v", got, err)
	}
}

// Close ends the work that is under way, and whoever waits for it.
func TestClose(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{})
	s := clienttest.New(map[string]clienttest.Kind{"k": {Do: func(ctx context.Context, _ clienttest.Call) clienttest.Outcome {
		close(begun)
		<-ctx.Done()
		return clienttest.Outcome{}
	}}})
	c, err := client.New(s.URL, s.Key, &client.Opts{MaxRetries: -1})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := c.Do(ctx, "a", some)
		done <- err
	}()
	<-begun
	s.Close()
	s.Close()
	stop()
	if err := <-done; err == nil {
		t.Error("a task that was never done has a result")
	}
}
