package server

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
	"github.com/onefold-dev/onefold/internal/telemetry"
)

// ByID are the parameters of routes about one task. It is exported because huma
// looks into exported fields only, embedded ones too.
type ByID struct {
	ID   string `path:"id" doc:"The task's id, as the submit returned it; or by-key, with kind and key in the query: the newest task under the key."`
	Kind string `query:"kind" maxLength:"255" doc:"With the id by-key: the task's kind."`
	Key  string `query:"key" maxLength:"255" doc:"With the id by-key: the task's key."`
}

// byKey stands in the place of an id where the task is named by kind and key.
const byKey = "by-key"

// which is the id asked for. What is no id is answered like an id that nobody
// has: to a caller ids are opaque.
func (s *Server) which(ctx context.Context, x *exchange, p ByID) (task.ID, error) {
	if p.ID == byKey {
		return s.newest(ctx, x, p)
	}
	if p.Kind != "" || p.Key != "" {
		return task.ID{}, api.Errorf(api.CodeInvalidParam, "kind and key go with the id by-key").WithField("key").
			WithFix("Ask for /v1/tasks/by-key?kind=K&key=KEY, or leave kind and key out.")
	}
	id, err := uuid.Parse(p.ID)
	if err != nil || len(p.ID) != 36 {
		return task.ID{}, noTask()
	}
	x.line.Add(slog.String(telemetry.KeyTaskID, id.String()))
	return id, nil
}

func (s *Server) newest(ctx context.Context, x *exchange, p ByID) (task.ID, error) {
	if p.Kind == "" || p.Key == "" || !storable(p.Kind) || !storable(p.Key) {
		return task.ID{}, api.Errorf(api.CodeInvalidParam, "by-key needs kind and key").WithField("key")
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	id, err := store.NewestByKey(ctx, s.DB, x.who.Tenant, p.Kind, p.Key)
	if err != nil {
		return task.ID{}, err
	}
	if id == nil {
		return task.ID{}, noTask()
	}
	x.line.Add(slog.String(telemetry.KeyTaskID, id.String()))
	return *id, nil
}

func noTask() error { return api.Errorf(api.CodeNotFound, "there is no such task") }

// Waiting is the parameter that holds an answer; exported as ByID is.
type Waiting struct {
	Wait string `query:"wait" doc:"Hold the answer until the task has settled, at most this long: \"30s\" or \"30\", up to 60 s." example:"30s"`
}

func (p Waiting) duration() (time.Duration, error) {
	if p.Wait == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(p.Wait)
	if err != nil {
		if n, nerr := strconv.ParseUint(p.Wait, 10, 16); nerr == nil {
			d, err = time.Duration(n)*time.Second, nil
		}
	}
	if err != nil || d < 0 || d > maxWait {
		return 0, api.Errorf(api.CodeInvalidParam, "wait is not a time from 0 to 60 s").WithField("wait").WithFix(`Send wait=30s; for longer waits ask again.`)
	}
	return d, nil
}

// preferred reads `Prefer: wait=N` (RFC 7240), in seconds. What is no such
// preference is ignored, as the standard says, and more than can be granted is
// granted as far as it can be.
func preferred(h http.Header) (time.Duration, bool) {
	for _, line := range h.Values("Prefer") {
		for pref := range strings.SplitSeq(line, ",") {
			pref, _, _ = strings.Cut(pref, ";")
			name, value, _ := strings.Cut(pref, "=")
			if !strings.EqualFold(strings.TrimSpace(name), "wait") {
				continue
			}
			n, err := strconv.ParseUint(strings.Trim(strings.TrimSpace(value), `"`), 10, 32)
			if err != nil {
				return 0, false
			}
			return min(time.Duration(n)*time.Second, maxWait), true
		}
	}
	return 0, false
}

// fresh says whether the caller's copy is still good: If-None-Match names tag.
// Weak comparison, as RFC 9110 asks for here.
func fresh(h http.Header, tag string) bool {
	tag = strings.TrimPrefix(tag, "W/")
	for _, line := range h.Values("If-None-Match") {
		for have := range strings.SplitSeq(line, ",") {
			have = strings.TrimPrefix(strings.TrimSpace(have), "W/")
			if have == tag || have == "*" {
				return true
			}
		}
	}
	return false
}
