package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"testing"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/e2e/proc"
	"github.com/onefold-dev/onefold/internal/casetest"
)

// TestReplyLost plays C022: the answer of a submit is lost after its commit; the
// same request again finds the task, and the model is called once.
func TestReplyLost(t *testing.T) {
	t.Parallel()
	for _, c := range casetest.Claimed(t, "e2e.TestReplyLost") {
		var want casetest.SubmitAnswer
		c.Expect(t, &want)
		submits := casetest.Submits(t, c)
		up := newUpstream(t)
		w := proc.New(t, &proc.Opts{Config: up.config()})
		front := w.API(t)
		w.Worker(t)
		hangUp(t, w, front, submits[0])
		s := newSenders(t, w, front)
		again := []*shot{{key: submits[1].Keys[0], body: string(submits[1].Body())}}
		s.fire(t, again)
		if again[0].status != want.SecondStatus {
			t.Errorf("%s: got %d, want %d", c.ID, again[0].status, want.SecondStatus)
		}
		got, err := w.Client(t, front).Wait(t.Context(), again[0].task.ID)
		if err != nil || got.State != api.Succeeded {
			t.Errorf("%s: got %+v, %v", c.ID, got, err)
		}
		drained(t, w)
		if n := w.Count(t, `SELECT count(*) FROM onefold.tasks`); n != *want.TasksCreated {
			t.Errorf("%s: got %d tasks, want %d", c.ID, n, *want.TasksCreated)
		}
		if n := up.calls("m"); n != *want.UpstreamCalls {
			t.Errorf("%s: got %d calls, want %d", c.ID, n, *want.UpstreamCalls)
		}
	}
}

// hangUp sends a submit and breaks the connection once the task is committed,
// without reading the answer.
func hangUp(t *testing.T, w *proc.World, front *proc.Process, s casetest.Submit) {
	t.Helper()
	at, err := url.Parse(front.URL())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", at.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	body := s.Body()
	out := bufio.NewWriter(conn)
	fmt.Fprintf(out, "POST /v1/tasks HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nIdempotency-Key: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		w.Key, s.Keys[0], len(body), body)
	if err := out.Flush(); err != nil {
		t.Fatal(err)
	}
	proc.Until(t, "the task committed", func() bool { return w.Count(t, `SELECT count(*) FROM onefold.tasks`) == 1 })
}

// fetch reads a path of the api with the World's key and demands a 200.
func fetch(t *testing.T, w *proc.World, url string) []byte {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+w.Key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: got %d, %v\n%.300s", url, resp.StatusCode, err, raw)
	}
	return raw
}
