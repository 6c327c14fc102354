package fake_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onefold-dev/onefold/internal/provider"
	"github.com/onefold-dev/onefold/internal/provider/fake"
	"github.com/onefold-dev/onefold/internal/provider/providertest"
)

func TestContract(t *testing.T) {
	t.Parallel()
	providertest.Contract(t, &fake.Provider{}, provider.Request{Body: []byte(`{"a":1}`)})
}

func TestDelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &fake.Provider{Delay: time.Second}
		_, err := p.Call(t.Context(), provider.Request{Timeouts: provider.Timeouts{Total: time.Millisecond}})
		if f := provider.AsError(err); f == nil || f.Code != provider.CodeTotalTimeout || !f.Sent() {
			t.Errorf("got %v, want a total timeout after the send", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err = p.Call(ctx, provider.Request{})
		if f := provider.AsError(err); f == nil || f.Code != provider.CodeCancelled || !f.Sent() {
			t.Errorf("got %v, want cancelled after the send", err)
		}
		if resp, err := p.Call(t.Context(), provider.Request{Body: []byte("x")}); err != nil || resp.Text != "x" {
			t.Errorf("got %+v, %v, want the echo", resp, err)
		}
	})
}
