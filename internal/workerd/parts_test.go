package workerd

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/internal/config"
)

// What configurations may name is what this build can do, and the other way round.
func TestBuiltIsWhatIsThere(t *testing.T) {
	t.Parallel()
	built := config.Built(nil)
	for typ := range built.ProviderTypes {
		if _, err := newProvider(&config.Provider{Type: typ, BaseURL: config.NewURL("http://127.0.0.1:1/v1")}); err != nil {
			t.Errorf("provider type %s: %v", typ, err)
		}
	}
	want := append(slices.Collect(maps.Keys(newSenders())), "sql", "task")
	if diff := cmp.Diff(slices.Sorted(maps.Keys(built.EffectTypes)), slices.Sorted(slices.Values(want))); diff != "" {
		t.Errorf("effect types: %s", diff)
	}
}
