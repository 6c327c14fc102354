package workerd

import (
	"fmt"
	"time"

	"github.com/onefold-dev/onefold/internal/boot"
	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/outbox"
	"github.com/onefold-dev/onefold/internal/outbox/email"
	"github.com/onefold-dev/onefold/internal/outbox/http"
	"github.com/onefold-dev/onefold/internal/outbox/webhook"
	"github.com/onefold-dev/onefold/internal/provider"
	"github.com/onefold-dev/onefold/internal/provider/anthropic"
	"github.com/onefold-dev/onefold/internal/provider/fake"
	"github.com/onefold-dev/onefold/internal/provider/httpcall"
	"github.com/onefold-dev/onefold/internal/provider/openai"
	"github.com/onefold-dev/onefold/internal/telemetry"
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

// newProvider makes a provider by its type. A new type gets its line here and
// its name in config.Built.
func newProvider(p *config.Provider) (provider.Provider, error) {
	switch p.Type {
	case "openai":
		o := openai.Opts{BaseURL: p.BaseURL.Reveal(), Key: keyOf(p), Responses: p.API == config.APIResponses}
		if p.Background {
			return openai.NewBackground(o)
		}
		return openai.New(o)
	case "httpcall":
		return httpcall.New(httpcall.Opts{
			BaseURL: p.BaseURL.Reveal(), Key: keyOf(p), Secrets: signingOf(p), Status: p.Status, AllowPrivate: p.AllowPrivate,
		})
	case "anthropic":
		return anthropic.New(anthropic.Opts{BaseURL: p.BaseURL.Reveal(), Key: keyOf(p), Version: p.Version})
	case "fake":
		return &fake.Provider{}, nil
	}
	return nil, fmt.Errorf("there is no provider type %q", p.Type)
}

// keyOf reads a provider's credential at every call, nil where it has none.
func keyOf(p *config.Provider) func() string {
	if p.APIKey == nil {
		return nil
	}
	return func() string {
		s, _ := p.APIKey.Get() // a source that broke gives its last value; doctor and the log tell
		return s.Reveal()
	}
}

// signingOf reads a provider's signing secrets at every call, the newest first.
func signingOf(p *config.Provider) func() []string {
	if p.Signing == nil {
		return nil
	}
	return func() (out []string) {
		for _, source := range []*telemetry.SecretSource{p.Signing, p.PreviousSigning} {
			if source != nil {
				s, _ := source.Get()
				out = append(out, s.Reveal())
			}
		}
		return out
	}
}

// newSenders are the effect types that leave; sql and task are done in the finishing
// transaction. A new type gets its line here and its name in config.Built.
func newSenders() map[string]outbox.Sender {
	agent := "onefold/" + boot.Version
	return map[string]outbox.Sender{
		"webhook": webhook.New(&webhook.Opts{UserAgent: agent}), "http": http.New(&http.Opts{UserAgent: agent}),
		"email": email.New(&email.Opts{Agent: agent}),
	}
}

// longest is the largest total timeout of any kind.
func longest(cfg *config.Config) time.Duration {
	most := time.Minute
	for _, k := range cfg.Kinds {
		most = max(most, cfg.TimeoutsOf(k).Total)
	}
	return most
}

// expectAuth begins the counts of refused credentials, so that the first one is a rise.
func expectAuth(cfg *config.Config) {
	for name := range cfg.Providers {
		telemetry.ExpectAuth(telemetry.SideProvider, name)
	}
	for name := range cfg.Destinations {
		telemetry.ExpectAuth(telemetry.SideDestination, name)
	}
}
