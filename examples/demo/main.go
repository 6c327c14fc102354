// Command demo plays the incident that onefold is for: callers whose timeout is
// shorter than the slow model, blind retries over two API processes, and a
// worker killed in the middle of its calls. It exits with an error if anything
// happened twice or not at all.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
)

func main() {
	bin := flag.String("bin", "bin", "folder of the built api and worker")
	invoices := flag.String("invoices", "examples/invoices", "folder of the invoice texts")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *bin, *invoices)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}
