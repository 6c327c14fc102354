package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/client"
	"github.com/onefold-dev/onefold/e2e/proc"
	"github.com/onefold-dev/onefold/internal/auth"
)

// A tenant may have 5 tasks queued. Over HTTP the sixth is refused, by two api
// processes, with what to do and when; a duplicate is answered. A batch of 60
// lines waits for its turn and is done in the end, and what is submitted beside
// it finds room.
func TestQueuedQuota(t *testing.T) {
	t.Parallel()
	w := proc.New(t, nil)
	if err := auth.SetQuota(t.Context(), w.Pool, "e2e", api.QuotaQueued, 5, "test", ""); err != nil {
		t.Fatal(err)
	}
	var callers []*client.Client
	for range 2 {
		cl, err := client.New(w.API(t).URL(), w.Key, &client.Opts{MaxRetries: -1})
		if err != nil {
			t.Fatal(err)
		}
		callers = append(callers, cl)
	}
	task := func(i int) api.Submit {
		return api.Submit{Kind: "work", Input: json.RawMessage(fmt.Sprintf(`{"model":"fake:ok","text":"%d"}`, i))}
	}
	for i := range 5 {
		if _, err := callers[0].Submit(t.Context(), fmt.Sprint("k", i), task(i), nil); err != nil {
			t.Fatal(err)
		}
	}
	proc.Until(t, "the queue to be counted", func() bool {
		return w.Count(t, `SELECT coalesce(sum(queued), 0) FROM onefold.tenant_counts WHERE tenant = 'e2e'`) == 5
	})
	n := 0
	for _, cl := range callers {
		proc.Until(t, "the refusal of what is too much", func() bool { // the other one reads the count within a second
			n++
			_, err := cl.Submit(t.Context(), fmt.Sprint("more", n), task(9), nil)
			var e *api.Error
			if err == nil {
				return false
			}
			if !errors.Is(err, api.ErrRateLimited) || !errors.As(err, &e) || e.Code != api.CodeOverQuota || e.Quota != api.QuotaQueued || e.RetryAfter <= 0 || e.Fix == "" {
				t.Fatalf("got %v", err)
			}
			return true
		})
		if got, err := cl.Submit(t.Context(), "k0", task(0), nil); err != nil || *got.Created {
			t.Errorf("a duplicate: %+v, %v", got, err)
		}
	}
	var file strings.Builder
	for i := range 60 {
		fmt.Fprintf(&file, `{"key":"line-%d","kind":"work","input":{"model":"fake:ok","text":"x"}}`+"\n", i)
	}
	b, err := callers[1].UploadBatch(t.Context(), "nightly", strings.NewReader(file.String()), nil)
	if err != nil {
		t.Fatal(err)
	}
	if n = w.Count(t, `SELECT count(*) FROM onefold.tasks WHERE batch_id IS NOT NULL`); n != 0 {
		t.Errorf("%d lines were handed over into a full queue", n)
	}
	w.Worker(t)
	if b, err = callers[1].WaitBatch(t.Context(), b.ID, nil); err != nil || b.Counts != (api.BatchCounts{Succeeded: 60}) {
		t.Errorf("got %+v, %v", b, err)
	}
	proc.Until(t, "room for one more", func() bool {
		_, err := callers[0].Submit(t.Context(), "at-last", task(7), nil)
		return err == nil
	})
}
