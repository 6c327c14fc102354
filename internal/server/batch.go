package server

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/batch"
	"github.com/onefold-dev/onefold/internal/canon"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/task"
	"github.com/onefold-dev/onefold/internal/telemetry"
)

// BatchByID are the parameters of routes about one batch; exported as ByID is.
type BatchByID struct {
	ID string `path:"id" doc:"The batch's id, as the upload returned it."`
}

func (p BatchByID) batch() (task.ID, error) {
	id, err := uuid.Parse(p.ID)
	if err != nil || len(p.ID) != 36 {
		return task.ID{}, noBatch()
	}
	return id, nil
}

func noBatch() error { return api.Errorf(api.CodeNotFound, "there is no such batch") }

type uploadParams struct {
	Kind        string `query:"kind" maxLength:"255" doc:"The kind of lines in OpenAI's form; llm.chat when absent." example:"llm.chat"`
	Webhook     string `query:"webhook" maxLength:"255" doc:"A destination that is told when the batch ends."`
	Deadline    string `query:"deadline" maxLength:"32" doc:"How long the batch may take from its start; then what has not run expires. 24h when absent." example:"24h"`
	Traceparent string `header:"traceparent" doc:"W3C trace context; its trace id is kept with the tasks."`
}

func (s *Server) upload(ctx context.Context, x *exchange, in *uploadParams) (*answer, error) {
	key, sent, err := canon.Key(x.r.Header)
	if err == nil && !sent {
		err = canon.MissingKey()
	}
	if err != nil {
		return nil, keyError(err)
	}
	x.line.Add(slog.String(telemetry.KeyKey, key))
	o := batch.Options{Kind: in.Kind, Webhook: in.Webhook}
	if in.Deadline != "" {
		if o.Deadline, err = time.ParseDuration(in.Deadline); err != nil || o.Deadline <= 0 {
			return nil, api.Errorf(api.CodeInvalidParam, "deadline is not a duration").WithField("deadline").WithFix(`Send deadline=24h, counted from when the batch starts.`)
		}
	}
	file, err := x.file()
	if err != nil {
		return nil, err
	}
	b, created, err := s.Batches.Upload(ctx, batch.Upload{Tenant: x.who.Tenant, Key: key, Options: o, TraceID: x.traceID, Traceparent: x.traceparent, Body: file.reader})
	x.line.Add(slog.Int64("bytes_in", file.src.n))
	if err != nil {
		return nil, file.refusal(err)
	}
	x.line.Add(slog.String("batch_id", b.ID.String()), slog.Bool("created", created), slog.Int("lines", int(b.Lines)))
	w, err := s.Batches.Wire(ctx, b)
	if err != nil {
		return nil, err
	}
	w.Created = &created
	status := http.StatusOK
	if created {
		status = http.StatusAccepted
	}
	a, err := jsonAnswer(status, w)
	if err != nil {
		return nil, err
	}
	if created {
		a.set("Location", "/v1/batches/"+w.ID)
	} else {
		a.set("Idempotent-Replayed", "true")
		x.line.Add(slog.Bool("replayed", true))
	}
	hintBatch(a, w)
	return a, nil
}

// hintBatch says when to ask again about a batch that has not ended.
func hintBatch(a *answer, b *api.Batch) {
	if !b.State.Ended() {
		a.retryAfter(min(time.Second+time.Duration(b.Lines)*time.Millisecond/50, 10*time.Second))
	}
}

func (s *Server) batch(ctx context.Context, x *exchange, in *BatchByID) (*answer, error) {
	id, err := in.batch()
	if err != nil {
		return nil, err
	}
	x.line.Add(slog.String("batch_id", id.String()))
	b, err := s.Batches.Get(ctx, x.who.Tenant, id)
	if err != nil {
		return nil, err
	}
	return batchAnswer(b)
}

func batchAnswer(b *api.Batch) (*answer, error) {
	a, err := jsonAnswer(http.StatusOK, b)
	if err != nil {
		return nil, err
	}
	hintBatch(a, b)
	return a, nil
}

type batchesParams struct {
	Key    string `query:"key" maxLength:"255" doc:"Only the batch under this key."`
	Limit  int    `query:"limit" minimum:"1" maximum:"50" default:"20" doc:"Batches a page."`
	Cursor string `query:"cursor" maxLength:"100" doc:"The next of the page before, with the same filters."`
}

func (s *Server) batches(ctx context.Context, x *exchange, in *batchesParams) (*answer, error) {
	if !storable(in.Key) {
		return nil, api.Errorf(api.CodeInvalidParam, "key holds characters that no key has").WithField("key")
	}
	mark := (&listParams{Key: in.Key, Kind: "batches"}).mark(x.who.Tenant)
	before, err := readCursor(in.Cursor, mark)
	if err != nil {
		return nil, err
	}
	items, last, err := s.Batches.List(ctx, x.who.Tenant, in.Key, before, in.Limit)
	if err != nil {
		return nil, err
	}
	page := api.List[*api.Batch]{Items: items}
	if last != nil {
		next := writeCursor(*last, mark)
		page.Next = &next
	}
	return jsonAnswer(http.StatusOK, page)
}

type resultsParams struct {
	BatchByID
	Order string `query:"order" enum:"input,finished" default:"input" doc:"input: as the lines stand in the file, up to the first that has not settled. finished: as they settled."`
	After int    `query:"after" minimum:"0" maximum:"2147483647" doc:"Where to go on: the line of the last result had already, with order=finished its place (finished)."`
	Only  string `query:"only" enum:"succeeded,errors" doc:"Only lines that succeeded, or only the others."`
}

func (s *Server) results(ctx context.Context, x *exchange, in *resultsParams) (*answer, error) {
	id, err := in.batch()
	if err != nil {
		return nil, err
	}
	x.line.Add(slog.String("batch_id", id.String()))
	rctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	b, err := store.BatchByID(rctx, s.DB, x.who.Tenant, id)
	switch {
	case err != nil:
		return nil, err
	case b == nil || b.ExpiresAt != nil && !b.ExpiresAt.After(b.Now):
		return nil, noBatch()
	case b.State == api.BatchStaging:
		return nil, api.Errorf(api.CodeConflict, "the batch is still being uploaded").WithRetryAfter(time.Second)
	}
	want := batch.Want{Order: api.BatchOrder(in.Order), After: int32(in.After), Only: in.Only}
	a := &answer{status: http.StatusOK, stream: func(w *stream) error { return s.Batches.Results(ctx, b, want, w) }}
	a.set("Content-Type", jsonlType)
	return a, nil
}

func (s *Server) cancelBatch(ctx context.Context, x *exchange, in *BatchByID) (*answer, error) {
	a, err := x.batchAct(in, "reason")
	if err != nil {
		return nil, err
	}
	b, err := s.Batches.Cancel(ctx, a)
	if err != nil {
		return nil, err
	}
	return batchAnswer(b)
}

func (s *Server) retryBatch(ctx context.Context, x *exchange, in *BatchByID) (*answer, error) {
	a, err := x.batchAct(in, "run", "reason")
	if err != nil {
		return nil, err
	}
	b, err := s.Batches.Retry(ctx, a)
	if err != nil {
		return nil, err
	}
	return batchAnswer(b)
}

func (x *exchange) batchAct(in *BatchByID, known ...string) (batch.Act, error) {
	id, err := in.batch()
	if err != nil {
		return batch.Act{}, err
	}
	x.line.Add(slog.String("batch_id", id.String()))
	f, err := x.fields(known...)
	a := batch.Act{Tenant: x.who.Tenant, ID: id, Run: f.run, Reason: f.reason, Actor: x.who.Actor(), RequestID: x.id}
	return a, err
}

// run reads the run of a batch out of an act's body.
func run(v []byte) (*int32, error) {
	n, err := strconv.ParseInt(string(v), 10, 32)
	if err != nil || n < 1 {
		return nil, api.Errorf(api.CodeInvalidField, "run is not a whole number from 1").WithField("run")
	}
	r := int32(n)
	return &r, nil
}
