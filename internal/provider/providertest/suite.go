// Package providertest decides whether a provider keeps the contract of package provider.
//
// Contract holds for every provider. Wire is for those that speak HTTP: scripted servers break each phase of a call on
// real sockets, and the suite looks at the class, the code, the number of sends and what is told.
package providertest

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onefold-dev/onefold/internal/provider"
	"github.com/onefold-dev/onefold/internal/provider/wire"
)

// Dialect is how the provider under test speaks.
type Dialect struct {
	// New makes the provider for an endpoint; key returns the credential.
	New func(baseURL string, key func() string, o *wire.Opts) (provider.Provider, error)
	// Body is a request that contains text as its prompt.
	Body func(text string) []byte
	// Whole is a good reply that is not streamed.
	Whole func(text string) []byte
	// Tokens are the parts of a good stream up to each token: part i completes token i. Terminal ends the stream.
	// Both nil: the provider does not stream.
	Tokens   func(tokens ...string) [][]byte
	Terminal []byte
	// Error is the body of a refusal with a message and a code word.
	Error func(message, code string) []byte
	// AuthHeader is the header that carries the key, in the form that it has there ("Bearer KEY").
	AuthHeader, AuthPrefix string
	// QuotaWord and RateWord are code words of the provider for an exhausted quota and a rate limit.
	QuotaWord, RateWord string
}

// Key is the credential that the suite uses; it must never show.
const Key = "sk-suite-1234567890abcdef"

// patience bounds what should end by itself; the suite never waits for it.
const patience = time.Minute

// Contract checks what every provider must keep, whatever it speaks. good is a request that the provider answers.
func Contract(t *testing.T, p provider.Provider, good provider.Request) {
	t.Helper()
	t.Run("success", func(t *testing.T) {
		var phases recorder
		good := good
		good.OnPhase = phases.add
		resp, err := p.Call(t.Context(), good)
		if err != nil {
			t.Fatalf("got %v, want success", err)
		}
		checkReply(t, resp)
		phases.check(t, provider.PhaseDone)
	})
	t.Run("ended before", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		var phases recorder
		good := good
		good.OnPhase = phases.add
		resp, err := p.Call(ctx, good)
		fail := mustFail(t, resp, err)
		if fail.Class != provider.NotSent || fail.Sent() {
			t.Errorf("got %v in phase %q, want not_sent", fail, fail.Phase)
		}
		if phases.reached(provider.PhaseWritten) {
			t.Error("a call that had ended was sent")
		}
	})
}

// mustFail checks that a failed call returns what the contract says, and that the table knows it.
func mustFail(t *testing.T, resp *provider.Response, err error) *provider.Error {
	t.Helper()
	if err == nil {
		t.Fatalf("succeeded with %+v, want a failure", resp)
	}
	if resp != nil {
		t.Errorf("a response beside the error %v", err)
	}
	fail, ok := err.(*provider.Error) //nolint:errorlint // the contract: the error is one, it does not wrap one
	if !ok {
		t.Fatalf("the error is a %T, want *provider.Error", err)
	}
	known := slices.ContainsFunc(provider.Table, func(r provider.Rule) bool {
		return r.Code == fail.Code && r.Class == fail.Class
	})
	if !known {
		t.Errorf("%s %s is not in the table", fail.Class, fail.Code)
	}
	if len(fail.Message) > 1024 || strings.Contains(fail.Message, Key) {
		t.Errorf("message %q", fail.Message)
	}
	return fail
}

func checkReply(t *testing.T, resp *provider.Response) {
	t.Helper()
	if resp == nil || len(resp.Reply) == 0 || resp.FinishReason == "" {
		t.Fatalf("response %+v lacks a reply or its finish", resp)
	}
	if resp.Phases.Total < resp.Phases.FirstByte || resp.Phases.Total <= 0 {
		t.Errorf("phases %+v are not in order", resp.Phases)
	}
}

// recorder keeps the phases that a call told of.
type recorder struct {
	mu   sync.Mutex
	seen []provider.Phase
	wake chan struct{} // closed when until is reached
	till provider.Phase
}

// until makes a recorder whose channel closes when the call reaches a phase.
func until(p provider.Phase) (*recorder, <-chan struct{}) {
	r := &recorder{wake: make(chan struct{}), till: p}
	return r, r.wake
}

func (r *recorder) add(p provider.Phase) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, p)
	if r.wake != nil && p == r.till {
		close(r.wake)
	}
}

func (r *recorder) reached(p provider.Phase) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.seen, p)
}

// check says whether the phases came in order, each once, up to last.
func (r *recorder) check(t *testing.T, last provider.Phase) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := 1; i < len(r.seen); i++ {
		if r.seen[i-1].AtLeast(r.seen[i]) {
			t.Errorf("phases out of order: %v", r.seen)
		}
	}
	if len(r.seen) == 0 || r.seen[len(r.seen)-1] != last {
		t.Errorf("phases %v, want %s as the last", r.seen, last)
	}
}
