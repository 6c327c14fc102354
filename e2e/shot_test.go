package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/e2e/proc"
)

// shot is one submit and what came of it.
type shot struct {
	key, body string
	status    int
	task      api.Task
}

func chat(model, text string) string {
	input, _ := json.Marshal(map[string]any{"model": model, "messages": []any{map[string]string{"role": "user", "content": text}}})
	return `{"kind":"llm.chat","input":` + string(input) + `}`
}

// senders hold what a caller would: one set of connections that are kept, and
// one that opens a fresh connection for each request.
type senders struct {
	w    *proc.World
	apis []*proc.Process
	http [2]*http.Client
}

func newSenders(t *testing.T, w *proc.World, apis ...*proc.Process) *senders {
	t.Helper()
	s := &senders{w: w, apis: apis, http: [2]*http.Client{
		{Transport: &http.Transport{MaxIdleConnsPerHost: 64}},
		{Transport: &http.Transport{DisableKeepAlives: true}},
	}}
	t.Cleanup(s.http[0].CloseIdleConnections)
	return s
}

// idleClosed is net/http's word for a kept connection that the server had given
// up before the request reached it: of the connections a storm opens some stay
// unused for longer than a server waits for a first request.
const idleClosed = "server closed idle connection"

// fire sends all shots at once, by turns to each api, on kept and on fresh
// connections. Every answer counts; only a shot that met a connection given up
// before is sent again, as every client does.
func (s *senders) fire(t *testing.T, shots []*shot) {
	t.Helper()
	var all sync.WaitGroup
	begin := make(chan struct{})
	for i, shot := range shots {
		all.Go(func() {
			<-begin
			url := s.apis[i%len(s.apis)].URL()
			err := s.send(shot, url, s.http[i/len(s.apis)%2])
			if err != nil && strings.Contains(err.Error(), idleClosed) {
				err = s.send(shot, url, s.http[1])
			}
			if err != nil {
				t.Errorf("shot %d: %v", i, err)
			}
		})
	}
	close(begin)
	all.Wait()
}

func (s *senders) send(shot *shot, url string, c *http.Client) error {
	req, err := http.NewRequest(http.MethodPost, url+"/v1/tasks", strings.NewReader(shot.body))
	if err != nil {
		return err
	}
	req.GetBody = nil // net/http must not send it a second time
	req.Header = http.Header{"Content-Type": {"application/json"}, "Idempotency-Key": {shot.key}, "Authorization": {"Bearer " + s.w.Key}}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	shot.status = resp.StatusCode
	if resp.StatusCode >= 300 {
		return nil
	}
	if replayed := resp.Header.Get("Idempotent-Replayed"); (replayed == "true") != (resp.StatusCode == 200) {
		return fmt.Errorf("status %d with Idempotent-Replayed %q", resp.StatusCode, replayed)
	}
	return json.Unmarshal(raw, &shot.task)
}

// repeat is n shots of the same.
func repeat(n int, key, body string) []*shot {
	shots := make([]*shot, n)
	for i := range shots {
		shots[i] = &shot{key: key, body: body}
	}
	return shots
}

// tally counts the statuses and the tasks that answered.
func tally(shots []*shot) (statuses map[int]int, ids map[string]bool) {
	statuses, ids = map[int]int{}, map[string]bool{}
	for _, s := range shots {
		statuses[s.status]++
		if s.task.ID != "" {
			ids[s.task.ID] = true
		}
	}
	return statuses, ids
}

// drained waits until every task is settled and no wake-up is left.
func drained(t *testing.T, w *proc.World) {
	t.Helper()
	proc.Until(t, "all tasks settled, no wake-up left", func() bool {
		return w.Count(t, `SELECT count(*) FROM onefold.tasks WHERE finished_at IS NULL`) == 0 &&
			w.Count(t, `SELECT count(*) FROM onefold.river_job WHERE kind IN ('task', 'effect')`) == 0
	})
}
