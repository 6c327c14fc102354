package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/onefold-dev/onefold/internal/submit"
)

// observers is how many callers submit at the same time.
const observers = 64

// observe measures in one run, on one database, what it costs that submits are
// observed: metrics, who asked, duplicates one by one and counted, the spans of
// duplicates. A round measures with and without right after each other, in turns
// the one or the other first; the median of the rounds' ratios counts.
func observe(ctx context.Context, c *cluster, o options, out io.Writer) error {
	for _, s := range []struct {
		name string
		one  func(s *submit.Service, who string) func(ctx context.Context, caller, i int) error
	}{
		{"new submits", newSubmits},
		{"duplicates", oldSubmits},
	} {
		err := c.in(ctx, func(w *world) error {
			seen, err := w.submitsAs(ctx, false)
			if err != nil {
				return err
			}
			blind, err := w.submitsAs(ctx, true)
			if err != nil {
				return err
			}
			if err := fill(ctx, blind, known, knownKey); err != nil {
				return err
			}
			return compare(ctx, o, out, s.name, func(round int, observed bool) (float64, error) {
				of, who := blind, "b"
				if observed {
					of, who = seen, "s"
				}
				each, took, err := load(ctx, observers, o.time, s.one(of, who+strconv.Itoa(round)))
				return float64(len(each)) / took.Seconds(), err
			})
		})
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// compare runs the rounds and prints what they came to.
func compare(_ context.Context, o options, out io.Writer, name string, run func(round int, observed bool) (float64, error)) error {
	var ratios, with, without []float64
	for round := -1; round < o.rounds; round++ { // the first warms up
		rates := map[bool]float64{}
		for _, observed := range []bool{round%2 == 0, round%2 != 0} {
			rate, err := run(round, observed)
			if err != nil {
				return err
			}
			rates[observed] = rate
		}
		if round < 0 {
			continue
		}
		with, without = append(with, rates[true]), append(without, rates[false])
		ratios = append(ratios, rates[true]/rates[false])
	}
	slices.Sort(ratios)
	_, err := fmt.Fprintf(out, "%-12s observed %7.0f/s, not observed %7.0f/s; median ratio of %d rounds %.3f (quartiles %.3f to %.3f): observing costs %.1f %%\n",
		name, middle(with), middle(without), len(ratios), middle(ratios), ratios[len(ratios)/4], ratios[len(ratios)*3/4], 100*(1-middle(ratios)))
	return err
}

func middle(all []float64) float64 {
	s := slices.Sorted(slices.Values(all))
	return (s[len(s)/2] + s[(len(s)-1)/2]) / 2
}

// watched is a request with all that is kept of one.
func watched(key string) submit.Request {
	r := request(key)
	r.RequestID, r.Client, r.UserAgent = "req-0123456789abcdef", "192.0.2.17:40122", "invoices/2.1 (linux; amd64)"
	r.TraceID = "4bf92f3577b34da6a3ce929d0e0e4736"
	return r
}

func newSubmits(s *submit.Service, who string) func(ctx context.Context, caller, i int) error {
	return func(ctx context.Context, caller, i int) error {
		a, err := s.Submit(ctx, watched(who+"-"+key(caller, i)))
		if err == nil && !a.Created {
			err = errors.New("a new key was taken for a duplicate")
		}
		return err
	}
}

func oldSubmits(s *submit.Service, _ string) func(ctx context.Context, caller, i int) error {
	return func(ctx context.Context, _, _ int) error {
		a, err := s.Submit(ctx, watched(knownKey(rand.IntN(known))))
		if err == nil && a.Created {
			err = errors.New("a duplicate was taken for new")
		}
		return err
	}
}
