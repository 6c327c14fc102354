package workerd

import (
	"testing"

	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/provider"
)

// A fake provider needs no address, and answers with the request.
func TestFakeProvider(t *testing.T) {
	t.Parallel()
	cfg, err := config.Parse("onefold.yaml", []byte("providers: {p: {type: fake}}\nkinds: {k: {provider: p, output: text}}\n"), config.Built(nil))
	if err != nil {
		t.Fatal(err)
	}
	all, err := newProviders(cfg)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := all["p"].Call(t.Context(), provider.Request{Body: []byte(`{"a":1}`)})
	if err != nil || resp.Text != `{"a":1}` {
		t.Errorf("got %+v, %v", resp, err)
	}
}
