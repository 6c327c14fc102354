package workerd

import (
	"fmt"
	"time"

	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/outbox"
	"github.com/onefold-dev/onefold/internal/outbox/webhook"
	"github.com/onefold-dev/onefold/internal/provider"
	"github.com/onefold-dev/onefold/internal/provider/openai"
)

// ProviderTypes and EffectTypes are what this build can do: a new provider or
// effect kind gets one line in newProviders or newSenders and one here.
var (
	ProviderTypes = map[string]bool{"openai": true}
	EffectTypes   = map[string]bool{"webhook": true, "sql": true}
)

func newProviders(cfg *config.Config) (map[string]provider.Provider, error) {
	out := map[string]provider.Provider{}
	for name, p := range cfg.Providers {
		made, err := newProvider(p)
		if err != nil {
			return nil, cfg.At("providers."+name, err.Error(), "correct the provider")
		}
		out[name] = made
	}
	return out, nil
}

func newProvider(p *config.Provider) (provider.Provider, error) {
	switch p.Type {
	case "openai":
		o := openai.Opts{BaseURL: p.BaseURL.Reveal()}
		if p.APIKey != nil {
			o.Key = func() string {
				s, _ := p.APIKey.Get() // a source that broke gives its last value; doctor and the log tell
				return s.Reveal()
			}
		}
		return openai.New(o)
	}
	return nil, fmt.Errorf("there is no provider type %q", p.Type)
}

func newSenders() map[string]outbox.Sender {
	return map[string]outbox.Sender{"webhook": webhook.New(nil)}
}

// longest is the largest total timeout of any kind.
func longest(cfg *config.Config) time.Duration {
	most := time.Minute
	for _, k := range cfg.Kinds {
		most = max(most, cfg.TimeoutsOf(k).Total)
	}
	return most
}

// Configuration says what this build can do, for reading onefold.yaml.
func Configuration(getenv func(string) string) config.Opts {
	return config.Opts{ProviderTypes: ProviderTypes, EffectTypes: EffectTypes, Getenv: getenv}
}
