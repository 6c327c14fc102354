package client_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/client"
)

// A file is sent from its start at every try, compressed, under one key.
func TestUploadBatch(t *testing.T) {
	t.Parallel()
	file := strings.Repeat(`{"custom_id":"a"}`+"\n", 200_000)
	tries, sent := 0, int64(0)
	c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		tries++
		if r.Header.Get("Idempotency-Key") != "nightly" || r.Header.Get("Content-Type") != "application/jsonl" || r.URL.RawQuery != "deadline=1h0m0s&kind=k" {
			t.Errorf("got %s %v", r.URL, r.Header)
		}
		switch tries {
		case 1:
			panic(http.ErrAbortHandler) // before the body was read
		case 2:
			w.Header().Set("Retry-After", "0.01")
			reply(w, 409, api.Errorf(api.CodeConflict, "another upload"))
			return
		}
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			t.Error(err)
			return
		}
		got, err := io.ReadAll(z)
		if err != nil || string(got) != file {
			t.Errorf("%d bytes came, want %d, %v", len(got), len(file), err)
		}
		created := true
		reply(w, 202, api.Batch{ID: "b1", Key: "nightly", State: api.BatchRunning, Created: &created})
	}, nil)
	b, err := c.UploadBatch(t.Context(), "nightly", strings.NewReader(file), &client.BatchOpts{Kind: "k", Deadline: 3600e9, Sent: func(n int64) { sent = n }})
	if err != nil || b.ID != "b1" || tries != 3 || sent != int64(len(file)) {
		t.Errorf("got %+v, %v after %d tries, %d bytes sent", b, err, tries, sent)
	}
}

func TestUploadRefused(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		answer *api.Error
		want   error
	}{
		"a bad file":    {&api.Error{Code: api.CodeDuplicateID, Status: 400, Line: 7, FirstLine: 3}, api.ErrInvalid},
		"another file":  {api.Errorf(api.CodeKeyReused, "used"), api.ErrKeyReused},
		"a real change": {api.Errorf(api.CodeConflict, "moved"), api.ErrConflict},
	} {
		tries := 0
		c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
			tries++
			reply(w, tt.answer.Status, tt.answer) // without reading the body
		}, nil)
		_, err := c.UploadBatch(t.Context(), "k", strings.NewReader("x"), nil)
		var e *api.Error
		if !errors.Is(err, tt.want) || !errors.As(err, &e) || e.Line != tt.answer.Line || e.FirstLine != tt.answer.FirstLine || tries != 1 {
			t.Errorf("%s: got %v after %d tries", name, err, tries)
		}
	}
	c, _ := serve(t, nil, nil)
	if _, err := c.UploadBatch(t.Context(), "", strings.NewReader("x"), nil); !errors.Is(err, api.ErrInvalid) {
		t.Errorf("no key: %v", err)
	}
}

// An answer that breaks off is gone on with behind the last whole line.
func TestResultsGoOn(t *testing.T) {
	t.Parallel()
	const n = 10
	line := func(i int) string {
		if i%2 == 0 {
			return fmt.Sprintf(`{"id":"batch_req_0199-aa_%d_%d","custom_id":"x","response":null,"error":null}`, i, n+1-i) + "\n"
		}
		return fmt.Sprintf(`{"line":%d,"finished":%d,"state":"succeeded","result":{"line":99}}`, i, n+1-i) + "\n"
	}
	for _, order := range []api.BatchOrder{api.OrderInput, api.OrderFinished} {
		tries := 0
		c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
			tries++
			from := 1
			if after := r.URL.Query().Get("after"); after != "" {
				if _, err := fmt.Sscan(after, &from); err != nil {
					t.Error(err)
				}
				if order == api.OrderFinished {
					from = n + 1 - from
				}
				from++
			}
			for i := from; i <= n; i++ {
				text := line(i)
				if i == from+3 && tries < 4 {
					_, _ = io.WriteString(w, text[:20])
					w.(http.Flusher).Flush()
					panic(http.ErrAbortHandler)
				}
				_, _ = io.WriteString(w, text)
			}
		}, nil)
		var got, want []string
		for l, err := range c.BatchResults(t.Context(), "b1", &client.ResultsOpts{Order: order}) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprint(l.Line, l.Finished, " ", string(l.Text)))
		}
		for i := 1; i <= n; i++ {
			want = append(want, fmt.Sprint(i, n+1-i, " ", strings.TrimSuffix(line(i), "\n")))
		}
		if diff := cmp.Diff(got, want); diff != "" || tries != 4 {
			t.Errorf("%s: %d tries; -got +want:\n%s", order, tries, diff)
		}
	}
}

func TestResultsRefused(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "gone") {
			reply(w, 404, api.Errorf(api.CodeNotFound, "no such batch"))
			return
		}
		_, _ = io.WriteString(w, "<html>\n")
	}, &client.Opts{MaxRetries: -1})
	for id, want := range map[string]error{"gone": api.ErrNotFound, "web": api.ErrUnavailable} {
		var last error
		for _, err := range c.BatchResults(t.Context(), id, nil) {
			last = err
		}
		if !errors.Is(last, want) {
			t.Errorf("%s: got %v", id, last)
		}
	}
}

func TestWaitBatch(t *testing.T) {
	t.Parallel()
	polls := 0
	c, net := over(t, client.Opts{MaxRetries: -1},
		answers(200, nil, mustJSON(api.Batch{ID: "b1", State: api.BatchRunning})),
		breaks(errReset),
		answers(200, nil, mustJSON(api.Batch{ID: "b1", State: api.BatchCompleted})))
	b, err := c.WaitBatch(t.Context(), "b1", func(*api.Batch) { polls++ })
	if err != nil || b.State != api.BatchCompleted || polls != 2 || net.tries() != 3 {
		t.Errorf("got %+v, %v after %d polls, %d tries", b, err, polls, net.tries())
	}
	ctx, cancel := context.WithCancel(t.Context())
	c, _ = over(t, client.Opts{}, answers(200, nil, mustJSON(api.Batch{ID: "b1", State: api.BatchRunning})))
	b, err = c.WaitBatch(ctx, "b1", func(*api.Batch) { cancel() })
	if !errors.Is(err, api.ErrUnavailable) || !errors.Is(err, context.Canceled) || b == nil {
		t.Errorf("got %+v, %v", b, err)
	}
}

func TestBatchActs(t *testing.T) {
	t.Parallel()
	c, net := over(t, client.Opts{}, answers(200, nil, mustJSON(api.Batch{ID: "b1", State: api.BatchRunning, Run: 2})))
	if b, err := c.RetryBatch(t.Context(), "b1", 1, "again"); err != nil || b.Run != 2 {
		t.Errorf("got %+v, %v", b, err)
	}
	if _, err := c.CancelBatch(t.Context(), "b1", "enough"); err != nil {
		t.Error(err)
	}
	got := net.sent[0].URL.Path + string(net.body[0]) + net.sent[1].URL.Path + string(bytes.TrimSpace(net.body[1]))
	if want := `/v1/batches/b1/retry{"run":1,"reason":"again"}/v1/batches/b1/cancel{"reason":"enough"}`; got != want {
		t.Errorf("sent %s, want %s", got, want)
	}
	c, net = over(t, client.Opts{}, breaks(errReset))
	if _, err := c.RetryBatch(t.Context(), "b1", 1, ""); !errors.Is(err, api.ErrUnavailable) || net.tries() != 1 {
		t.Errorf("a retry that may have been done: %v after %d tries", err, net.tries())
	}
}
