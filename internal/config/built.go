package config

// Built names the provider and effect types of this version. Every program reads
// onefold.yaml with it, so that the API and `config check` accept nothing that a
// worker would refuse. A test of the worker's parts holds it to what is there.
func Built(getenv func(string) string) Opts {
	return Opts{
		ProviderTypes: map[string]bool{"openai": true, "anthropic": true, "httpcall": true, "fake": true},
		EffectTypes:   map[string]bool{"webhook": true, "sql": true, "http": true, "email": true, "task": true},
		Getenv:        getenv,
	}
}
