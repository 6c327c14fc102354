package boot

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/alecthomas/kong"

	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/telemetry"
)

// Flags are what every daemon takes; its main adds its own.
type Flags struct {
	File        string           `name:"config" help:"Configuration file; without one the kind llm.chat exists." env:"ONEFOLD_CONFIG" type:"path"`
	DatabaseURL string           `name:"database-url" help:"Postgres, possibly through a pooler." env:"ONEFOLD_DATABASE_URL"`
	DirectURL   string           `name:"database-direct-url" help:"Postgres past any pooler." env:"ONEFOLD_DATABASE_DIRECT_URL"`
	AdminAddr   string           `help:"Where metrics, pprof and health are served; nowhere by default." env:"ONEFOLD_ADMIN_ADDR"`
	Region      string           `help:"Where this process stands, as receivers of effects are told." env:"ONEFOLD_REGION"`
	SealKeys    string           `help:"Key ring that seals the secrets of destinations made through the API: id:key, comma-separated, the first one seals. Better give --seal-keys-file." env:"ONEFOLD_SEAL_KEYS" placeholder:"KEYS"`
	SealFile    string           `name:"seal-keys-file" help:"File that holds the key ring; read again when it changes." env:"ONEFOLD_SEAL_KEYS_FILE" type:"path"`
	LogLevel    string           `help:"debug, info, warn or error." env:"ONEFOLD_LOG_LEVEL" default:"info"`
	Version     kong.VersionFlag `help:"Print the version."`
}

// Config is what the flags say, for a service that reads onefold.yaml with opts
// and logs to a writer.
func (f Flags) Config(service string, opts config.Opts, log io.Writer) Config {
	var keys *telemetry.SecretSource
	switch {
	case f.SealFile != "":
		keys = telemetry.SecretFromFile(f.SealFile)
	case f.SealKeys != "":
		keys = telemetry.SecretFromValue(telemetry.NewSecret(f.SealKeys))
	}
	return Config{
		SealKeys: keys,
		Service:  service, DatabaseURL: f.DatabaseURL, DirectURL: f.DirectURL, ConfigPath: f.File, AdminAddr: f.AdminAddr, Region: f.Region,
		LogLevel: f.LogLevel, LogTo: log, Configuration: opts, Getenv: os.Getenv,
	}
}

// Main runs a daemon until it is asked to stop, and exits with 1 when it fails.
func Main(name string, run func(ctx context.Context, args []string, stdout, stderr io.Writer) error) {
	ctx, stop := Signals(context.Background())
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, name+":", Explain(err))
		os.Exit(1)
	}
}
