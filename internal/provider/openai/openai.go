// Package openai makes one call to an endpoint that speaks OpenAI's chat completions or responses.
//
// It speaks HTTP itself instead of using the vendor's SDK: the SDK decodes into its own structs (fields it does not
// know and the digits of numbers are lost on the way back), reads streams by lines with a limit, decodes each piece
// alone so that an emoji cut in two is lost, and repeats requests by itself. Here the caller's fields go out byte for
// byte, the request is sent once, and the reply comes back whole.
package openai

import (
	"context"
	"fmt"
	"net/http"

	"github.com/onefold-dev/onefold/internal/provider"
	"github.com/onefold-dev/onefold/internal/provider/dialect"
	"github.com/onefold-dev/onefold/internal/provider/wire"
)

// Opts describes one endpoint.
type Opts struct {
	// BaseURL is the address up to and including the version, as the vendors' SDKs take it: /chat/completions or
	// /responses is added to its path, a query it has is kept (Azure's api-version).
	BaseURL string
	// Key returns the API key; it is asked at every call, so that a changed key is used without a restart. Nil, or an
	// empty key, sends none.
	Key func() string
	// Header is sent with every call, besides those of the protocol. An Authorization given here wins over Key.
	Header http.Header
	// Responses speaks the responses API instead of chat completions.
	Responses bool
	// NoUsage leaves stream_options out of chat completions, for servers that refuse it; token counts are then unknown
	// when streamed.
	NoUsage bool
	// Wire tunes the connections; nil is fine.
	Wire *wire.Opts
}

// Provider is one endpoint with its connections. It is safe for use by many goroutines.
type Provider struct {
	at   *dialect.Endpoint
	opts Opts
	wire *wire.Client
}

var _ provider.Provider = (*Provider)(nil)

// New makes a Provider; the error says what is wrong with the address.
func New(o Opts) (*Provider, error) {
	at, err := dialect.NewEndpoint(o.BaseURL, o.Key, dialect.Bearer, o.Header)
	if err != nil {
		return nil, err
	}
	return &Provider{at: at, opts: o, wire: wire.NewClient(o.Wire)}, nil
}

// Close drops the idle connections.
func (p *Provider) Close() { p.wire.Close() }

// Call makes one call; see provider.Provider.
func (p *Provider) Call(ctx context.Context, r provider.Request) (*provider.Response, error) {
	path, shape, reader := []string{"chat", "completions"}, p.chatBody, dialect.Reader{Stream: chatStream, Document: chatDocument}
	if p.opts.Responses {
		path, shape, reader = []string{"responses"}, responsesBody, dialect.Reader{Stream: responsesStream, Document: responsesDocument}
	}
	body, err := shape(r)
	if err != nil {
		return nil, provider.New(provider.CodeBadRequestBody, err.Error())
	}
	x, fail := p.post(ctx, r, body, path...)
	if fail != nil {
		return nil, fail
	}
	defer x.Close()
	resp, fail := reader.Read(x, r.Stream)
	if fail != nil {
		return nil, fail
	}
	return resp, nil
}

func (p *Provider) post(ctx context.Context, r provider.Request, body []byte, path ...string) (*wire.Exchange, *provider.Error) {
	header, secrets := p.at.Header(r)
	if r.TaskID != "" {
		header.Set("X-Client-Request-Id", fmt.Sprintf("%s.%d.%d", r.TaskID, r.Run, r.Attempt))
	}
	return p.wire.Do(ctx, wire.Send{
		URL: p.at.At(path...), Header: header, Body: body, Timeouts: r.Timeouts, OnPhase: r.OnPhase, Secrets: secrets,
	})
}
