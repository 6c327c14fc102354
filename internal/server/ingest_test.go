package server_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/internal/auth"
	"github.com/onefold-dev/onefold/internal/batch"
	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/ingest"
	"github.com/onefold-dev/onefold/internal/job"
	"github.com/onefold-dev/onefold/internal/kinds"
	"github.com/onefold-dev/onefold/internal/outbox"
	"github.com/onefold-dev/onefold/internal/review"
	"github.com/onefold-dev/onefold/internal/server"
	"github.com/onefold-dev/onefold/internal/submit"
	"github.com/onefold-dev/onefold/internal/telemetry"
	"github.com/onefold-dev/onefold/internal/wait"
)

// doors is an API with sources of its own, whose clock the test sets.
type doors struct {
	URL, Addr string
	Log       *logs
	now       atomic.Int64 // Unix nanoseconds
}

const doorsConfig = `
providers: {p: {type: openai, base_url: "http://127.0.0.1:1/v1"}}
kinds:
  event: {provider: p}
  llm.chat: {provider: p}
  w: {provider: p, dedupe: "window: 1h"}
sources:
`

// newDoors serves sources, YAML lines under sources:, with secrets from env.
func newDoors(t *testing.T, b *bundle, sources string, env map[string]string, now time.Time) *doors {
	t.Helper()
	d := &doors{Log: &logs{}}
	d.now.Store(now.UnixNano())
	log := telemetry.New(d.Log, &telemetry.Opts{Level: slog.LevelInfo})
	opts := config.Opts{SkipSecrets: true, Getenv: func(name string) string { return env[name] }}
	cfg, err := config.Parse("test", []byte(doorsConfig+sources), opts)
	if err != nil {
		t.Fatal(err)
	}
	book := kinds.New(cfg, opts)
	if err := book.Store(context.Background(), b.DB); err != nil {
		t.Fatal(err)
	}
	notifier := job.NewNotifier(b.DB, log)
	submits := submit.New(submit.Config{Pool: b.DB, Kinds: book, Outbox: outbox.New(outbox.Opts{Config: cfg}), Notifier: notifier, Log: log})
	in := ingest.New(ingest.Config{
		Sources: cfg.Sources, Submit: submits, DB: b.DB, Log: log, Now: func() time.Time { return time.Unix(0, d.now.Load()) },
	})
	waiter := wait.New(wait.Config{
		Pool: b.DB, Log: log, Connect: func(ctx context.Context) (*pgx.Conn, error) { return pgx.Connect(ctx, b.database.URL()) },
	})
	s, err := server.New(server.Config{
		DB: b.DB, Submit: submits, Batches: batch.New(batch.Config{Pool: b.DB, Kinds: book, Submit: submits, Notifier: notifier, Log: log}), Review: &review.Service{}, Auth: auth.New(b.DB), Wait: waiter, Log: log, Ingest: in, Ready: func(context.Context) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(s)
	srv.Config = s.HTTP()
	srv.Start()
	d.URL, d.Addr = srv.URL, srv.Listener.Addr().String()
	t.Cleanup(func() { srv.Close(); in.Close(); submits.Close(); notifier.Close() })
	return d
}

func (d *doors) post(t *testing.T, source string, h http.Header, body []byte) (status int, answer map[string]string) {
	t.Helper()
	req, err := http.NewRequest("POST", d.URL+"/v1/ingest/"+source, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = h.Clone()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
		return 0, nil
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	var any map[string]any
	if err := json.Unmarshal(raw, &any); err != nil && resp.StatusCode != 204 {
		t.Errorf("answer %d %s: %v", resp.StatusCode, raw, err)
	}
	answer = map[string]string{}
	for k, v := range any {
		answer[k] = fmt.Sprint(v)
	}
	return resp.StatusCode, answer
}

func count(t *testing.T, b *bundle, tenant string) (n int) {
	t.Helper()
	if err := b.DB.QueryRow(context.Background(), `SELECT count(*) FROM onefold.tasks WHERE tenant = $1`, tenant).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

const (
	goodSecret  = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
	otherSecret = "whsec_ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA="
)

func mac(key, message []byte) []byte {
	m := hmac.New(sha256.New, key)
	m.Write(message)
	return m.Sum(nil)
}

// standard signs as Standard Webhooks has it.
func standard(t *testing.T, secret, id string, at time.Time, body string) http.Header {
	t.Helper()
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		t.Fatal(err)
	}
	ts := strconv.FormatInt(at.Unix(), 10)
	return http.Header{
		"Webhook-Id": {id}, "Webhook-Timestamp": {ts},
		"Webhook-Signature": {"v1," + base64.StdEncoding.EncodeToString(mac(key, []byte(id+"."+ts+"."+body)))},
	}
}

func stripe(_ *testing.T, secret, _ string, at time.Time, body string) http.Header {
	ts := strconv.FormatInt(at.Unix(), 10)
	return http.Header{"Stripe-Signature": {"t=" + ts + ",v1=" + hex.EncodeToString(mac([]byte(secret), []byte(ts+"."+body)))}}
}

func github(_ *testing.T, secret, id string, _ time.Time, body string) http.Header {
	return http.Header{"X-Hub-Signature-256": {"sha256=" + hex.EncodeToString(mac([]byte(secret), []byte(body)))}, "X-Github-Delivery": {id}}
}

func plain(_ *testing.T, secret, _ string, at time.Time, body string) http.Header {
	ts := strconv.FormatInt(at.Unix(), 10)
	return http.Header{"X-Time": {ts}, "X-Sign": {base64.StdEncoding.EncodeToString(mac([]byte(secret), []byte(ts+":"+body)))}}
}

// TestWebhookStorm: one event 17 times over each scheme, with fresh request ids, from two processes, over a rotation of
// secrets and an hour boundary, is one task.
func TestWebhookStorm(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const before, after = "the secret before, long enough", "the secret after, long enough"
	for name, c := range map[string]struct {
		source    string
		old, new  string
		sign      func(t *testing.T, secret, id string, at time.Time, body string) http.Header
		body      func(n int) string
		duplicate int
	}{
		"standard": {
			source: `{scheme: standard-webhooks, kind: event, tenant: storm-standard, previous_secret_env: OLD, secret_env: NEW}`,
			old:    otherSecret, new: goodSecret, sign: standard, body: func(int) string { return `{"type":"paid","id":7}` }, duplicate: 200,
		},
		"stripe": {
			source: `{scheme: stripe, kind: event, tenant: storm-stripe, previous_secret_env: OLD, secret_env: NEW, duplicate_status: 204}`,
			old:    before, new: after, sign: stripe, body: func(int) string { return `{"id":"evt_1","type":"paid"}` }, duplicate: 204,
		},
		"github": {
			source: `{scheme: github, kind: event, tenant: storm-github, previous_secret_env: OLD, secret_env: NEW, duplicate_status: 409}`,
			old:    before, new: after, sign: github, body: func(int) string { return `{"action":"opened"}` }, duplicate: 409,
		},
		"hmac": {
			source: `{scheme: hmac, kind: event, tenant: storm-hmac, previous_secret_env: OLD, secret_env: NEW,
    hmac: {header: X-Sign, timestamp_header: X-Time, signed: "{timestamp}:{body}", encoding: base64},
    key: "{{.shop}}:{{.data.id}}", input: {shop: "{{.shop}}", amount: "{{json .data.amount}}"},
    sample: {shop: s, data: {id: 1, amount: 1}, retry_count: 1}}`,
			old: before, new: after, sign: plain, duplicate: 200,
			body: func(n int) string {
				return fmt.Sprintf(`{"shop":"s","data":{"id":9,"amount":1.50},"retry_count":%d}`, n)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start := time.Date(2026, 1, 1, 10, 58, 0, 0, time.UTC)
			env := map[string]string{"OLD": c.old, "NEW": c.new}
			one := newDoors(t, b, "  s: "+c.source+"\n", env, start)
			two := newDoors(t, b, "  s: "+c.source+"\n", env, start)
			ids, statuses := sync.Map{}, sync.Map{}
			var fresh atomic.Int64
			var all sync.WaitGroup
			for n := range 17 {
				at := start.Add(time.Duration(n) * 15 * time.Second) // over 11:00
				one.now.Store(at.UnixNano())
				two.now.Store(at.UnixNano())
				secret, to := c.old, one
				if n%2 == 1 {
					secret, to = c.new, two
				}
				all.Go(func() {
					h := c.sign(t, secret, "one-event", at, c.body(n))
					h.Set("Request-Id", fmt.Sprintf("r-%s-%d", name, n))
					status, answer := to.post(t, "s", h, []byte(c.body(n)))
					if status == 202 {
						fresh.Add(1)
					}
					statuses.Store(status, answer["detail"])
					if c.duplicate != 204 || status == 202 {
						ids.Store(answer["task_id"], true)
					}
				})
				if n%4 == 3 {
					all.Wait()
				}
			}
			all.Wait()
			if n := count(t, b, "storm-"+name); n != 1 || fresh.Load() != 1 {
				t.Errorf("%d tasks and %d answers 202, want one of each", n, fresh.Load())
			}
			ids.Range(func(id, _ any) bool {
				if id == "" {
					t.Error("an answer names no task")
				}
				return true
			})
			statuses.Range(func(status, detail any) bool {
				if status != 202 && status != c.duplicate {
					t.Errorf("got %v (%v), want 202 or %d", status, detail, c.duplicate)
				}
				return true
			})
		})
	}
}

// A redelivery whose own content differs is answered as a duplicate and changes nothing.
func TestWebhookMismatch(t *testing.T) {
	t.Parallel()
	b := setup(t)
	now := time.Now()
	d := newDoors(t, b, "  s: {scheme: standard-webhooks, kind: event, tenant: mis, secret_env: S}\n", map[string]string{"S": goodSecret}, now)
	_, first := d.post(t, "s", standard(t, goodSecret, "m1", now, `{"amount":1}`), []byte(`{"amount":1}`))
	status, second := d.post(t, "s", standard(t, goodSecret, "m1", now, `{"amount":2}`), []byte(`{"amount":2}`))
	if status != 200 || second["status"] != "mismatch" || second["task_id"] != first["task_id"] || first["task_id"] == "" {
		t.Errorf("got %d %v after %v", status, second, first)
	}
	var input string
	var audited int
	err := b.DB.QueryRow(context.Background(), `
SELECT convert_from(input, 'UTF8'), (SELECT count(*) FROM onefold.audit WHERE action = 'webhook.mismatch' AND target_id = t.id::text)
FROM onefold.tasks AS t WHERE tenant = 'mis'`).Scan(&input, &audited)
	if err != nil || input != `{"amount":1}` || audited != 1 {
		t.Errorf("got the input %s and %d audit entries (%v), want the first input and one entry", input, audited, err)
	}
	if !strings.Contains(d.Log.String(), "webhook differs from the first with its key") {
		t.Error("nothing in the log tells of it")
	}
}

// Ten thousand forged requests store nothing, leave a short log, and stand in the audit to the last one.
func TestForgedWebhooks(t *testing.T) {
	t.Parallel()
	const n, workers = 10_000, 16
	b := setup(t)
	now := time.Now()
	d := newDoors(t, b, "  s: {scheme: github, kind: event, tenant: forged, secret_env: S, rate: 100000, concurrency: 64}\n",
		map[string]string{"S": "a secret that is long enough"}, now)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: workers}}
	var all sync.WaitGroup
	var next, refused atomic.Int64
	for range workers {
		all.Go(func() {
			for i := next.Add(1); i <= n; i = next.Add(1) {
				req, err := http.NewRequest("POST", d.URL+"/v1/ingest/s", strings.NewReader(`{"x":1}`))
				if err != nil {
					t.Error(err)
					return
				}
				req.Header = github(t, fmt.Sprintf("guess %d, long enough", i), "id", now, `{"x":1}`)
				if i%3 == 0 {
					req.Header.Set("X-Hub-Signature-256", "sha256=zz")
				}
				resp, err := client.Do(req)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if resp.StatusCode == 401 {
					refused.Add(1)
				}
			}
		})
	}
	all.Wait()
	var audited int
	err := b.DB.QueryRow(context.Background(), `SELECT sum((details ->> 'count')::int) FROM onefold.audit WHERE action = 'webhook.refused' AND target_id = 's'`).Scan(&audited)
	if err != nil || refused.Load() != n || audited != n {
		t.Errorf("%d refused and %d in the audit (%v), want %d of each", refused.Load(), audited, err, n)
	}
	if stored := count(t, b, "forged"); stored != 0 {
		t.Errorf("%d tasks were stored", stored)
	}
	if lines := strings.Count(d.Log.String(), "\n"); lines > 600 { // one a second, and the machine may be slow
		t.Errorf("the log has %d lines for %d forged requests", lines, n)
	}
}

// A source that floods is told to wait before anything of the body is read, and harms nobody else.
func TestWebhookRate(t *testing.T) {
	t.Parallel()
	b := setup(t)
	now := time.Now()
	d := newDoors(t, b, `
  loud: {scheme: github, kind: event, tenant: loud, secret_env: S, rate: 1, concurrency: 1}
  calm: {scheme: github, kind: event, tenant: calm, secret_env: S}
`, map[string]string{"S": "a secret that is long enough"}, now)
	sign := func(id string) http.Header { return github(t, "a secret that is long enough", id, now, `{}`) }
	if status, _ := d.post(t, "loud", sign("1"), []byte(`{}`)); status != 202 {
		t.Fatalf("got %d, want 202", status)
	}
	conn, err := net.Dial("tcp", d.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "POST /v1/ingest/loud HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n") // and no body
	raw := make([]byte, 1024)
	k, err := conn.Read(raw)
	if err != nil || !strings.HasPrefix(string(raw[:k]), "HTTP/1.1 429 ") || !strings.Contains(string(raw[:k]), "Retry-After: ") {
		t.Errorf("got %q (%v), want 429 with Retry-After while the body is still to come", raw[:k], err)
	}
	if status, _ := d.post(t, "calm", sign("1"), []byte(`{}`)); status != 202 {
		t.Errorf("the other source got %d, want 202", status)
	}
}

func ingestCalls(t *testing.T) []specCall {
	const route, event = "POST /v1/ingest/{source}", `{"model":"m","messages":[]}`
	hook := func(id, body string) specCall {
		return specCall{route: route, id: "hook", key: "-", body: body, header: github(t, hookSecret, id, time.Time{}, body)}
	}
	want := func(c specCall, status int) specCall { c.want = status; return c }
	packed, nosuch, narrow := hook("e2", event), hook("e3", event), hook("e4", event)
	packed.header.Set("Content-Encoding", "gzip")
	nosuch.id, narrow.id = "nosuch", "narrow"
	return []specCall{
		want(hook("e1", event), 202), want(hook("e1", event), 200), want(hook("e5", "[1"), 400), want(hook("e6", `{"m":"`+strings.Repeat("x", 4096)+`"}`), 413),
		want(packed, 415), want(nosuch, 404), want(narrow, 202), want(narrow, 429),
		{route: route, id: "hook", key: "-", body: event, want: 401},
	}
}
