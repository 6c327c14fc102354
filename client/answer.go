package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/onefold-dev/onefold/api"
)

// callError is what a call returns: what was being done, the typed error, and
// the cause, so that errors.Is(err, context.DeadlineExceeded) holds too.
type callError struct {
	op     string
	err    *api.Error
	causes []error
}

func (e *callError) Error() string   { return e.op + ": " + e.err.Error() }
func (e *callError) Unwrap() []error { return append([]error{e.err}, e.causes...) }

// final is the error of the last try, saying what is not known after all of them.
func (f *failure) final(r *request, tries int, unclear bool) error {
	err := *f.err
	if tries > 1 {
		err.Message += fmt.Sprintf(" (%d tries)", tries)
	}
	out := &callError{op: r.op, err: &err}
	if f.cause != nil {
		out.causes = append(out.causes, f.cause)
	}
	doubt := errors.Is(&err, api.ErrUnavailable) || errors.Is(&err, api.ErrRateLimited) || errors.Is(&err, api.ErrInternal)
	if r.method == http.MethodGet || r.reads || !unclear || !doubt {
		return out
	}
	switch {
	case r.op != opSubmit && r.op != opSubmitMany && r.op != opUpload:
		err.Message += "; whether it was done is not known"
		err.Fix = "Read the task: its state and epoch show whether it was done."
	case r.op == opUpload:
		err.Message += "; whether it was stored is not known"
		err.Fix = "Send the same file with the same key again: the server goes on where it stopped."
	case r.once:
		err.Message += "; whether it was stored is not known"
		err.Fix = "Look for the task with List before submitting again: without a key a second submit is a second task."
	default:
		err.Message += "; whether it was stored is not known"
		err.Fix = "Submit again with the same key and the same payload: that meets the task if it was stored, and makes it if not."
	}
	out.causes = append(out.causes, api.ErrUnavailable)
	return out
}

// refused makes a failure of an answer that is not 2xx.
func refused(resp *http.Response, body []byte) *failure {
	f := &failure{err: problem(resp, body)}
	f.err.RetryAfter = retryAfter(resp.Header, time.Now())
	switch resp.StatusCode {
	case http.StatusTooManyRequests:
		f.transient = true
	case http.StatusConflict: // says by itself when it is over: an upload beside another one
		f.transient = f.err.RetryAfter > 0
	case http.StatusRequestTimeout, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		f.transient = true
		f.unclear = f.err.Code != api.CodeHeld && f.err.Code != api.CodeRequestTimeout
	default:
		f.unclear = resp.StatusCode >= http.StatusInternalServerError
	}
	return f
}

// problem rebuilds the server's error. What is not a problem document comes
// from something in between: its status then says little about the task, so a
// proxy's 404 never becomes ErrNotFound.
func problem(resp *http.Response, body []byte) *api.Error {
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	var e api.Error
	if media == "application/problem+json" && json.Unmarshal(body, &e) == nil && e.Code != "" {
		e.Status = resp.StatusCode
		if e.RequestID == "" {
			e.RequestID = resp.Header.Get("Request-Id")
		}
		return &e
	}
	host := resp.Request.URL.Host
	if to := resp.Header.Get("Location"); resp.StatusCode/100 == 3 && to != "" {
		return foreign(resp, api.CodeConnection, "%s redirects to %s, which is not followed: the API key would go along", host, place(resp, to)).
			WithFix("Use that address as the server's URL if it is the right one.")
	}
	code := api.CodeConnection
	switch resp.StatusCode {
	case http.StatusRequestEntityTooLarge:
		code = api.CodeTooLarge
	case http.StatusTooManyRequests:
		code = api.CodeRateLimited
	case http.StatusRequestTimeout, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		code = api.CodeUnavailable
	}
	e2 := foreign(resp, code, "%s answered %d with %s, which is not an answer of onefold%s", host, resp.StatusCode, kindOf(media), glimpse(media, body))
	if code == api.CodeConnection || code == api.CodeUnavailable {
		e2.Fix = "Check the server's URL and what stands between: a proxy or another server answered."
	}
	return e2
}

func foreign(resp *http.Response, code api.Code, format string, args ...any) *api.Error {
	e := api.Errorf(code, format, args...)
	e.Status = resp.StatusCode
	return e
}

func kindOf(media string) string {
	if media == "" {
		return "no content type"
	}
	return media
}

// glimpse is the start of a foreign answer's text, in one line, without markup.
func glimpse(media string, body []byte) string {
	if !strings.HasPrefix(media, "text/") {
		return ""
	}
	var b strings.Builder
	tag := false
	for _, r := range string(body[:min(len(body), 4096)]) {
		switch {
		case r == '<':
			tag = true
			b.WriteByte(' ')
		case r == '>' && tag:
			tag = false
		case !tag && (r == '\n' || r == '\t'):
			b.WriteByte(' ')
		case !tag && r >= 0x20 && r < 0x7F:
			b.WriteRune(r)
		}
	}
	s := strings.Join(strings.Fields(b.String()), " ")
	if s == "" {
		return ""
	}
	return fmt.Sprintf(": %.100q", s)
}

// place is where a redirect leads, without its query.
func place(resp *http.Response, to string) string {
	u, err := resp.Request.URL.Parse(to)
	if err != nil {
		return "another place"
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// decode reads a 2xx answer. Something else than onefold may answer 200 too.
func decode[T any](r *request, a *answer, v *T) error {
	if err := json.Unmarshal(a.body, v); err != nil {
		return notOurs(r, a, err)
	}
	return nil
}

// decodeTask reads an answer that is a task.
func decodeTask(r *request, a *answer) (*api.Task, error) {
	var t api.Task
	if err := decode(r, a, &t); err != nil {
		return nil, err
	}
	if t.ID == "" || t.State == "" {
		return nil, notOurs(r, a, errors.New("it has no id or state"))
	}
	t.ETag = a.header.Get("ETag")
	return &t, nil
}

func notOurs(r *request, a *answer, why error) error {
	e := api.Errorf(api.CodeConnection, "the answer with status %d is not an answer of onefold: %v", a.status, why).
		WithFix("Check the server's URL and what stands between: a proxy or another server answered.")
	e.Status = a.status
	f := &failure{err: e, cause: why}
	return f.final(r, 1, true)
}
