package batch

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/batchfile"
	"github.com/onefold-dev/onefold/internal/failpoint"
	"github.com/onefold-dev/onefold/internal/store"
	"github.com/onefold-dev/onefold/internal/submission"
	"github.com/onefold-dev/onefold/internal/submit"
	"github.com/onefold-dev/onefold/internal/task"
)

// DefaultKind is the kind of lines in the OpenAI form where none is named.
const DefaultKind = "llm.chat"

// Bounds of a batch's deadline, from its start.
const (
	DefaultDeadline = 24 * time.Hour
	minDeadline     = time.Second
	maxDeadline     = 30 * 24 * time.Hour
)

// Upload is one file as it comes in. Key and Options make the batch what it is:
// the same ones with the same bytes mean the same batch.
type Upload struct {
	Tenant      string
	Key         string
	Options     Options
	TraceID     string
	Traceparent string
	Body        io.Reader // not compressed
}

// Options are what a caller asks of a batch besides its lines.
type Options struct {
	Kind     string        `json:"kind"`     // of lines in the OpenAI form; DefaultKind
	Webhook  string        `json:"webhook"`  // a destination to be told of the end
	Deadline time.Duration `json:"deadline"` // from the start; DefaultDeadline
}

// check fills the defaults in and says what cannot be asked for.
func (s *Service) check(ctx context.Context, u *Upload) error {
	o := &u.Options
	if o.Kind == "" {
		o.Kind = DefaultKind // there need be none of that name unless the lines ask for it
	} else if err := s.known(o.Kind); err != nil {
		return err
	}
	if o.Deadline == 0 {
		o.Deadline = DefaultDeadline
	}
	if o.Deadline < minDeadline || o.Deadline > maxDeadline {
		return api.Errorf(api.CodeInvalidParam, "deadline is not a time from %s to %s", minDeadline, maxDeadline).WithField("deadline").
			WithFix(`Send deadline=24h, counted from when the batch starts.`)
	}
	if o.Webhook != "" {
		may, err := s.Submit.MaySend(ctx, u.Tenant, o.Webhook)
		if err != nil {
			return err
		}
		if !may {
			return api.Errorf(api.CodeInvalidParam, "there is no destination %q that this tenant may use", submission.Printable(o.Webhook)).WithField("webhook").
				WithFix("Name a destination whose tenants include yours.")
		}
	}
	return nil
}

func (s *Service) known(kind string) error {
	if _, ok := s.Kinds.Newest(kind); !ok {
		return api.Errorf(api.CodeUnknownKind, "there is no kind %q", submission.Printable(kind)).WithField("kind")
	}
	return nil
}

func (o Options) hash() []byte {
	b, err := json.Marshal(o)
	if err != nil {
		panic(err) // texts and a number only
	}
	sum := sha256.Sum256(b)
	return sum[:]
}

// fingerprint is what a key stands for: the options and the file's bytes.
func fingerprint(options, file []byte) []byte {
	sum := sha256.Sum256(append(append([]byte{1}, options...), file...))
	return sum[:]
}

// Upload stages a file and lets it run. When it returns without an error the
// whole batch is committed and will run, whatever becomes of this process.
//
// The same key again is the same batch: with the same options and bytes it is
// returned as it stands (created false), otherwise refused with key_reused.
// While the file is still being staged, another upload of it follows the one
// that does so, and goes on from where it stopped if it makes no progress.
//
// A file that is refused leaves nothing. One whose upload broke off leaves what
// was staged, out of which nothing runs, until it is sent again or Opts.Idle is
// over.
func (s *Service) Upload(ctx context.Context, up Upload) (b *store.Batch, created bool, err error) {
	if err := s.check(ctx, &up); err != nil {
		return nil, false, err
	}
	u := &upload{s: s, Upload: up, me: task.NewToken(), options: up.Options.hash(), in: batchfile.NewReader(up.Body)}
	u.form = batchfile.Form{BatchKey: up.Key, Kind: up.Options.Kind}
	if err := u.look(ctx); err != nil {
		return nil, false, s.failed(err)
	}
	if err := u.stage(ctx); err != nil {
		return nil, false, s.failed(u.refuse(ctx, err))
	}
	b, err = u.finish(ctx)
	if err != nil {
		return nil, false, s.failed(u.refuse(ctx, err))
	}
	s.wake()
	return b, u.created, nil
}

// upload is one upload under way.
type upload struct {
	Upload
	s       *Service
	me      task.ID
	options []byte
	in      *batchfile.Reader
	form    batchfile.Form

	chunk   int32 // of the next chunk
	last    []byte
	folding bool // the batch has started already: the file is only compared
	created bool
}

// look finds out whether the key means a batch that has started.
func (u *upload) look(ctx context.Context) error {
	b, err := store.BatchByKey(ctx, u.s.Pool, u.Tenant, u.Key)
	if err != nil {
		return err
	}
	u.folding = b != nil && b.State != api.BatchStaging && !past(b)
	return nil
}

// stage reads the file to its end, a chunk at a time.
func (u *upload) stage(ctx context.Context) error {
	var c chunk
	for {
		sofar, prefix := u.in.Bytes(), u.in.Prefix()
		l, err := u.in.Next()
		if err != nil && !errors.Is(err, io.EOF) {
			return &brokenBody{err}
		}
		if errors.Is(err, io.EOF) || c.full(len(l.Text)) {
			c.bytes, c.prefix = sofar, prefix
			if err := u.send(ctx, &c); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if u.folding {
			continue
		}
		if err := u.add(ctx, &c, l); err != nil {
			return err
		}
	}
}

// brokenBody is an error of reading the file, not of storing it.
type brokenBody struct{ err error }

func (e *brokenBody) Error() string { return "read the file: " + e.err.Error() }
func (e *brokenBody) Unwrap() error { return e.err }

// add reads a line into the chunk.
func (u *upload) add(ctx context.Context, c *chunk, l batchfile.Line) error {
	if u.form.Name == "" {
		name, ok := batchfile.FormOf(l.Text)
		if !ok {
			name = "" // no object yet: the next line tells
		}
		if u.form.Name = name; name == api.FormOpenAI {
			if err := u.s.known(u.form.Kind); err != nil {
				return err
			}
		}
	}
	id, r, bad, err := u.form.Read(l)
	if err != nil {
		return err
	}
	st := store.Line{Number: int32(l.Number), LineID: id, TaskID: task.NewID(), State: lineOpen, Body: bytes.Clone(l.Text)}
	if bad == nil {
		st.Kind, err = submit.Check(ctx, u.s.Submit.Rules(), asked(r, u.Tenant))
		if err != nil {
			if bad = asError(err); bad.Code == api.CodeInternal {
				return err
			}
		}
	}
	if bad != nil {
		st.State, st.Body = lineInvalid, nil
		st.Code, st.Message, st.Field = string(bad.Code), bad.Message, bad.Field
	}
	c.add(st, len(l.Text))
	return nil
}

// asked is what a line asks for, for a tenant.
func asked(l batchfile.Submit, tenant string) submit.Request {
	return submit.Request{Tenant: tenant, Key: l.Key, KeySent: !l.Keyed, Keyed: l.Keyed, Body: l.Body}
}

func asError(err error) *api.Error {
	var e *api.Error
	if !errors.As(err, &e) {
		return api.Errorf(api.CodeInternal, "the line could not be read")
	}
	return e
}

// send stages a chunk, or finds that it is staged, or that the batch has started
// meanwhile. It waits for another upload that is at the same place.
func (u *upload) send(ctx context.Context, c *chunk) error {
	if len(c.lines) == 0 || u.folding {
		c.reset()
		return nil
	}
	c.index = u.chunk
	err := u.until(ctx, func(ctx context.Context) (bool, error) { return u.sendOnce(ctx, c) })
	u.chunk, u.last = u.chunk+1, c.prefix
	c.reset()
	return err
}

// How long an unclear commit, or a database that is away, is tried again before
// the caller is told to send the file again.
const (
	tryFor   = 20 * time.Second
	tryPause = 200 * time.Millisecond
)

// until runs a transaction until it is done: it is safe to run each again after
// a commit whose outcome is not known, for it finds what it did.
func (u *upload) until(ctx context.Context, once func(context.Context) (done bool, err error)) error {
	var broken time.Time
	for {
		limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), tryFor)
		done, err := once(limit)
		cancel()
		var told *api.Error
		switch {
		case err == nil && done, errors.As(err, &told):
			return err
		case err == nil: // another upload is at the same place
			broken = time.Time{}
		case !store.Away(err) && !store.Unclear(err) && !store.Retryable(err):
			return err
		case broken.IsZero():
			broken = time.Now()
		case time.Since(broken) > tryFor:
			return err
		}
		if !pause(ctx, tryPause) {
			return fmt.Errorf("stage the file: %w", ctx.Err())
		}
	}
}

// sendOnce is one transaction: it stages a chunk, and with the first one the
// batch. Before its commit nothing of the chunk is there; after it the chunk
// counts as staged, whether or not anyone hears of it.
func (u *upload) sendOnce(ctx context.Context, c *chunk) (done bool, err error) {
	err = pgx.BeginTxFunc(ctx, u.s.Pool, store.ReadCommitted, func(tx pgx.Tx) error {
		b, err := u.lock(ctx, tx, c.index == 0)
		if err != nil {
			return err
		}
		switch {
		case b.State != api.BatchStaging:
			u.folding, done = true, true
			return nil
		case c.index < b.Chunks: // staged before, by us or by another
			if c.index == b.Chunks-1 && !bytes.Equal(b.Hash, c.prefix) {
				return u.other(ctx, tx, b)
			}
			done = true
			return nil
		case c.index > b.Chunks:
			return restarted()
		case b.Chunks > 0 && !bytes.Equal(b.Hash, u.last):
			return u.other(ctx, tx, b)
		case !u.mine(b):
			return nil
		}
		done = true
		return u.put(ctx, tx, b, c)
	})
	return done && err == nil, err
}

// lock finds the batch under the key, and makes it where the file begins.
func (u *upload) lock(ctx context.Context, tx pgx.Tx, first bool) (*store.Batch, error) {
	b, err := store.LockBatchByKey(ctx, tx, u.Tenant, u.Key)
	if err != nil {
		return nil, err
	}
	if b != nil && first && past(b) {
		if err := store.DropBatch(ctx, tx, b.ID); err != nil {
			return nil, err
		}
		b = nil
	}
	if b == nil && first {
		fresh := &store.Batch{
			ID: task.NewID(), Tenant: u.Tenant, Key: u.Key, Kind: u.Options.Kind, Webhook: u.Options.Webhook,
			DeadlineAfter: u.Options.Deadline, OptionsHash: u.options, TraceID: u.TraceID, Traceparent: u.Traceparent, Form: u.formName(), Upload: &u.me,
		}
		if err := store.InsertBatch(ctx, tx, fresh); err != nil {
			return nil, err
		}
		if b, err = store.LockBatchByKey(ctx, tx, u.Tenant, u.Key); err != nil {
			return nil, err
		}
	}
	switch {
	case b == nil:
		return nil, restarted()
	case b.State == api.BatchStaging && !bytes.Equal(b.OptionsHash, u.options):
		return nil, u.other(ctx, tx, b)
	}
	return b, nil
}

// past says whether a batch is past its retention: its key is a new intent.
func past(b *store.Batch) bool { return b.ExpiresAt != nil && !b.ExpiresAt.After(b.Now) }

func (u *upload) formName() api.BatchForm {
	if u.form.Name == "" {
		return api.FormOnefold
	}
	return u.form.Name
}

// mine says whether this upload is the one to go on: it did so far, or the one
// that did makes no progress.
func (u *upload) mine(b *store.Batch) bool {
	return b.Upload != nil && *b.Upload == u.me || b.Now.Sub(b.ProgressAt) > u.s.Opts.Takeover
}

// put stages the lines of a chunk and refuses the file where an id comes twice.
func (u *upload) put(ctx context.Context, tx pgx.Tx, b *store.Batch, c *chunk) error {
	for i := range c.lines {
		if c.lines[i].State == lineInvalid {
			b.Finished++
			c.lines[i].Finished = b.Finished
		}
	}
	taken, err := store.InsertLines(ctx, tx, b.ID, c.lines)
	if err != nil {
		return err
	}
	if len(taken) > 0 {
		return u.twice(ctx, tx, b, c, taken[0])
	}
	b.Upload, b.Chunks, b.Lines = &u.me, b.Chunks+1, b.Lines+int32(len(c.lines))
	b.Form = u.formName()
	b.LastLine, b.Bytes, b.Hash = c.lines[len(c.lines)-1].Number, c.bytes, c.prefix
	if err := store.StagedChunk(ctx, tx, b); err != nil {
		return err
	}
	return failpoint.Hit(failpoint.BatchStageBeforeCommit)
}

// twice is the refusal of a file in which an id comes twice.
func (u *upload) twice(ctx context.Context, tx pgx.Tx, b *store.Batch, c *chunk, number int32) error {
	for _, l := range c.lines {
		if l.Number != number {
			continue
		}
		first, err := store.LineWithID(ctx, tx, b.ID, l.LineID, l.Kind)
		if err != nil {
			return err
		}
		name := "custom_id"
		if u.form.Name == api.FormOnefold {
			name = "key"
		}
		e := api.Errorf(api.CodeDuplicateID, "line %d has the %s of line %d", number, name, first).WithLine(int(number)).WithField(name)
		e.FirstLine = int(first)
		return e
	}
	return fmt.Errorf("line %d was not staged", number)
}

// other answers an upload whose key is being used for another file. What was
// staged of that is dropped where its upload has been silent for a while.
func (u *upload) other(ctx context.Context, tx pgx.Tx, b *store.Batch) error {
	const live = time.Minute
	e := api.Errorf(api.CodeConflict, "another file or other options are being uploaded under this key").WithField("Idempotency-Key")
	if b.Now.Sub(b.ProgressAt) < live {
		return e.WithFix("Use another key for another file; or wait until the other upload has been silent for a minute.").WithRetryAfter(live)
	}
	return &dropping{id: b.ID, answer: e.WithFix("It had been given up and is dropped: send the file again.").WithRetryAfter(time.Second)}
}

// dropping is an answer to be given once a batch was dropped.
type dropping struct {
	id     task.ID
	answer *api.Error
}

func (d *dropping) Error() string { return d.answer.Error() }
func (d *dropping) Unwrap() error { return d.answer }

func restarted() error {
	return api.Errorf(api.CodeConflict, "what had been staged of the file was dropped meanwhile").
		WithFix("Send the whole file again.").WithRetryAfter(time.Second)
}

// finish lets a staged file run, or compares it with the batch that has started.
func (u *upload) finish(ctx context.Context) (b *store.Batch, err error) {
	if u.in.Lines() == 0 {
		return nil, api.Errorf(api.CodeEmptyBatch, "the file holds no line")
	}
	err = u.until(ctx, func(ctx context.Context) (done bool, err error) {
		b, done, err = u.finishOnce(ctx)
		return done, err
	})
	return b, err
}

// finishOnce is one transaction: the batch starts. Before its commit nothing
// runs, after it everything will.
func (u *upload) finishOnce(ctx context.Context) (b *store.Batch, done bool, err error) {
	sum := fingerprint(u.options, u.in.Prefix())
	err = pgx.BeginTxFunc(ctx, u.s.Pool, store.ReadCommitted, func(tx pgx.Tx) (err error) {
		if b, err = store.LockBatchByKey(ctx, tx, u.Tenant, u.Key); err != nil {
			return err
		}
		switch {
		case b == nil:
			return restarted()
		case b.State != api.BatchStaging:
			return u.compare(b, sum, &done)
		case u.folding, b.Chunks < u.chunk:
			return restarted()
		case b.Chunks > u.chunk || !bytes.Equal(b.Hash, u.last):
			return u.other(ctx, tx, b)
		case !u.mine(b):
			return nil
		}
		if err := store.StartBatch(ctx, tx, b.ID, u.me, u.in.Bytes(), sum); err != nil {
			return err
		}
		if b, err = store.LockBatch(ctx, tx, b.ID, false); err != nil {
			return err
		}
		u.created, done = true, true
		return failpoint.Hit(failpoint.BatchStartBeforeCommit)
	})
	if err == nil {
		err = failpoint.Hit(failpoint.BatchStartAfterCommit)
	}
	return b, done && err == nil, err
}

// compare folds the file onto the batch that its key means. One that this upload
// itself started, in a commit whose answer was lost, is its own.
func (u *upload) compare(b *store.Batch, sum []byte, done *bool) error {
	if !bytes.Equal(b.Hash, sum) {
		e := api.Errorf(api.CodeKeyReused, "the key was used before with another file or other options").WithField("Idempotency-Key")
		if !bytes.Equal(b.OptionsHash, u.options) {
			e.Mismatch = []string{"options"}
		} else {
			e.Mismatch = []string{"file"}
		}
		return e
	}
	u.created, *done = b.Upload != nil && *b.Upload == u.me, true
	return nil
}

// refuse drops what was staged of a file that is refused.
func (u *upload) refuse(ctx context.Context, err error) error {
	var drop *dropping
	var told *api.Error
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tryFor)
	defer cancel()
	switch {
	case errors.As(err, &drop):
	case errors.As(err, &told) && refusesFile[told.Code]:
	default:
		return err
	}
	derr := pgx.BeginTxFunc(ctx, u.s.Pool, store.ReadCommitted, func(tx pgx.Tx) error {
		b, err := store.LockBatchByKey(ctx, tx, u.Tenant, u.Key)
		if err != nil || b == nil || b.State != api.BatchStaging {
			return err
		}
		if drop != nil && b.ID != drop.id || drop == nil && !u.mine(b) {
			return nil
		}
		return store.DropBatch(ctx, tx, b.ID)
	})
	if derr != nil {
		// It is dropped as an upload without progress later; nothing of it runs.
		u.s.Log.Warn("refused file not dropped yet", "error", derr)
	}
	return err
}

// refusesFile are the codes by which a file itself is at fault.
var refusesFile = map[api.Code]bool{
	api.CodeEmptyBatch: true, api.CodeMissingID: true, api.CodeDuplicateID: true, api.CodeCutLine: true, api.CodeTooLarge: true,
}

func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
