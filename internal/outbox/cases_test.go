package outbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/casetest"
	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/outbox"
	"github.com/onefold-dev/onefold/internal/outbox/outboxtest"
	"github.com/onefold-dev/onefold/internal/outbox/webhook"
	"github.com/onefold-dev/onefold/internal/task"
)

// outbound is the input of a case of webhook_out.
type outbound struct {
	URL      string            `json:"url"`
	DNS      [][]string        `json:"dns"`
	Env      map[string]string `json:"env"`
	Receiver []struct {
		Status   int    `json:"status"`
		Location string `json:"location"`
	} `json:"receiver"`
	Content string   `json:"task_result_content"`
	Steps   []string `json:"steps"`
}

// TestWebhookOutCases takes every case of outbound webhooks: effects in a real database, delivered by the real sender to
// receivers on loopback.
func TestWebhookOutCases(t *testing.T) {
	for _, c := range casetest.Claimed(t, "internal/outbox.TestWebhookOutCases") {
		var in outbound
		if err := json.Unmarshal(c.Input, &in); err != nil {
			t.Fatal(err)
		}
		t.Run(c.ID, func(t *testing.T) {
			switch {
			case len(in.Env) > 0:
				proxied(t, in) // sets the environment: alone
				return
			case c.Kind == "ssrf":
				t.Parallel()
				blockedCase(t, in)
			case c.Kind == "url":
				t.Parallel()
				refusedAddress(t, in)
			case c.Kind == "redirect":
				t.Parallel()
				redirected(t, in)
			case c.Kind == "reply_size":
				t.Parallel()
				endless(t, in.Receiver[0].Status)
			case c.Kind == "bytes":
				t.Parallel()
				sameBytes(t, in.Content)
			default:
				t.Parallel()
				scenario := scenarios[c.ID]
				if scenario == nil {
					t.Fatalf("no scenario for %s: %v", c.ID, in.Steps)
				}
				scenario(t)
			}
		})
	}
}

// scenarios are those told in words, and the slow receiver.
var scenarios = map[string]func(t *testing.T){
	"C228": trickling, "C229": slowOnes, "C230": deadOnes, "C231": lateCommit, "C232": shortOutage, "C233": lateRetry,
}

// at is a bench whose destinations once (unsafe) and safe lead to url, from outside.
func at(t *testing.T, url string, private bool, o *webhook.Opts, effects ...string) *bench {
	t.Helper()
	cfg := withEffects(t, effects...)
	for _, d := range cfg.Destinations {
		d.URL, d.AllowPrivate = config.NewURL(url), private
	}
	s := webhook.New(o)
	t.Cleanup(s.Close)
	return setup(t, cfg, outbox.Opts{Senders: senders(s)})
}

// blockedCase: nothing is dialled, the effect is dead at once with a reason, and a destination of that address is refused
// where it needs no lookup.
func blockedCase(t *testing.T, in outbound) {
	o := &webhook.Opts{}
	if len(in.DNS) > 0 {
		var lists [][][4]byte
		for _, answers := range in.DNS {
			var list [][4]byte
			for _, a := range answers {
				list = append(list, netip.MustParseAddr(a).As4())
			}
			lists = append(lists, list)
		}
		o.Resolver = outboxtest.Resolver(t, lists...)
	} else if err := register(in.URL); err == nil || !strings.Contains(err.Error(), "address") && !strings.Contains(err.Error(), "number") {
		t.Errorf("a destination at %s was taken: %v", in.URL, err)
	}
	b := at(t, in.URL, false, o, toSafe)
	id := b.effect()
	b.box.Work(t.Context(), id)
	expect(t, "effect", b.state(id), "dead epoch 1 attempts 1")
	expect(t, "code", one[string](b, `SELECT error_code FROM onefold.effects`), outbox.CodeBlocked)
	if n := b.wakes(id); n != 0 {
		t.Errorf("%d retries are scheduled, want none", n)
	}
}

func register(url string) error {
	body, _ := json.Marshal(map[string]string{"url": url})
	_, err := config.DestinationFromBody("hook", body, config.Opts{})
	return err
}

func refusedAddress(t *testing.T, in outbound) {
	err := register(in.URL)
	if err == nil {
		t.Fatalf("a destination at %s was taken", in.URL)
	}
	for _, secret := range []string{"pa55", "s3cret"} {
		if strings.Contains(err.Error(), secret) {
			t.Errorf("the refusal tells %s: %v", secret, err)
		}
	}
}

func proxied(t *testing.T, in outbound) {
	var hits atomic.Int32
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) }))
	t.Cleanup(proxy.Close)
	for name := range in.Env {
		t.Setenv(name, proxy.URL)
		t.Setenv(strings.ToLower(name), proxy.URL)
	}
	b := at(t, strings.Replace(in.URL, "hook.test", "hook.invalid", 1), false, nil, toSafe)
	b.box.Work(t.Context(), b.effect())
	if n := hits.Load(); n != 0 {
		t.Errorf("%d requests at the proxy, want none", n)
	}
}

func redirected(t *testing.T, in outbound) {
	var hits, followed atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed.Add(1) }))
	t.Cleanup(other.Close)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/hook" {
			followed.Add(1)
			return
		}
		hits.Add(1)
		w.Header().Set("Location", strings.Replace(in.Receiver[0].Location, "https://other.test", other.URL, 1))
		w.WriteHeader(in.Receiver[0].Status)
	}))
	t.Cleanup(srv.Close)
	b := at(t, srv.URL+"/hook", true, nil, toSafe)
	id := b.effect()
	b.box.Work(t.Context(), id)
	expect(t, "effect", b.state(id), "dead epoch 1 attempts 1")
	expect(t, "code", one[string](b, `SELECT error_code FROM onefold.effects`), outbox.CodeRedirected)
	if hits.Load() != 1 || followed.Load() != 0 {
		t.Errorf("%d requests and %d followed, want 1 and none", hits.Load(), followed.Load())
	}
}

// endless: the receiver writes a gibibyte; the sender hangs up long before, and keeps an excerpt of a failure only.
func endless(t *testing.T, status int) {
	const whole = 1 << 30
	written := make(chan int64, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		n, line := int64(0), make([]byte, 64<<10)
		for n < whole {
			m, err := w.Write(line)
			if n += int64(m); err != nil {
				break
			}
		}
		written <- n
	}))
	t.Cleanup(srv.Close)
	b := at(t, srv.URL, true, nil, toSafe)
	id := b.effect()
	b.box.Work(t.Context(), id)
	want := "delivered epoch 1 attempts 1"
	if status >= 500 {
		want = "waiting epoch 1 attempts 1"
	}
	expect(t, "effect", b.state(id), want)
	if n := <-written; n > whole/4 { // what the kernel's buffers hold is never read
		t.Errorf("the receiver could write %d bytes", n)
	}
	if n := one[int](b, `SELECT coalesce(max(octet_length(reply)), 0) FROM onefold.deliveries`); n > 1024 || status < 500 && n > 0 {
		t.Errorf("%d bytes of the answer are kept", n)
	}
}

// sameBytes: the receiver verifies the signature over the bytes as they came.
func sameBytes(t *testing.T, content string) {
	verifier, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	verified := make(chan error, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var got struct{ Text string }
		err := verifier.Verify(body, r.Header)
		if err == nil && (json.Unmarshal(body, &got) != nil || got.Text != content) {
			err = fmt.Errorf("got %q, want %q", got.Text, content)
		}
		verified <- err
	}))
	t.Cleanup(srv.Close)
	b := at(t, srv.URL, true, nil, `{name: n, type: webhook, destination: safe, body: '{"text": {{json .result.text}}}'}`)
	result, _ := json.Marshal(map[string]string{"text": content})
	if err := b.settle(b.insertTask(api.Succeeded, string(result))); err != nil {
		t.Fatal(err)
	}
	b.box.Work(t.Context(), one[task.ID](b, `SELECT id FROM onefold.effects`))
	if err := <-verified; err != nil {
		t.Error(err)
	}
}

// trickling: one byte of a header a second; the delivery is cut at its limit, and another destination does not wait.
func trickling(t *testing.T) {
	gone := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c, out, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		defer close(gone)
		_, _ = out.WriteString("HTTP/1.1 200 OK\r\nX: ")
		for tick := time.NewTicker(time.Second); ; <-tick.C {
			_, _ = out.WriteString("a")
			if out.Flush() != nil {
				return
			}
		}
	}))
	t.Cleanup(slow.Close)
	alive := receive(t)
	close(alive.open)
	cfg := withEffects(t, toSafe, `{name: alive, type: webhook, destination: once, on: failed}`)
	cfg.Destinations["safe"].URL, cfg.Destinations["once"].URL = config.NewURL(slow.URL), config.NewURL(alive.url)
	b := setup(t, cfg, outbox.Opts{Senders: senders(webhook.New(nil))})
	id := b.effect()
	stop := b.fetch()
	defer stop()
	if err := b.settle(b.insertTask(api.Failed, "")); err != nil {
		t.Fatal(err)
	}
	alive.await(t, 1)
	expect(t, "the slow one meanwhile", b.state(id), "delivering epoch 1 attempts 1")
	select {
	case <-gone:
	case <-time.After(5 * 30 * time.Second):
		t.Fatal("a trickling answer holds the delivery for ever")
	}
}

// slowOnes: fifty deliveries to a receiver that takes its time; a healthy one leaves meanwhile; each arrives once.
func slowOnes(t *testing.T) { crowded(t, 50, true) }

// deadOnes: five hundred effects of a receiver that never answers stand before a healthy one.
func deadOnes(t *testing.T) { crowded(t, 500, false) }

func crowded(t *testing.T, n int, answers bool) {
	hanging, alive := receive(t), receive(t)
	close(alive.open)
	cfg := withEffects(t, toSafe, `{name: alive, type: webhook, destination: once, on: failed}`)
	cfg.Destinations["safe"].URL, cfg.Destinations["once"].URL = config.NewURL(hanging.url), config.NewURL(alive.url)
	b := setup(t, cfg, outbox.Opts{Senders: senders(webhook.New(nil))})
	for range n {
		b.effect()
	}
	stop := b.fetch()
	defer stop()
	hanging.await(t, 8) // all its places
	if err := b.settle(b.insertTask(api.Failed, "")); err != nil {
		t.Fatal(err)
	}
	alive.await(t, 1)
	close(hanging.open)
	if !answers {
		return
	}
	hanging.await(t, n-8)
	if extra := len(hanging.hits); extra != 0 {
		t.Errorf("%d deliveries came twice", extra)
	}
}

// lateCommit: an effect that was inserted before another and committed after it is delivered, too.
func lateCommit(t *testing.T) {
	b := setup(t, withEffects(t, toSafe), outbox.Opts{Senders: senders(answers(200))})
	early := b.insertTask(api.Succeeded, `{"n":1}`)
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if err := move(t.Context(), tx, early); err != nil {
		t.Fatal(err)
	}
	if _, err := b.box.Settle(t.Context(), tx, []outbox.Settled{{Row: early, Kind: b.cfg.Kinds["k"]}}); err != nil {
		t.Fatal(err)
	}
	late := b.effect()
	stop := b.fetch()
	defer stop()
	b.await(late, "delivered")
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.await(one[task.ID](b, `SELECT id FROM onefold.effects WHERE task_id = $1`, early.ID), "delivered")
}

// await waits until an effect is in a state.
func (b *bench) await(id task.ID, state string) {
	b.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for until := time.After(patience); ; {
		if one[string](b, `SELECT state FROM onefold.effects WHERE id = $1`, id) == state {
			return
		}
		select {
		case <-tick.C:
		case <-until:
			b.t.Fatalf("the effect is %s, want %s", b.state(id), state)
		}
	}
}

// shortOutage: nobody answers for ten minutes of the schedule; the effect is delivered all the same.
func shortOutage(t *testing.T) {
	var down time.Duration
	send := func(context.Context, outbox.Delivery) outbox.Outcome {
		if down < 10*time.Minute {
			return outbox.Outcome{Class: outbox.NotSent, Code: outbox.CodeConnect, Message: "m"}
		}
		return answered(200)
	}
	b := setup(t, withEffects(t, toOnce), outbox.Opts{Senders: senders(scripted(send))})
	id := b.effect()
	for range outbox.Schedule {
		b.box.Work(t.Context(), id)
		if one[string](b, `SELECT state FROM onefold.effects`) != "waiting" {
			break
		}
		down += one[time.Duration](b, `SELECT next_at - now() FROM onefold.effects`)
		b.due()
	}
	expect(t, "effect", b.state(id), "delivered epoch 5 attempts 5")
}

// lateRetry: the second try carries the same id and a time of its own, so that a receiver's tolerance lets it in.
func lateRetry(t *testing.T) {
	verifier, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	type hit struct {
		id string
		at int64
		ok error
	}
	hits := make(chan hit, 2)
	var n atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		at, _ := strconv.ParseInt(r.Header.Get("webhook-timestamp"), 10, 64)
		hits <- hit{r.Header.Get("webhook-id"), at, verifier.Verify(body, r.Header)}
		if n.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(srv.Close)
	b := at(t, srv.URL, true, nil, toSafe)
	id := b.effect()
	b.exec(`UPDATE onefold.effects SET created_at = now() - interval '10 min'`)
	b.box.Work(t.Context(), id)
	b.due()
	b.box.Work(t.Context(), id)
	first, second := <-hits, <-hits
	expect(t, "effect", b.state(id), "delivered epoch 2 attempts 2")
	if first.id != second.id || first.id != id.String() || first.ok != nil || second.ok != nil {
		t.Errorf("got %+v and %+v, want one id, both verified", first, second)
	}
	if age := time.Since(time.Unix(second.at, 0)); age > 5*time.Minute || age < -time.Minute {
		t.Errorf("the second is signed for %s ago, want now", age)
	}
}
