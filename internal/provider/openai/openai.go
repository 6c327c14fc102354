// Package openai makes one call to an endpoint that speaks OpenAI's chat completions.
//
// It speaks HTTP itself instead of using the vendor's SDK: the SDK decodes into its own structs (fields it does not
// know and the digits of numbers are lost on the way back), reads streams by lines with a limit, decodes each piece
// alone so that an emoji cut in two is lost, and repeats requests by itself. Here the caller's fields go out byte for
// byte, the request is sent once, and the reply comes back whole.
package openai

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/onefold-dev/onefold/internal/provider"
	"github.com/onefold-dev/onefold/internal/provider/wire"
)

// Opts describes one endpoint.
type Opts struct {
	// BaseURL is the address up to and including the version, as the vendors' SDKs take it: /chat/completions is
	// added to its path, a query it has is kept (Azure's api-version).
	BaseURL string
	// Key returns the API key; it is asked at every call, so that a changed key is used without a restart. Nil, or an
	// empty key, sends none.
	Key func() string
	// Header is sent with every call, besides those of the protocol. An Authorization given here wins over Key.
	Header http.Header
	// NoUsage leaves stream_options out, for servers that refuse it; token counts are then unknown when streamed.
	NoUsage bool
	// Wire tunes the connections; nil is fine.
	Wire *wire.Opts
}

// Provider is one endpoint with its connections. It is safe for use by many goroutines.
type Provider struct {
	url  *url.URL
	opts Opts
	wire *wire.Client
}

var _ provider.Provider = (*Provider)(nil)

// New makes a Provider; the error says what is wrong with the address.
func New(o Opts) (*Provider, error) {
	u, err := url.Parse(o.BaseURL)
	if err != nil {
		return nil, errors.New("base_url is not a URL") // the cause quotes the URL, which may hold a password
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, fmt.Errorf("base_url needs http or https and a host, as in https://api.openai.com/v1")
	}
	if u.Fragment != "" {
		return nil, errors.New("base_url has a fragment")
	}
	if u.Path == "" {
		u.Path = "/" // JoinPath would make a path without its slash
	}
	return &Provider{url: u.JoinPath("chat", "completions"), opts: o, wire: wire.NewClient(o.Wire)}, nil
}

// Close drops the idle connections.
func (p *Provider) Close() { p.wire.Close() }

// Call makes one call; see provider.Provider.
func (p *Provider) Call(ctx context.Context, r provider.Request) (*provider.Response, error) {
	body, err := shape(r.Body, r.Stream, !p.opts.NoUsage)
	if err != nil {
		return nil, provider.New(provider.CodeBadRequestBody, err.Error())
	}
	header, secrets := p.header(r)
	x, fail := p.wire.Do(ctx, wire.Post{
		URL: p.url, Header: header, Body: body, Timeouts: r.Timeouts, OnPhase: r.OnPhase, Secrets: secrets,
	})
	if fail != nil {
		return nil, fail
	}
	defer x.Close()
	resp, fail := read(x, r.Stream)
	if fail != nil {
		fail.RequestID = requestID(x.Header)
		return nil, fail
	}
	resp.RequestID = requestID(x.Header)
	return resp, nil
}

// header makes the headers of one call. The task's key is not among them: it may name a person, and providers that
// repeat a POST on "Idempotency-Key" are exactly what must not happen.
func (p *Provider) header(r provider.Request) (http.Header, []string) {
	h := p.opts.Header.Clone()
	if h == nil {
		h = http.Header{}
	}
	var secrets []string
	for _, v := range p.opts.Header {
		secrets = append(secrets, v...)
	}
	if p.opts.Key != nil {
		if key := strings.TrimSpace(p.opts.Key()); key != "" {
			secrets = append(secrets, key)
			if h.Get("Authorization") == "" {
				h.Set("Authorization", "Bearer "+key)
			}
		}
	}
	h.Set("Content-Type", "application/json")
	h.Set("Accept", "application/json")
	if r.Stream {
		h.Set("Accept", "text/event-stream")
	}
	if h.Get("User-Agent") == "" {
		h.Set("User-Agent", "onefold")
	}
	if r.TaskID != "" {
		h.Set("Onefold-Task", r.TaskID)
		h.Set("Onefold-Run", strconv.Itoa(r.Run))
		h.Set("Onefold-Attempt", strconv.Itoa(r.Attempt))
		h.Set("X-Client-Request-Id", fmt.Sprintf("%s.%d.%d", r.TaskID, r.Run, r.Attempt))
	}
	return h, secrets
}

// requestID is the provider's own id of a call, by which its support finds it.
func requestID(h http.Header) string {
	for _, name := range []string{"X-Request-Id", "Request-Id", "Apim-Request-Id", "X-Amzn-Requestid", "Cf-Ray"} {
		if id := h.Get(name); id != "" {
			return provider.Scrub(id[:min(len(id), 200)], nil)
		}
	}
	return ""
}
