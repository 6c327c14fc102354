// Package httpcall makes one call to a service of the user's own that does the work; docs/httpcall.md is the contract.
package httpcall

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/onefold-dev/onefold/internal/egress"
	"github.com/onefold-dev/onefold/internal/provider"
	"github.com/onefold-dev/onefold/internal/provider/delta"
	"github.com/onefold-dev/onefold/internal/provider/dialect"
	"github.com/onefold-dev/onefold/internal/provider/wire"
)

// TaskPlace stands in a status path where the task's id goes.
const TaskPlace = "{task_id}"

// Opts describes one service.
type Opts struct {
	// BaseURL is where tasks are posted to.
	BaseURL string
	// Key returns a bearer credential, asked at every call; nil, or an empty one, sends none.
	Key func() string
	// Secrets returns the secrets that sign requests by Standard Webhooks, the newest first; nil, or none, signs none.
	Secrets func() []string
	// Status is the path below BaseURL where the service tells what became of a task: the task's id stands in the place
	// of TaskPlace, or at the end. "" means that it cannot be asked.
	Status string
	// AllowPrivate lets BaseURL lead to loopback and private addresses.
	AllowPrivate bool
	// Wire tunes the connections; nil is fine.
	Wire *wire.Opts
}

// Service is one service with its connections. It is safe for use by many goroutines.
type Service struct {
	at      *dialect.Endpoint
	secrets func() []string
	wire    *wire.Client
}

// Asked is a Service that can be asked what became of a task.
type Asked struct {
	*Service
	path string
}

var (
	_ provider.Provider      = (*Service)(nil)
	_ provider.StatusChecker = (*Asked)(nil)
)

// New makes a *Service, or an *Asked where there is a status path; the error says what is wrong.
func New(o Opts) (provider.Provider, error) {
	at, err := dialect.NewEndpoint(o.BaseURL, o.Key, dialect.Bearer, nil)
	if err != nil {
		return nil, err
	}
	tuned := wire.Opts{}
	if o.Wire != nil {
		tuned = *o.Wire
	}
	if tuned.Dial == nil && tuned.DialContext == nil {
		tuned.DialContext = egress.New(o.AllowPrivate, nil).Dial
	}
	s := &Service{at: at, secrets: o.Secrets, wire: wire.NewClient(&tuned)}
	if o.Status == "" {
		return s, nil
	}
	path := o.Status
	if !strings.Contains(path, TaskPlace) {
		path = strings.TrimSuffix(path, "/") + "/" + TaskPlace
	}
	return &Asked{Service: s, path: path}, nil
}

// Close drops the idle connections.
func (s *Service) Close() { s.wire.Close() }

// Call posts one task; see provider.Provider. The service is not streamed.
func (s *Service) Call(ctx context.Context, r provider.Request) (*provider.Response, error) {
	body, err := envelope(r)
	if err != nil {
		return nil, provider.New(provider.CodeBadRequestBody, err.Error())
	}
	send, fail := s.send(r, http.MethodPost, s.at.At(), body)
	if fail != nil {
		return nil, fail
	}
	send.OnPhase = r.OnPhase
	x, fail := s.wire.Do(ctx, send)
	if fail != nil {
		return nil, fail
	}
	defer x.Close()
	resp, fail := read(x)
	if fail != nil {
		return nil, fail
	}
	return resp, nil
}

// read reads the answer to a task.
func read(x *wire.Exchange) (*provider.Response, *provider.Error) {
	id := dialect.RequestID(x.Header)
	if x.Status < 200 || x.Status > 299 {
		fail, doc := dialect.StatusError(x)
		fail.RequestID, fail.SendsUsed = id, sendsUsed(doc)
		return nil, fail
	}
	resp, fail := dialect.Reader{Document: answer}.Read(x, false)
	if resp != nil {
		resp.Phases, resp.Bytes = x.Finish(), x.Bytes
	}
	return resp, fail
}

// envelope is the body of a task: what it is, and the rendered request byte for byte.
func envelope(r provider.Request) ([]byte, error) {
	if _, err := delta.Parse(r.Body); err != nil {
		return nil, dialect.ErrBody
	}
	head, err := json.Marshal(struct {
		TaskID  string `json:"task_id"`
		Key     string `json:"key"`
		Tenant  string `json:"tenant"`
		Kind    string `json:"kind"`
		Run     int    `json:"run"`
		Attempt int    `json:"attempt"`
		Number  int    `json:"number"`
		Budget  int    `json:"budget_remaining"`
	}{r.TaskID, r.Key, r.Tenant, r.Kind, r.Run, r.Attempt, r.Number, r.BudgetRemaining})
	if err != nil {
		return nil, fmt.Errorf("write the task: %w", err)
	}
	out := append(head[:len(head)-1], `,"input":`...)
	return append(append(out, r.Body...), '}'), nil
}

// send is a request with the headers of a task, signed.
func (s *Service) send(r provider.Request, method string, u *url.URL, body []byte) (wire.Send, *provider.Error) {
	r.Stream = false
	header, secrets := s.at.Header(r)
	header.Set("Onefold-Tenant", r.Tenant)
	header.Set("Onefold-Kind", r.Kind)
	header.Set("Onefold-Number", strconv.Itoa(r.Number))
	header.Set("Onefold-Budget-Remaining", strconv.Itoa(r.BudgetRemaining))
	if s.secrets != nil {
		keys := s.secrets()
		if err := sign(header, keys, r.TaskID+"."+strconv.Itoa(r.Number), time.Now(), body); err != nil {
			f := provider.New(provider.CodeConnectFailed, err.Error())
			return wire.Send{}, f
		}
		secrets = append(secrets, keys...)
	}
	return wire.Send{Method: method, URL: u, Header: header, Body: body, Timeouts: r.Timeouts, Secrets: secrets}, nil
}
