// Package anthropic makes one call to an endpoint that speaks Anthropic's Messages API.
//
// It speaks HTTP itself instead of using the vendor's SDK, for the reasons that package openai gives.
package anthropic

import (
	"cmp"
	"context"
	"net/http"

	"github.com/onefold-dev/onefold/internal/provider"
	"github.com/onefold-dev/onefold/internal/provider/dialect"
	"github.com/onefold-dev/onefold/internal/provider/wire"
)

// Version is the version of the API that is asked for where none is configured.
const Version = "2023-06-01"

// Opts describes one endpoint.
type Opts struct {
	// BaseURL is the address up to and including the version, as in https://api.anthropic.com/v1: /messages is added.
	BaseURL string
	// Key returns the API key; it is asked at every call. Nil, or an empty key, sends none.
	Key func() string
	// Version is sent as anthropic-version; "" is Version.
	Version string
	// Header is sent with every call, besides those of the protocol.
	Header http.Header
	// Wire tunes the connections; nil is fine.
	Wire *wire.Opts
}

// Provider is one endpoint with its connections. It is safe for use by many goroutines.
type Provider struct {
	at      *dialect.Endpoint
	version string
	wire    *wire.Client
}

var _ provider.Provider = (*Provider)(nil)

// New makes a Provider; the error says what is wrong with the address.
func New(o Opts) (*Provider, error) {
	auth := func(key string) (name, value string) { return "X-Api-Key", key }
	at, err := dialect.NewEndpoint(o.BaseURL, o.Key, auth, o.Header)
	if err != nil {
		return nil, err
	}
	return &Provider{at: at, version: cmp.Or(o.Version, Version), wire: wire.NewClient(o.Wire)}, nil
}

// Close drops the idle connections.
func (p *Provider) Close() { p.wire.Close() }

// Call makes one call; see provider.Provider. The request is sent as the caller wrote it, but for stream.
func (p *Provider) Call(ctx context.Context, r provider.Request) (*provider.Response, error) {
	body, err := dialect.ParseObject(r.Body)
	if err != nil {
		return nil, provider.New(provider.CodeBadRequestBody, err.Error())
	}
	body.Delete("stream")
	if r.Stream {
		body.Set("stream", []byte("true"))
	}
	header, secrets := p.at.Header(r)
	if header.Get("Anthropic-Version") == "" {
		header.Set("Anthropic-Version", p.version)
	}
	x, fail := p.wire.Do(ctx, wire.Send{
		URL: p.at.At("messages"), Header: header, Body: body.Bytes(), Timeouts: r.Timeouts, OnPhase: r.OnPhase, Secrets: secrets,
	})
	if fail != nil {
		return nil, fail
	}
	defer x.Close()
	resp, fail := dialect.Reader{Stream: stream, Document: document}.Read(x, r.Stream)
	if fail != nil {
		return nil, fail
	}
	return resp, nil
}
