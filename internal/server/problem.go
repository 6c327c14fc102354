package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/store"
)

const problemType = "application/problem+json"

// problem is an api.Error on the wire (RFC 9457). It never holds what the caller
// sent, names of fields apart.
type problem struct {
	Title     string         `json:"title" doc:"The status in words."`
	Status    int            `json:"status" doc:"The HTTP status."`
	Code      string         `json:"code" doc:"A stable word for the situation; see docs/errors.md. Programs decide by it."`
	Detail    string         `json:"detail" doc:"What is wrong, for people."`
	Fix       string         `json:"fix,omitempty" doc:"What to do about it."`
	Field     string         `json:"field,omitempty" doc:"The field, parameter or header at fault."`
	Line      int            `json:"line,omitempty" doc:"The line of a batch's file at fault."`
	FirstLine int            `json:"first_line,omitempty" doc:"With duplicate_custom_id: the line that has the id, too."`
	Mismatch  *[]string      `json:"mismatch,omitempty" doc:"With key_reused: the fields that differ from the first payload; null when that is not kept any more."`
	Quota     api.Quota      `json:"quota,omitempty" enum:"requests_per_second,queued" doc:"With over_quota: which quota of the tenant."`
	TaskID    string         `json:"task_id,omitempty" doc:"The task concerned."`
	RequestID string         `json:"request_id" doc:"To be quoted when asking for help."`
	Tombstone *api.Tombstone `json:"tombstone,omitempty" doc:"With expired: what is still known of the task."`
}

// expired is the error for a task past its retention.
func expired(t api.Tombstone) error {
	e := api.Errorf(api.CodeExpired, "the task %s and is past its retention", was(t.State))
	e.Tombstone = &t
	return e
}

func was(s api.State) string {
	if s == api.Cancelled {
		return "was cancelled"
	}
	return string(s)
}

// fail answers with err.
func (s *Server) fail(x *exchange, err error) {
	h := x.w.Header()
	if x.r.Context().Err() != nil && errors.Is(err, context.Canceled) {
		panic(http.ErrAbortHandler) // the caller is gone; finish notes it
	}
	p, after := s.problem(x, err)
	body, jerr := json.Marshal(p)
	if jerr != nil {
		panic(jerr) // texts and numbers only
	}
	h.Set("Content-Type", problemType)
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if after > 0 {
		h.Set("Retry-After", seconds(after))
	}
	if p.Status == http.StatusUnauthorized && p.Code != string(api.CodeBadSignature) {
		h.Set("WWW-Authenticate", `Bearer realm="onefold"`)
	}
	x.w.WriteHeader(p.Status)
	_, _ = x.w.Write(body)
}

// problem is the document for err, and after what time to try again.
func (s *Server) problem(x *exchange, err error) (*problem, time.Duration) {
	e := s.caller(x, err)
	p := &problem{
		Title: http.StatusText(e.Status), Status: e.Status, Code: string(e.Code), Detail: e.Message, Fix: e.Fix, Field: e.Field,
		Line: e.Line, FirstLine: e.FirstLine, Quota: e.Quota, TaskID: e.TaskID, RequestID: x.id, Tombstone: e.Tombstone,
	}
	if e.Mismatch != nil || e.Code == api.CodeKeyReused {
		p.Mismatch = &e.Mismatch
	}
	x.line.Add(slog.String("code", p.Code))
	return p, e.RetryAfter
}

// caller is err as the caller may see it. What has no code is logged in full
// and told as internal; what the database's absence explains is told as that.
func (s *Server) caller(x *exchange, err error) *api.Error {
	var e *api.Error
	if errors.As(err, &e) {
		if row, ok := api.Codes[e.Code]; ok && row.Status != 0 {
			c := *e
			c.Status = row.Status
			if c.Fix == "" {
				c.Fix = row.Fix
			}
			return &c
		}
		err = fmt.Errorf("code %s has no status: %w", e.Code, err)
	}
	x.line.Fail(err)
	if away(err) {
		return api.Errorf(api.CodeUnavailable, "the database cannot be reached").WithRetryAfter(2 * time.Second)
	}
	return api.Errorf(api.CodeInternal, "an internal error happened; the log has it under this request's id")
}

// away says whether err comes from the database being away or too busy, or
// rolling back for a conflict.
func away(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return store.Away(err) || store.Retryable(err)
	}
	var connect *pgconn.ConnectError
	var network net.Error
	return errors.As(err, &connect) || errors.As(err, &network) || pgconn.SafeToRetry(err) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed)
}

// seconds writes a Retry-After: whole seconds, rounded up, at least one.
func seconds(d time.Duration) string { return strconv.Itoa(wholeSeconds(d)) }

func wholeSeconds(d time.Duration) int { return max(int(math.Ceil(d.Seconds())), 1) }

// The methods that make a problem an error of huma's.
func (p *problem) Error() string  { return p.Code + ": " + p.Detail }
func (p *problem) GetStatus() int { return p.Status }

// ContentType is the media type huma writes it under.
func (p *problem) ContentType(string) string { return problemType }

// hookErrors makes huma's own refusals, which are about parameters, problems of
// ours. huma keeps the makers of errors in package variables; they are set once,
// before the first route.
var hookErrors = sync.OnceFunc(func() {
	huma.NewError = func(status int, msg string, errs ...error) huma.StatusError {
		return refusedParams("", status, msg, errs)
	}
	huma.NewErrorWithContext = func(ctx huma.Context, status int, msg string, errs ...error) huma.StatusError {
		x := exchangeFrom(ctx.Context())
		p := refusedParams(x.id, status, msg, errs)
		x.line.Add(slog.String("code", p.Code))
		return p
	}
})

// refusedParams names the parameter at fault and what is wrong, not its value.
func refusedParams(requestID string, status int, msg string, errs []error) *problem {
	e := api.Errorf(api.CodeInvalidParam, "%s", msg)
	if status >= 500 {
		e = api.Errorf(api.CodeInternal, "an internal error happened")
	}
	var d *huma.ErrorDetail
	if len(errs) > 0 && errors.As(errs[0], &d) {
		_, e.Field, _ = strings.Cut(d.Location, ".") // query.limit -> limit
		e.Field = clip(strconv.QuoteToASCII(e.Field)[1:], 64)
		e.Field = strings.TrimSuffix(e.Field, `"`)
		e.Message = e.Field + ": " + d.Message
	}
	return &problem{
		Title: http.StatusText(e.Status), Status: e.Status, Code: string(e.Code), Detail: e.Message, Fix: e.Fix, Field: e.Field, RequestID: requestID,
	}
}
