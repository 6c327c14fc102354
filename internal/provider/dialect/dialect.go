// Package dialect decides what the dialects of model providers have in common: the frame of a request, and what an
// answer says of itself before anybody looks for tokens in it.
package dialect

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/onefold-dev/onefold/internal/provider"
)

// Endpoint is the address of a provider with what every call to it carries.
type Endpoint struct {
	url    *url.URL
	key    func() string
	auth   func(key string) (name, value string)
	header http.Header
}

// NewEndpoint reads a base URL. key, which may be nil, returns the credential at every call, so that a changed one is
// used without a restart; auth says which header carries it in which form. header is sent with every call, and an
// authorization given there wins over key. The error says what is wrong with the address, without quoting it.
func NewEndpoint(base string, key func() string, auth func(key string) (name, value string), header http.Header) (*Endpoint, error) {
	u, err := url.Parse(base)
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
	return &Endpoint{url: u, key: key, auth: auth, header: header}, nil
}

// At is an address below the base URL; a query that the base URL has is kept (Azure's api-version).
func (e *Endpoint) At(path ...string) *url.URL {
	if len(path) == 0 {
		u := *e.url
		return &u
	}
	return e.url.JoinPath(path...)
}

// Header makes the headers of one call, and lists what in them is secret. The task's key is not among them: it may
// name a person, and "Idempotency-Key" makes some servers, and net/http itself, repeat a POST.
func (e *Endpoint) Header(r provider.Request) (http.Header, []string) {
	h := e.header.Clone()
	if h == nil {
		h = http.Header{}
	}
	var secrets []string
	for _, v := range e.header {
		secrets = append(secrets, v...)
	}
	if e.key != nil {
		if key := strings.TrimSpace(e.key()); key != "" {
			secrets = append(secrets, key)
			if name, value := e.auth(key); h.Get(name) == "" {
				h.Set(name, value)
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
	}
	return h, secrets
}

// Bearer is the usual form of a credential.
func Bearer(key string) (name, value string) { return "Authorization", "Bearer " + key }

// RequestID is the provider's own id of a call, by which its support finds it.
func RequestID(h http.Header) string {
	for _, name := range []string{"X-Request-Id", "Request-Id", "Apim-Request-Id", "X-Amzn-Requestid", "Cf-Ray"} {
		if id := h.Get(name); id != "" {
			return provider.Scrub(id[:min(len(id), 200)], nil)
		}
	}
	return ""
}
