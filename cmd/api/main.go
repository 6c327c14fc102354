// Command api serves onefold's HTTP API: it takes tasks and tells what became
// of them. It calls no model; workers do.
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/alecthomas/kong"

	"github.com/onefold-dev/onefold/internal/apid"
	"github.com/onefold-dev/onefold/internal/boot"
	"github.com/onefold-dev/onefold/internal/config"
)

type flags struct {
	boot.Flags
	Addr        string `help:"Where requests are served." env:"ONEFOLD_ADDR" default:"127.0.0.1:8080"`
	TLSCert     string `name:"tls-cert" help:"File of the certificate (PEM, chain included) to serve HTTPS with; read again once it changes." env:"ONEFOLD_TLS_CERT" and:"tls"`
	TLSKey      string `name:"tls-key" help:"File of the certificate's key (PEM)." env:"ONEFOLD_TLS_KEY" and:"tls"`
	Healthcheck bool   `help:"Ask the api at --addr whether it lives, and exit with 0 or 1."`
}

func main() { boot.Main("api", run) }

// run is the program; tests start it, too.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var f flags
	parser := kong.Must(&f, kong.Name("api"), kong.Description("Serves onefold's HTTP API."),
		kong.Vars{"version": boot.Version}, kong.Writers(stdout, stderr))
	if _, err := parser.Parse(args); err != nil {
		return err
	}
	if f.Healthcheck {
		return boot.Healthcheck(ctx, f.Addr, f.TLSCert != "")
	}
	opts := config.Built(os.Getenv)
	opts.SkipSecrets = true // the API sends nothing
	c := f.Config("api", opts, stderr)
	c.Addr, c.TLSCert, c.TLSKey = f.Addr, f.TLSCert, f.TLSKey
	app, err := boot.Open(ctx, c)
	if err != nil {
		return err
	}
	defer app.Close()
	scheme := "http"
	if f.TLSCert != "" {
		scheme = "https"
	}
	return apid.Run(ctx, app, func(addr string) { fmt.Fprintf(stdout, "listening on %s://%s\n", scheme, addr) })
}
