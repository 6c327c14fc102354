package provider

import (
	"context"
	"time"
)

// Poller is a provider that works in the background: a send starts a job, and the job is asked for until it is over.
//
// Whoever calls stores the id of the job before it waits, and after a crash asks for the stored job instead of sending
// again. Between the send and the id being stored the outcome of the call is unknown, as it is of any other call.
type Poller interface {
	Provider
	// Start sends the request at most once and returns the provider's id of the job. Its errors are those of Call.
	// A job that is over already is no special case: the first Poll tells.
	Start(ctx context.Context, r Request) (job string, err error)
	// Poll waits until the job is over and returns what came of it, or an *Error. Asking repeats nothing, so what
	// goes wrong while asking is asked again, until ctx or r.Timeouts.Total (counted from here) ends.
	//
	// An Error with JobOver says that this job will never bring anything more: sending again is the only way on. All
	// others leave the job where it is, and it can be polled again.
	Poll(ctx context.Context, r Request, job string) (*Response, error)
	// Stop asks the provider to end the job, because nobody wants its result any more. It is a courtesy that saves
	// money and may come too late; the error is for the log.
	Stop(ctx context.Context, r Request, job string) error
}

// StatusChecker is a provider that can be asked what became of the calls made for a task. It is asked when a call had
// no known outcome, after a crash too, before on_unknown decides.
type StatusChecker interface {
	// Status asks about the calls made for r's task and run, up to the one with r.Number. It sends no work, and it
	// returns soon after ctx ends. A check that fails cannot tell.
	Status(ctx context.Context, r Request) Status
}

// Status is what a provider says of the calls made for a task.
type Status struct {
	Known Known
	// After is, with Working, when to ask again; 0 means that the provider did not say.
	After time.Duration
	// Response is the result, with Done, unless the work failed.
	Response *Response
	// Err is, with Done, how the work failed (its class decides as for a call), and with CannotTell why nothing is
	// known.
	Err *Error
}

// Known is the answer of a status check.
type Known string

// The answers of a status check.
const (
	// Done: the work was done, and Response or Err is what came of it. Nothing is to be sent.
	Done Known = "done"
	// NotDone: no call with a number up to r.Number was carried out or ever will be, not even one that is still on its
	// way. Sending again, under a higher number, repeats nothing.
	NotDone Known = "not_done"
	// Working: it is being done. Ask again later, send nothing.
	Working Known = "working"
	// CannotTell: on_unknown decides, as if nobody had been asked.
	CannotTell Known = "cannot_tell"
)
