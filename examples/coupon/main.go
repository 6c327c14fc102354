// Command coupon plays the coupon that was issued 17 times: a shop tells of one
// paid order again and again, over the turn of an hour and a change of its
// signing secret, with a new request id each time. It exits with an error unless
// there is one task, one model call and one coupon.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
)

func main() {
	bin := flag.String("bin", "bin", "folder of the built api and worker")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *bin, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "coupon:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, bin string, out io.Writer) error {
	s, err := setUp(ctx, bin)
	defer s.tearDown()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "one paid order, told %d times: every 15 s over the turn of an hour, old and new secret, two API processes\n", deliveries)
	statuses, err := s.deliver(ctx)
	if err != nil {
		return err
	}
	if err := s.await(ctx, `SELECT count(*) FROM public.coupons WHERE state = 'issued'`, 1); err != nil {
		return err
	}
	if err := s.consume(ctx); err != nil {
		return err
	}
	return s.report(ctx, out, statuses)
}
