package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
)

type listParams struct {
	State         []string          `query:"state,explode" enum:"pending,running,succeeded,failed,unknown,cancelled" doc:"Only tasks in these states."`
	Kind          string            `query:"kind" maxLength:"255" doc:"Only tasks of this kind."`
	Key           string            `query:"key" maxLength:"255" doc:"Only tasks under this key; needs kind."`
	Metadata      map[string]string `query:"metadata,deepObject" doc:"Only tasks with this metadata: metadata[name]=value."`
	Trace         string            `query:"trace" pattern:"^[0-9a-f]{32}$" doc:"Only tasks submitted under this trace id."`
	Batch         string            `query:"batch" maxLength:"36" doc:"Only tasks made by lines of this batch."`
	InputHash     string            `query:"input_hash" pattern:"^[0-9a-f]{64}$" doc:"Only tasks with this input_hash."`
	CreatedAfter  time.Time         `query:"created_after" doc:"Only tasks created at this time or after it (RFC 3339)."`
	CreatedBefore time.Time         `query:"created_before" doc:"Only tasks created before this time (RFC 3339)."`
	Limit         int               `query:"limit" minimum:"1" maximum:"200" default:"50" doc:"Tasks a page."`
	Cursor        string            `query:"cursor" maxLength:"100" doc:"The next of the page before, with the same filters."`
}

func (s *Server) list(ctx context.Context, x *exchange, in *listParams) (*answer, error) {
	f, err := in.filter(x.who.Tenant)
	if err != nil {
		return nil, err
	}
	mark := in.mark(x.who.Tenant)
	if f.Before, err = readCursor(in.Cursor, mark); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*readTimeout)
	defer cancel()
	rows, last, err := store.Tasks(ctx, s.DB, f, in.Limit)
	if err != nil {
		return nil, err
	}
	body := []byte(`{"items":[`)
	for i, r := range rows {
		if i > 0 {
			body = append(body, ',')
		}
		if body, err = wire(r).Append(body); err != nil {
			return nil, err
		}
	}
	body = append(body, `],"next":`...)
	next := []byte("null")
	if last != nil {
		if next, err = json.Marshal(writeCursor(*last, mark)); err != nil {
			return nil, fmt.Errorf("encode cursor: %w", err)
		}
	}
	return &answer{status: http.StatusOK, body: append(append(body, next...), "}\n"...)}, nil
}

func (p *listParams) filter(tenant string) (store.TaskFilter, error) {
	f := store.TaskFilter{Tenant: tenant, Kind: p.Kind, Key: p.Key, TraceID: p.Trace, Metadata: p.Metadata}
	for _, state := range p.State {
		f.States = append(f.States, api.State(state))
	}
	for name, text := range map[string]string{"kind": p.Kind, "key": p.Key} {
		if !storable(text) {
			return f, api.Errorf(api.CodeInvalidParam, "%s holds characters that no %s has", name, name).WithField(name)
		}
	}
	for name, value := range p.Metadata {
		if !storable(name) || !storable(value) || len(name)+len(value) > 2000 || len(p.Metadata) > 20 {
			return f, api.Errorf(api.CodeInvalidParam, "metadata is not up to 20 names and values of text").WithField("metadata")
		}
	}
	if p.Key != "" && p.Kind == "" {
		return f, api.Errorf(api.CodeInvalidParam, "key needs kind: one key may stand for a task of each kind").WithField("kind")
	}
	if p.Batch != "" {
		id, err := task.ParseID(p.Batch)
		if err != nil {
			return f, api.Errorf(api.CodeInvalidParam, "batch is not a batch's id").WithField("batch")
		}
		f.Batch = &id
	}
	if p.InputHash != "" {
		f.InputHash, _ = hex.DecodeString(p.InputHash) // its grammar was checked
	}
	if !p.CreatedAfter.IsZero() {
		f.CreatedAfter = &p.CreatedAfter
	}
	if !p.CreatedBefore.IsZero() {
		f.CreatedBefore = &p.CreatedBefore
	}
	return f, nil
}

// mark ties a cursor to what it is a place in: the tenant and the filters.
func (p *listParams) mark(tenant string) []byte {
	what := *p
	what.Limit, what.Cursor = 0, ""
	b, err := json.Marshal(struct {
		Tenant string
		listParams
	}{tenant, what})
	if err != nil {
		panic(err) // texts and times only
	}
	sum := sha256.Sum256(b)
	return sum[:8]
}

var cursorGrammar = regexp.MustCompile(`^[A-Za-z0-9_-]{64}$`)

// writeCursor is the place after a task, with a sum that shows whether it was
// changed or belongs to another list. It is no secret: a cursor gives access to
// nothing, for the tenant comes from the API key.
func writeCursor(last task.ID, mark []byte) string {
	b := append(append([]byte{}, last[:]...), mark...)
	sum := sha256.Sum256(b)
	return base64.RawURLEncoding.EncodeToString(append(b, sum[:24]...))
}

func readCursor(text string, mark []byte) (*task.ID, error) {
	if text == "" {
		return nil, nil
	}
	bad := api.Errorf(api.CodeInvalidParam, "the cursor is not one of this list").WithField("cursor").
		WithFix("Send next of the page before as it was, with the same filters and API key; or begin again without a cursor.")
	if !cursorGrammar.MatchString(text) {
		return nil, bad
	}
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(b) != 48 {
		return nil, bad
	}
	sum := sha256.Sum256(b[:24])
	if !bytes.Equal(sum[:24], b[24:]) || !bytes.Equal(b[16:24], mark) {
		return nil, bad
	}
	id := task.ID(b[:16])
	return &id, nil
}

// effects lists what became of a task's side effects.
func (s *Server) effects(ctx context.Context, x *exchange, in *ByID) (*answer, error) {
	id, err := s.which(ctx, x, *in)
	if err != nil {
		return nil, err
	}
	if _, err := s.find(ctx, x.who.Tenant, id, 0); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	rows, err := store.EffectsOfTask(ctx, s.DB, x.who.Tenant, id)
	if err != nil {
		return nil, err
	}
	tries, err := store.DeliveriesOfTask(ctx, s.DB, x.who.Tenant, id)
	if err != nil {
		return nil, err
	}
	of := map[task.ID][]api.Delivery{}
	for _, d := range tries {
		of[d.EffectID] = append(of[d.EffectID], wireDelivery(d))
	}
	page := api.List[api.Effect]{Items: make([]api.Effect, len(rows))}
	for i, e := range rows {
		page.Items[i] = wireEffect(e)
		page.Items[i].Deliveries = of[e.ID]
	}
	return jsonAnswer(http.StatusOK, page)
}
