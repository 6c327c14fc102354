package server

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/telemetry"
)

const jsonType = "application/json"

// answer is what a handler returns: bytes, for what is stored must come out as
// it went in.
type answer struct {
	status int
	header http.Header
	body   []byte // JSON unless header says otherwise
	// stream writes the body bit by bit, in place of body.
	stream func(*stream) error
}

func (a *answer) set(name, value string) {
	if a.header == nil {
		a.header = http.Header{}
	}
	a.header.Set(name, value)
}

// handler serves one route. in holds the checked parameters.
type handler[I any] func(ctx context.Context, x *exchange, in *I) (*answer, error)

// output is the form huma takes an answer in that is written by us.
type output struct{ Body func(huma.Context) }

// serve registers a route.
func serve[I any](s *Server, op route, h handler[I]) {
	huma.Register(s.huma, op.describe(s), func(ctx context.Context, in *I) (*output, error) {
		x := exchangeFrom(ctx)
		a, err := h(ctx, x, in)
		return &output{Body: func(huma.Context) {
			if err != nil {
				s.fail(x, err)
				return
			}
			if a.stream != nil {
				s.stream(x, a)
				return
			}
			x.write(a)
		}}, nil
	})
	op.describeBody(s.huma.OpenAPI())
}

func (x *exchange) write(a *answer) {
	h := x.w.Header()
	h.Set("Content-Type", jsonType)
	h.Set("Cache-Control", "private, no-cache")
	for name, values := range a.header {
		h[name] = values
	}
	if a.status == http.StatusNotModified || a.status == http.StatusNoContent || a.status == http.StatusResetContent {
		h.Del("Content-Type")
		x.w.WriteHeader(a.status)
		return
	}
	h.Set("Content-Length", strconv.Itoa(len(a.body)))
	x.w.WriteHeader(a.status)
	if x.r.Method != http.MethodHead {
		_, _ = x.w.Write(a.body)
	}
}

// taskAnswer answers with a task.
func taskAnswer(status int, t *api.Task) (*answer, error) {
	body, err := t.Append(nil)
	if err != nil {
		return nil, err
	}
	return &answer{status: status, body: append(body, '\n')}, nil
}

// jsonAnswer answers with something that holds no verbatim parts.
func jsonAnswer(status int, v any) (*answer, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode answer: %w", err)
	}
	return &answer{status: status, body: append(body, '\n')}, nil
}

// about puts a task on the request's line in the log.
func (x *exchange) about(t *api.Task) {
	x.line.Add(slog.String(telemetry.KeyTaskID, t.ID), slog.String(telemetry.KeyKind, t.Kind), slog.String(telemetry.KeyKey, t.Key),
		slog.String("state", string(t.State)), slog.Int(telemetry.KeyRun, t.Run), slog.String(telemetry.KeyInputHash, t.InputHash))
}

// retryAfter tells when to ask again about a task that has not settled.
func (a *answer) retryAfter(d time.Duration) { a.set("Retry-After", seconds(d)) }
