package openai

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/onefold-dev/onefold/internal/provider"
	"github.com/onefold-dev/onefold/internal/provider/delta"
	"github.com/onefold-dev/onefold/internal/provider/dialect"
	"github.com/onefold-dev/onefold/internal/provider/wire"
)

// Pauses between two questions after a response, and what bounds one question.
const (
	pollFirst = 500 * time.Millisecond
	pollLast  = 10 * time.Second
	pollLimit = 30 * time.Second
	// stopLimit bounds the request to cancel a response whose time is over.
	stopLimit = 5 * time.Second
)

// Background is an endpoint whose responses are made in the background: a send starts one, and it is asked for by its
// id until it is over.
type Background struct {
	*Provider
	pause time.Duration // the first pause, shorter in tests
}

var _ provider.Poller = (*Background)(nil)

// NewBackground makes a Background; o.Responses is implied.
func NewBackground(o Opts) (*Background, error) {
	o.Responses = true
	p, err := New(o)
	if err != nil {
		return nil, err
	}
	return &Background{Provider: p, pause: pollFirst}, nil
}

// Call starts a response and waits for it; see provider.Provider.
func (b *Background) Call(ctx context.Context, r provider.Request) (*provider.Response, error) {
	id, err := b.Start(ctx, r)
	if err != nil {
		return nil, err
	}
	return b.Poll(ctx, r, id)
}

// Start starts a response and returns its id; see provider.Poller.
func (b *Background) Start(ctx context.Context, r provider.Request) (string, error) {
	body, err := dialect.ParseObject(r.Body)
	if err != nil {
		return "", provider.New(provider.CodeBadRequestBody, err.Error())
	}
	for _, name := range []string{"stream", "stream_options", "store"} { // one that is not stored cannot be asked for
		body.Delete(name)
	}
	body.Set("background", []byte("true"))
	r.Stream, r.OnPhase = false, upTo(provider.PhaseHeaders, r.OnPhase)
	x, fail := b.post(ctx, r, body.Bytes(), "responses")
	if fail != nil {
		return "", fail
	}
	defer x.Close()
	id := ""
	_, fail = dialect.Reader{Document: func(x *wire.Exchange, doc *delta.Value, raw []byte) (*provider.Response, *provider.Error) {
		if said := responsesError(doc); said != nil {
			return nil, dialect.WithReply(said.InReply(x), raw)
		}
		if id = doc.Get("id").Text(); id == "" || len(id) > 500 {
			return nil, dialect.WithReply(x.New(provider.CodeProtocol, "the reply names no id by which the response could be asked for"), raw)
		}
		return &provider.Response{}, nil
	}}.Read(x, false)
	if fail != nil {
		return "", fail
	}
	return id, nil
}

// upTo passes the phases on that are not later than last.
func upTo(last provider.Phase, f func(provider.Phase)) func(provider.Phase) {
	if f == nil {
		return nil
	}
	return func(p provider.Phase) {
		if last.AtLeast(p) {
			f(p)
		}
	}
}

// errTotal is the cause that ends a poll whose time is over.
var errTotal = errors.New("the total timeout ran out")

// Poll asks for a response until it is over; see provider.Poller. When its time is over it is cancelled: an answer that
// says so makes it certain that this one brings nothing any more.
func (b *Background) Poll(ctx context.Context, r provider.Request, id string) (*provider.Response, error) {
	start, parent := time.Now(), ctx
	if r.Timeouts.Total > 0 {
		var end context.CancelFunc
		ctx, end = context.WithTimeoutCause(ctx, r.Timeouts.Total, errTotal)
		defer end()
	}
	pause := b.pause
	for {
		resp, fail, over := b.ask(ctx, r, http.MethodGet, id)
		if over {
			return b.finish(r, start, resp, fail)
		}
		if ctx.Err() != nil {
			break
		}
		wait := pause
		if fail != nil {
			wait = max(wait, min(fail.RetryAfter, pollLimit))
		}
		pause = min(pause*3/2, pollLast)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
	if parent.Err() != nil {
		return b.finish(r, start, nil, provider.New(provider.CodeCancelled, "the call was ended while the response was being made"))
	}
	stopping, end := context.WithTimeout(parent, stopLimit)
	defer end()
	resp, fail, over := b.ask(stopping, r, http.MethodPost, id, "cancel")
	if over && (fail == nil || fail.Code != provider.CodeJobCancelled) {
		return b.finish(r, start, resp, fail)
	}
	late := provider.New(provider.CodeTotalTimeout, errTotal.Error()+" while the response was being made")
	late.JobOver = over
	return b.finish(r, start, nil, late)
}

// finish puts times and phases on what a poll came to.
func (b *Background) finish(r provider.Request, start time.Time, resp *provider.Response, fail *provider.Error) (*provider.Response, error) {
	took := max(time.Since(start), 1)
	if fail != nil {
		fail.Phase, fail.Phases = provider.PhaseHeaders, provider.Phases{Total: took}
		return nil, fail
	}
	resp.Phases = provider.Phases{FirstByte: took, Total: took}
	if r.OnPhase != nil {
		for _, p := range []provider.Phase{provider.PhaseFirstToken, provider.PhaseBody, provider.PhaseDone} {
			r.OnPhase(p)
		}
	}
	return resp, nil
}

// ask makes one request about a response. over says that there is nothing more to ask: it brought resp, or fail.
func (b *Background) ask(ctx context.Context, r provider.Request, method, id string, more ...string) (resp *provider.Response, fail *provider.Error, over bool) {
	r.Stream, r.OnPhase = false, nil
	limit := pollLimit
	if r.Timeouts.FirstByte > 0 {
		limit = min(limit, r.Timeouts.FirstByte)
	}
	r.Timeouts = provider.Timeouts{Connect: r.Timeouts.Connect, FirstByte: limit, Idle: limit, Total: 2 * limit}
	header, secrets := b.at.Header(r)
	send := wire.Send{
		Method: method, URL: b.at.At(append([]string{"responses", url.PathEscape(id)}, more...)...),
		Header: header, Timeouts: r.Timeouts, Secrets: secrets,
	}
	if method == http.MethodPost {
		send.Body = []byte("{}")
	}
	x, fail := b.wire.Do(ctx, send)
	if fail != nil {
		return nil, fail, false
	}
	defer x.Close()
	if x.Status < 200 || x.Status > 299 {
		fail, _ = dialect.StatusError(x)
		fail.RequestID = dialect.RequestID(x.Header)
		return nil, gone(fail), fail.Class == provider.Rejected || fail.Class == provider.Unauthorized
	}
	running, judged := false, false
	resp, fail = dialect.Reader{Document: func(x *wire.Exchange, doc *delta.Value, raw []byte) (*provider.Response, *provider.Error) {
		if s := doc.Get("status").Text(); s == statusQueued || s == statusInProgress {
			running = true
			return &provider.Response{}, nil
		}
		judged = doc.Get("object").Text() == "response" || doc.Get("status").Has()
		return responsesDocument(x, doc, raw)
	}}.Read(x, false)
	switch {
	case running:
		return nil, nil, false
	case fail == nil:
		return resp, nil, true
	case judged:
		fail.JobOver = true
		return nil, fail, true
	}
	return nil, fail, false // the answer broke off, or was none: asked again
}

// gone makes of a refused question that nobody can ask for the response any more. A credential at fault changes
// nothing about the response.
func gone(f *provider.Error) *provider.Error {
	if f.Class != provider.Rejected {
		return f
	}
	g := provider.New(provider.CodeJobGone, f.Message)
	g.Status, g.ProviderCode, g.RequestID, g.Bytes, g.JobOver = f.Status, f.ProviderCode, f.RequestID, f.Bytes, true
	return g
}

// Stop asks the provider to cancel a response; see provider.Poller.
func (b *Background) Stop(ctx context.Context, r provider.Request, id string) error {
	_, fail, over := b.ask(ctx, r, http.MethodPost, id, "cancel")
	if fail != nil && !over {
		return fail
	}
	return nil
}
