package casetest

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"
)

// A Submit is one request of a case whose input has the type submit.
type Submit struct {
	// Keys holds the value of each key header line, raw bytes included; empty
	// means that the header is absent.
	Keys []string
	// HeaderName is the spelling of the header's name on the wire.
	HeaderName string
	// Input is the request's input. When it is one JSON value it is posted as
	// {"kind":"llm.chat","input":INPUT}, else as it is: see Body.
	Input []byte
	// Headers are further headers, such as Content-Encoding; a Content-Encoding
	// or a charset applies to Input itself, which is then the whole body.
	Headers map[string]string
	// Credential names the tenant that sends it, "" for any.
	Credential string
	// Path is where it is posted, /v1/tasks unless the case says otherwise.
	Path string
	// Fault names what goes wrong around it: db_down_first_request,
	// drop_reply_after_commit, or "".
	Fault string
}

// Body returns the bytes to post.
func (s Submit) Body() []byte {
	if len(s.Headers) > 0 || s.Path != "/v1/tasks" || !json.Valid(s.Input) {
		return s.Input
	}
	return slices.Concat([]byte(`{"kind":"llm.chat","input":`), s.Input, []byte("}"))
}

// Header returns the key lines and the further headers as net/http would hand
// them to a handler, except that it trims nothing.
func (s Submit) Header() http.Header {
	h := http.Header{}
	for _, key := range s.Keys {
		h.Add(s.HeaderName, key)
	}
	for name, value := range s.Headers {
		h.Set(name, value)
	}
	return h
}

// SubmitAnswer is what a case of type submit expects.
type SubmitAnswer struct {
	Statuses      []int  `json:"statuses"`
	TasksCreated  *int   `json:"tasks_created"`
	SameTaskID    bool   `json:"same_task_id"`
	SecondStatus  int    `json:"second_status"`
	UpstreamCalls *int   `json:"upstream_calls"`
	LatencyMsMax  int    `json:"latency_ms_max"`
	AllocMBMax    int    `json:"alloc_mb_max"`
	Note          string `json:"note"`
}

// Submits decodes the requests of a case of type submit.
func Submits(tb testing.TB, c Case) []Submit {
	tb.Helper()
	submits, err := submits(c)
	if err != nil {
		tb.Fatalf("%s: %v", c.ID, err)
	}
	return submits
}

func submits(c Case) ([]Submit, error) {
	var input struct {
		Type     string        `json:"type"`
		Requests []wireRequest `json:"requests"`
	}
	if err := decodeStrict(c.Input, &input); err != nil {
		return nil, fmt.Errorf("decode input: %w", err)
	}
	if input.Type != "submit" {
		return nil, fmt.Errorf("input type is %q, not submit", input.Type)
	}
	out := make([]Submit, len(input.Requests))
	for i, r := range input.Requests {
		s, err := r.submit()
		if err != nil {
			return nil, fmt.Errorf("request %d: %w", i, err)
		}
		out[i] = s
	}
	return out, nil
}

// A wireRequest is a request as the file writes it.
type wireRequest struct {
	Key        json.RawMessage   `json:"idempotency_key"`
	Keys       []string          `json:"idempotency_keys"`
	KeyB64     string            `json:"idempotency_key_b64"`
	HeaderName string            `json:"header_name"`
	Body       json.RawMessage   `json:"body"`
	BodyB64    string            `json:"body_b64"`
	Headers    map[string]string `json:"headers"`
	Credential string            `json:"credential"`
	Path       string            `json:"path"`
	Fault      string            `json:"fault"`
}

func (r wireRequest) submit() (Submit, error) {
	s := Submit{
		Keys: r.Keys, HeaderName: r.HeaderName, Headers: r.Headers,
		Credential: r.Credential, Path: r.Path, Fault: r.Fault,
	}
	if s.HeaderName == "" {
		s.HeaderName = "Idempotency-Key"
	}
	if s.Path == "" {
		s.Path = "/v1/tasks"
	}
	if len(r.Key) > 0 {
		key, err := keyText(r.Key)
		if err != nil {
			return Submit{}, fmt.Errorf("decode key: %w", err)
		}
		s.Keys = append(s.Keys, key)
	}
	if r.KeyB64 != "" {
		key, err := Base64(r.KeyB64)
		if err != nil {
			return Submit{}, fmt.Errorf("decode key: %w", err)
		}
		s.Keys = append(s.Keys, string(key))
	}
	var err error
	if r.BodyB64 != "" {
		s.Input, err = Base64(r.BodyB64)
	} else {
		s.Input, err = Text(r.Body)
	}
	if err != nil {
		return Submit{}, fmt.Errorf("decode body: %w", err)
	}
	return s, nil
}

// keyText reads a key: a string, or {"random_hex": n}.
func keyText(raw json.RawMessage) (string, error) {
	if raw[0] == '"' {
		var key string
		err := json.Unmarshal(raw, &key)
		return key, err
	}
	var form struct {
		RandomHex int `json:"random_hex"`
	}
	if err := decodeStrict(raw, &form); err != nil {
		return "", err
	}
	digits := make([]byte, (form.RandomHex+1)/2)
	rand.Read(digits)
	return hex.EncodeToString(digits)[:form.RandomHex], nil
}
