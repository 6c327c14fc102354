package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/ingest"
)

// deliveryTimeout is how long the body of a webhook may take to arrive: senders have it ready, and give up themselves
// after 5 to 30 s.
const deliveryTimeout = 10 * time.Second

type ingestParams struct {
	Source string `path:"source" doc:"A name under sources: in onefold.yaml."`
}

// delivered is the answer to a genuine webhook.
type delivered struct {
	Status ingest.Status `json:"status" enum:"accepted,reopened,duplicate,mismatch" doc:"accepted: a new task. reopened: a failed task runs again. duplicate: it came before. mismatch: its key came before with another content, which stands."`
	TaskID string        `json:"task_id" doc:"The task that this event means."`
	State  api.State     `json:"state,omitempty" doc:"Where that task stands."`
}

// ingest takes one webhook. Nothing of its body is read before the source's door let it in.
func (s *Server) ingest(ctx context.Context, x *exchange, in *ingestParams) (*answer, error) {
	x.line.Add(slog.String("source", clip(in.Source, 64)))
	door, err := s.Ingest.Door(in.Source)
	if err != nil {
		return nil, err
	}
	leave, err := door.Admit()
	if err != nil {
		x.quiet = true // whoever floods us does not get to flood the log
		return nil, err
	}
	defer leave()
	for _, v := range x.r.Header.Values("Content-Encoding") {
		if v = strings.TrimSpace(v); v != "" && !strings.EqualFold(v, "identity") {
			return nil, api.Errorf(api.CodeEncoding, "a webhook with Content-Encoding is not taken").WithField("Content-Encoding")
		}
	}
	body, err := x.read(int64(door.MaxBody), deliveryTimeout)
	if err != nil {
		return nil, err
	}
	got, err := s.Ingest.Deliver(ctx, door, ingest.Delivery{
		Header: x.r.Header, Body: body, RequestID: x.id, TraceID: x.traceID, Traceparent: x.traceparent, Client: s.client(x.r),
	})
	if err != nil {
		var e *api.Error
		x.quiet = errors.As(err, &e) && e.Code == api.CodeBadSignature
		return nil, err
	}
	x.line.Add(slog.String("ingested", string(got.Status)), slog.String("task_id", got.TaskID))
	status := http.StatusAccepted
	if got.Status == ingest.Duplicate || got.Status == ingest.Mismatch {
		status = door.DuplicateStatus
	}
	return jsonAnswer(status, delivered{Status: got.Status, TaskID: got.TaskID, State: got.State})
}

// client is the address a request came from, without its port.
func (s *Server) client(r *http.Request) string {
	host, _, ok := strings.Cut(r.RemoteAddr, "]")
	if ok {
		return strings.TrimPrefix(host, "[")
	}
	host, _, _ = strings.Cut(r.RemoteAddr, ":")
	return host
}
