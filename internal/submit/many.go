package submit

import (
	"context"
	"errors"
	"sync"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/store"
)

// MaxBulk is how many requests one bulk may hold.
const MaxBulk = 1000

// reopeners bounds the reopening transactions of one bulk at a time.
const reopeners = 4

// Outcome is the answer to one request of many.
type Outcome struct {
	Answer
	Err error
}

// Many is Submit for up to MaxBulk requests, which share transactions as far as
// the limits of one allow. Each is answered on its own: one that is refused or
// fails changes nothing for the others. What is answered without an error is
// committed.
func (s *Service) Many(ctx context.Context, requests []Request) []Outcome {
	out := make([]Outcome, len(requests))
	ctx, span := s.traceMany(ctx, len(requests))
	defer span.End()
	news, kinds, at := []*store.New{}, []*config.Kind{}, []int{}
	for i := range requests {
		requests[i] = s.folded(requests[i])
		if span != nil {
			requests[i].TraceID, requests[i].Traceparent = span.TraceID(), span.Traceparent()
		}
		r := requests[i]
		n, kind, err := prepare(s.Kinds.Newest, r)
		if err == nil {
			err = s.checkNew(ctx, n, kind)
		}
		if err != nil {
			out[i].Err = s.failed(err)
			continue
		}
		news, kinds, at = append(news, n), append(kinds, kind), append(at, i)
	}
	got, errs := s.bulk.DoAll(ctx, news)
	count := func(k, i int) { requests[i].count(kinds[k].Name, out[i].Answer, out[i].Err) }
	var rest sync.WaitGroup
	room := make(chan struct{}, reopeners)
	for k, i := range at {
		if errs[k] != nil {
			out[i].Err = s.failed(errs[k])
			count(k, i)
			continue
		}
		if got[k].created {
			out[i].Answer = Answer{Row: got[k].row, Created: true}
			count(k, i)
			continue
		}
		room <- struct{}{}
		rest.Go(func() {
			defer func() { <-room }()
			out[i].Answer, out[i].Err = s.answer(ctx, requests[i], news[k], kinds[k], got[k])
			count(k, i)
		})
	}
	rest.Wait()
	return out
}

// Unavailable says whether all outcomes are one and the same "try again": then
// the whole of them is.
func Unavailable(all []Outcome) (*api.Error, bool) {
	var e *api.Error
	for _, o := range all {
		if !errors.As(o.Err, &e) || e.Code != api.CodeUnavailable {
			return nil, false
		}
	}
	return e, e != nil
}
