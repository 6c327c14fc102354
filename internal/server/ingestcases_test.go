package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/internal/casetest"
	"github.com/onefold-dev/onefold/internal/config"
)

// TestWebhookInCases plays inbound webhooks over real connections, at the time each case names.
func TestWebhookInCases(t *testing.T) {
	t.Parallel()
	b := setup(t)
	scenarios := map[string]func(*testing.T, *bundle, casetest.Case){
		"C196": sameDelivery, "C197": twoDeliveries, "C198": oldDelivery, "C199": hugeDelivery, "C200": slowDelivery,
	}
	for _, c := range casetest.Claimed(t, "internal/server.TestWebhookInCases") {
		t.Run(c.ID, func(t *testing.T) {
			t.Parallel()
			if play := scenarios[c.ID]; play != nil {
				play(t, b, c)
				return
			}
			oneDelivery(t, b, c)
		})
	}
}

type webhookIn struct {
	Now     int64             `json:"now"`
	Secrets []string          `json:"secrets"`
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body_b64"`
}

func oneDelivery(t *testing.T, b *bundle, c casetest.Case) {
	t.Helper()
	var in webhookIn
	if err := json.Unmarshal(c.Input, &in); err != nil {
		t.Fatal(err)
	}
	var want struct {
		Status int    `json:"status"`
		Tasks  int    `json:"tasks_created"`
		Note   string `json:"note"`
	}
	c.Expect(t, &want)
	tenant, env, list := strings.ToLower(c.ID), map[string]string{}, []string{}
	for i, s := range in.Secrets {
		name := fmt.Sprintf("S%d", i)
		env[name] = s
		list = append(list, "{secret_env: "+name+"}")
	}
	source := func(more string) string {
		return fmt.Sprintf("  s: {scheme: standard-webhooks, kind: llm.chat, tenant: %s, secrets: [%s]%s}\n", tenant, strings.Join(list, ", "), more)
	}
	h := http.Header{}
	for name, v := range in.Headers {
		h.Set(name, v)
	}
	body, err := casetest.Base64(in.Body)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(in.Now, 0)
	switch c.ID {
	case "C194": // an empty secret: refused at the start
		_, err := config.Parse("test", []byte(doorsConfig+source("")), config.Opts{SkipSecrets: true, Getenv: func(n string) string { return env[n] }})
		var all config.Errors
		if !errors.As(err, &all) || !strings.Contains(err.Error(), "secret_env") {
			t.Errorf("got %v, want the secret refused at the start", err)
		}
		return
	case "C193":
		status, answer := newDoors(t, b, source(", tolerance: 24h"), env, now).post(t, "s", h, body)
		if status != 202 {
			t.Errorf("with a tolerance of 24 h: got %d %v, want 202", status, answer)
		}
		want.Status, want.Tasks = 401, 1
	}
	status, answer := newDoors(t, b, source(""), env, now).post(t, "s", h, body)
	if status != want.Status {
		t.Errorf("got %d %v, want %d", status, answer, want.Status)
	}
	if got := count(t, b, tenant); got != want.Tasks {
		t.Errorf("%d tasks were made, want %d", got, want.Tasks)
	}
	if want.Status == 202 && c.ID != "C193" {
		var input []byte
		if err := b.DB.QueryRow(context.Background(), `SELECT input FROM onefold.tasks WHERE tenant = $1`, tenant).Scan(&input); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(strings.TrimSpace(string(input)), strings.TrimSpace(string(body))); diff != "" {
			t.Errorf("stored -, sent +:\n%s", diff)
		}
	}
}

// lone is a source of its own for one case.
func lone(t *testing.T, b *bundle, c casetest.Case, more string) *doors {
	t.Helper()
	return newDoors(t, b, fmt.Sprintf("  s: {scheme: standard-webhooks, kind: event, tenant: %s, secret_env: S%s}\n", strings.ToLower(c.ID), more),
		map[string]string{"S": goodSecret}, time.Now())
}

func sameDelivery(t *testing.T, b *bundle, c casetest.Case) {
	d := lone(t, b, c, "")
	h := standard(t, goodSecret, "msg", time.Now(), `{"a":1}`)
	first, _ := d.post(t, "s", h, []byte(`{"a":1}`))
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			if status, answer := d.post(t, "s", h, []byte(`{"a":1}`)); status != 200 {
				t.Errorf("again: got %d %v, want 200", status, answer)
			}
		})
	}
	both.Wait()
	if n := count(t, b, strings.ToLower(c.ID)); first != 202 || n != 1 {
		t.Errorf("got %d and %d tasks, want 202 and one", first, n)
	}
}

func twoDeliveries(t *testing.T, b *bundle, c casetest.Case) {
	d := lone(t, b, c, "")
	for _, id := range []string{"msg_1", "msg_2"} {
		if status, _ := d.post(t, "s", standard(t, goodSecret, id, time.Now(), `{"a":1}`), []byte(`{"a":1}`)); status != 202 {
			t.Errorf("%s: got %d, want 202", id, status)
		}
	}
	if n := count(t, b, strings.ToLower(c.ID)); n != 2 {
		t.Errorf("%d tasks, want 2", n)
	}
}

// oldDelivery: what was captured and played again after the key is forgotten is too old by then; and a source for which
// that does not hold is refused at the start.
func oldDelivery(t *testing.T, b *bundle, c casetest.Case) {
	d := lone(t, b, c, "")
	h := standard(t, goodSecret, "msg", time.Now(), `{"a":1}`)
	if status, _ := d.post(t, "s", h, []byte(`{"a":1}`)); status != 202 {
		t.Fatalf("got %d, want 202", status)
	}
	if _, err := b.DB.Exec(context.Background(), `DELETE FROM onefold.tasks WHERE tenant = $1`, strings.ToLower(c.ID)); err != nil {
		t.Fatal(err)
	}
	d.now.Store(time.Now().Add(721 * time.Hour).UnixNano())
	if status, _ := d.post(t, "s", h, []byte(`{"a":1}`)); status != 401 {
		t.Errorf("got %d, want 401", status)
	}
	const short = `
retention: {tasks: 9h, client_schedule: 0s, compensation: 0s, manual_replay: 0s}
providers: {p: {type: fake}}
kinds: {event: {provider: p, max_attempts: 1}}
sources: {s: {scheme: standard-webhooks, kind: event, tenant: a, secret_env: S, tolerance: 5h}}
`
	_, err := config.Parse("test", []byte(short), config.Opts{SkipSecrets: true, Getenv: func(string) string { return goodSecret }})
	if err == nil || !strings.Contains(err.Error(), "could be played again") {
		t.Errorf("got %v, want the tolerance refused", err)
	}
}

// hugeDelivery sends 100 MB in chunks. The limit is five times the case's.
func hugeDelivery(t *testing.T, b *bundle, c casetest.Case) {
	d := lone(t, b, c, "")
	before := rss(t)
	body := io.LimitReader(endless{}, 100<<20)
	req, err := http.NewRequest("POST", d.URL+"/v1/ingest/s", body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"Webhook-Id": {"m"}, "Webhook-Timestamp": {strconv.FormatInt(time.Now().Unix(), 10)}, "Webhook-Signature": {"v1,AAAA"}}
	resp, err := http.DefaultClient.Do(req)
	if err == nil {
		resp.Body.Close()
		if resp.StatusCode != 413 {
			t.Errorf("got %d, want 413", resp.StatusCode)
		}
	} else if !strings.Contains(err.Error(), "reset") && !strings.Contains(err.Error(), "broken pipe") {
		t.Errorf("got %v", err)
	}
	if grown := rss(t) - before; grown > 5*16<<20 {
		t.Errorf("the process grew by %d MB", grown>>20)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// rss is the process's resident memory in bytes; without /proc it is 0.
func rss(t *testing.T) int64 {
	t.Helper()
	raw, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var size, resident int64
	if _, err := fmt.Sscan(string(raw), &size, &resident); err != nil {
		t.Fatal(err)
	}
	return resident * int64(os.Getpagesize())
}

// slowDelivery sends its headers and then nothing more: it is answered within the read timeout, and meanwhile others are
// served.
func slowDelivery(t *testing.T, b *bundle, c casetest.Case) {
	d := lone(t, b, c, ", concurrency: 2")
	conn, err := net.Dial("tcp", d.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "POST /v1/ingest/s HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
	if status, _ := d.post(t, "s", standard(t, goodSecret, "quick", time.Now(), `{}`), []byte(`{}`)); status != 202 {
		t.Errorf("meanwhile another got %d, want 202", status)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 408 {
		t.Errorf("got %d, want 408", resp.StatusCode)
	}
}
