package clienttest

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/batchfile"
	"github.com/onefold-dev/onefold/internal/canon"
	"github.com/onefold-dev/onefold/internal/submission"
)

// What the real server takes of a batch's deadline.
const (
	minBatch = time.Second
	maxBatch = 30 * 24 * time.Hour
)

func (s *Server) upload(r *http.Request) (*answer, error) {
	o, err := s.options(r)
	if err != nil {
		return nil, err
	}
	key, sent, err := canon.Key(r.Header)
	if err == nil && !sent {
		err = canon.MissingKey()
	}
	if err != nil {
		return nil, named(err)
	}
	in, err := unpack(r)
	if err != nil {
		return nil, err
	}
	b := &batch{asked: o, traceID: traceID(r), Batch: api.Batch{Key: key, Webhook: o.webhook}}
	s.mu.Lock()
	defer s.mu.Unlock()
	reader := batchfile.NewReader(in)
	old := s.byKey(key)
	if err := s.fill(b, reader, old != nil); err != nil {
		return nil, err
	}
	if old != nil {
		if err := old.same(o, b.file); err != nil {
			return nil, err
		}
		b = old
	} else {
		s.start(b)
	}
	created := old == nil
	w := s.view(b)
	w.Created = &created
	status := http.StatusOK
	if created {
		status = http.StatusAccepted
	}
	a, err := batchAnswer(status, w)
	switch {
	case err != nil:
		return nil, err
	case created:
		a.header.Set("Location", "/v1/batches/"+b.ID)
	default:
		a.header.Set("Idempotent-Replayed", "true")
	}
	return a, nil
}

func (s *Server) options(r *http.Request) (o options, err error) {
	q, err := params(r, "kind", "webhook", "deadline")
	if err != nil {
		return o, err
	}
	o = options{kind: q.Get("kind"), webhook: q.Get("webhook"), deadline: defaultDeadline}
	if _, ok := s.kinds[o.kind]; o.kind != "" && !ok {
		return o, unknownKind(o.kind)
	}
	if o.kind == "" {
		o.kind = "llm.chat" // there need be none of that name unless the lines ask for it
	}
	if text := q.Get("deadline"); text != "" {
		if o.deadline, err = time.ParseDuration(text); err != nil || o.deadline < minBatch || o.deadline > maxBatch {
			return o, api.Errorf(api.CodeInvalidParam, "deadline is not a time from %s to %s", minBatch, maxBatch).WithField("deadline")
		}
	}
	return o, nil
}

func unknownKind(name string) error {
	return api.Errorf(api.CodeUnknownKind, "there is no kind %q", submission.Printable(name)).WithField("kind")
}

// unpack opens a body of lines.
func unpack(r *http.Request) (io.Reader, error) {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != "application/jsonl" && media != "application/x-ndjson" {
		return nil, api.Errorf(api.CodeMediaType, "the body is not declared as application/jsonl").WithField("Content-Type")
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, api.Errorf(api.CodeRequestTimeout, "the body was cut off")
	}
	switch r.Header.Get("Content-Encoding") {
	case "", "identity":
		return bytes.NewReader(body), nil
	case "gzip", "x-gzip":
	default:
		return nil, api.Errorf(api.CodeEncoding, "a file may be compressed with gzip only").WithField("Content-Encoding")
	}
	if len(body) == 0 {
		return bytes.NewReader(nil), nil
	}
	z, err := gzip.NewReader(bytes.NewReader(body))
	if err == nil {
		body, err = io.ReadAll(io.LimitReader(z, api.MaxBatchBytes+1))
	}
	if err != nil {
		return nil, api.Errorf(api.CodeEncoding, "the gzip data is damaged or cut off").WithField("Content-Encoding")
	}
	return bytes.NewReader(body), nil
}

// fill reads a file into b. Of one that only is compared no line is judged. s.mu
// is held.
func (s *Server) fill(b *batch, in *batchfile.Reader, compare bool) error {
	form := batchfile.Form{BatchKey: b.Key, Kind: b.asked.kind}
	type name struct{ id, kind string }
	first := map[name]int{}
	var twice error
	for {
		text, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if compare {
			continue
		}
		if form.Name == "" {
			form.Name, _ = batchfile.FormOf(text.Text)
			if _, ok := s.kinds[form.Kind]; form.Name == api.FormOpenAI && !ok {
				return unknownKind(form.Kind)
			}
		}
		l, err := s.read(b, form, text)
		if err != nil {
			return err
		}
		n := name{l.id, l.kind}
		if at := first[n]; at != 0 && l.id != "" && twice == nil {
			twice = sameID(l, form.Name, at)
		}
		first[n] = l.number
		b.lines = append(b.lines, l)
	}
	if twice != nil {
		return twice
	}
	if in.Lines() == 0 {
		return api.Errorf(api.CodeEmptyBatch, "the file holds no line")
	}
	if b.Form = form.Name; b.Form == "" {
		b.Form = api.FormOnefold
	}
	if b.Form == api.FormOpenAI {
		b.Kind = b.asked.kind
	}
	b.file, b.Bytes = in.Prefix(), in.Bytes()
	return nil
}

func sameID(l *line, form api.BatchForm, first int) error {
	field := "key"
	if form == api.FormOpenAI {
		field = "custom_id"
	}
	e := api.Errorf(api.CodeDuplicateID, "line %d has the %s of line %d", l.number, field, first).WithLine(l.number).WithField(field)
	e.FirstLine = first
	return e
}

// read reads one line; an error refuses the file.
func (s *Server) read(b *batch, form batchfile.Form, text batchfile.Line) (*line, error) {
	id, want, bad, err := form.Read(batchfile.Line{Number: text.Number, Text: bytes.Clone(text.Text), Ended: text.Ended})
	if err != nil {
		return nil, err
	}
	l := &line{number: text.Number, id: id, state: lineOpen, want: want}
	if bad == nil {
		t, _, err := s.judge(wanted{body: want.Body, key: want.Key, sent: !want.Keyed, keyed: want.Keyed})
		if err != nil {
			bad = asError(err)
		} else {
			l.kind = t.Kind
		}
	}
	if bad != nil {
		l.state, l.bad = lineInvalid, bad
	}
	return l, nil
}

func asError(err error) *api.Error {
	var e *api.Error
	if !errors.As(err, &e) {
		e = api.Errorf(api.CodeInternal, "%v", err)
	}
	return e
}

func batchAnswer(status int, w *api.Batch) (*answer, error) {
	body, err := json.Marshal(w)
	if err != nil {
		return nil, err
	}
	a := &answer{status: status, header: http.Header{}, body: append(body, '\n')}
	if !w.State.Ended() {
		a.header.Set("Retry-After", "1")
	}
	return a, nil
}

// onBatch finds the batch that a request is about and answers with it after f.
func (s *Server) onBatch(r *http.Request, f func(b *batch) error) (*answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.batches {
		if b.ID != r.PathValue("id") {
			continue
		}
		if err := f(b); err != nil {
			return nil, err
		}
		return batchAnswer(http.StatusOK, s.view(b))
	}
	return nil, api.Errorf(api.CodeNotFound, "there is no such batch")
}

func (s *Server) getBatch(r *http.Request) (*answer, error) {
	if _, err := params(r); err != nil {
		return nil, err
	}
	return s.onBatch(r, func(*batch) error { return nil })
}

func (s *Server) cancelBatch(r *http.Request) (*answer, error) {
	if _, err := wishes(r, "reason"); err != nil {
		return nil, err
	}
	return s.onBatch(r, s.halt)
}

func (s *Server) retryBatch(r *http.Request) (*answer, error) {
	w, err := wishes(r, "run", "reason")
	if err != nil {
		return nil, err
	}
	return s.onBatch(r, func(b *batch) error { return s.runAgain(b, w.run) })
}

func (s *Server) listBatches(r *http.Request) (*answer, error) {
	q, err := params(r, "key", "limit", "cursor")
	if err != nil {
		return nil, err
	}
	limit, err := number(q.Get("limit"), "limit", 20, 1, 50)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	page, open := api.List[*api.Batch]{Items: []*api.Batch{}}, q.Get("cursor") == ""
	for i := len(s.batches) - 1; i >= 0; i-- {
		b := s.batches[i]
		if key := q.Get("key"); open && (key == "" || key == b.Key) {
			page.Items = append(page.Items, s.view(b))
		}
		if open = open || b.ID == q.Get("cursor"); len(page.Items) == limit {
			page.Next = &b.ID
			break
		}
	}
	if !open {
		return nil, api.Errorf(api.CodeInvalidParam, "the cursor is not one of this list").WithField("cursor")
	}
	body, err := json.Marshal(page)
	if err != nil {
		return nil, err
	}
	return &answer{status: http.StatusOK, header: http.Header{}, body: append(body, '\n')}, nil
}

func (s *Server) results(r *http.Request) (*answer, error) {
	q, err := params(r, "order", "after", "only")
	if err != nil {
		return nil, err
	}
	after, err := number(q.Get("after"), "after", 0, 0, 1<<31-1)
	if err != nil {
		return nil, err
	}
	order := api.BatchOrder(q.Get("order"))
	if order == "" {
		order = api.OrderInput
	}
	if order != api.OrderInput && order != api.OrderFinished {
		return nil, api.Errorf(api.CodeInvalidParam, "order is not input or finished").WithField("order")
	}
	only := q.Get("only")
	if only != "" && only != "succeeded" && only != "errors" {
		return nil, api.Errorf(api.CodeInvalidParam, "only is not succeeded or errors").WithField("only")
	}
	a := &answer{status: http.StatusOK, header: http.Header{"Content-Type": {"application/jsonl"}}}
	_, err = s.onBatch(r, func(b *batch) error {
		s.tend(b)
		for _, l := range b.sorted(order, after) {
			if good := l.outcome() == string(api.Succeeded); only != "" && good != (only == "succeeded") {
				continue
			}
			if b.Form == api.FormOpenAI {
				a.body, err = l.openAI(b.ID).Append(a.body)
			} else {
				a.body, err = l.result().Append(a.body)
			}
			if err != nil {
				return err
			}
			a.body = append(a.body, '\n')
		}
		return nil
	})
	return a, err
}

// number reads a parameter that is a whole number.
func number(text, name string, otherwise, least, most int) (int, error) {
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, api.Errorf(api.CodeInvalidParam, "%s is not a whole number from %d to %d", name, least, most).WithField(name)
	}
	return n, nil
}
