package email_test

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/onefold-dev/onefold/internal/outbox"
	"github.com/onefold-dev/onefold/internal/outbox/email"
	"github.com/onefold-dev/onefold/internal/outbox/outboxtest"
	"github.com/onefold-dev/onefold/internal/task"
	"github.com/onefold-dev/onefold/internal/telemetry"
)

func fill(d *outbox.Delivery, _ *outboxtest.Receiver) {
	d.From, d.Plaintext = "Billing <billing@example.com>", true
	d.Headers = map[string]string{"To": "a@example.org", "Subject": "s"}
}

func TestSuite(t *testing.T) {
	t.Parallel()
	outboxtest.Run(t, outboxtest.Kind{
		Sender: email.New(nil), Prepare: fill, Fails: outbox.NotSent, Endless: outbox.Unclear, Lines: true,
		Start: func(t *testing.T, b outboxtest.Behaviour) *outboxtest.Receiver {
			return outboxtest.StartMail(t, b, &outboxtest.MailServer{}).Receiver
		},
	})
}

// to is a mail to a server that asks for TLS and a password.
func to(s *outboxtest.MailServer) outbox.Delivery {
	return outbox.Delivery{
		ID: task.NewID(), CreatedAt: time.Date(2026, 3, 1, 12, 30, 5, 999, time.UTC), Attempt: 1, Body: []byte("Grüße,\n.\n" + strings.Repeat("long ", 40) + "\n"),
		URL: telemetry.NewSecret(s.URL), AllowPrivate: true, From: "Büro <billing@example.com>", User: s.User, Credential: telemetry.NewSecret(s.Password),
		Headers: map[string]string{"To": "Ä <a@example.org>, b@example.org", "Subject": "Rechnung für März", "Reply-To": "help@example.com"},
	}
}

// certificates are a server's side and a client's that trusts it.
func certificates(t *testing.T) (server, client *tls.Config) {
	t.Helper()
	srv := httptest.NewTLSServer(nil)
	t.Cleanup(srv.Close)
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	return srv.TLS.Clone(), &tls.Config{RootCAs: roots}
}

// TestMail: what a mail program shows, over STARTTLS and over TLS from the first byte; a repeat is the same bytes.
func TestMail(t *testing.T) {
	t.Parallel()
	server, client := certificates(t)
	for _, implicit := range []bool{false, true} {
		s := outboxtest.StartMail(t, outboxtest.Accept, &outboxtest.MailServer{TLS: server, User: "u", Password: "p w", Implicit: implicit})
		sender := email.New(&email.Opts{TLS: client, Agent: "onefold/1"})
		d := to(s)
		for range 2 {
			if out := sender.Send(t.Context(), d); out.Class != outbox.Answered || out.Status != 250 {
				t.Fatalf("implicit %t: got %+v, want 250", implicit, out)
			}
		}
		got := s.Mails()
		if len(got) != 2 || got[0].Raw != got[1].Raw {
			t.Fatalf("got %d mails, the second like the first: %t", len(got), len(got) == 2 && got[0].Raw == got[1].Raw)
		}
		m := got[0]
		if m.Subject != "Rechnung für März" || m.Text != string(d.Body) || m.From != "MAIL FROM:<billing@example.com> BODY=8BITMIME" ||
			strings.Join(m.To, " ") != "RCPT TO:<a@example.org> RCPT TO:<b@example.org>" {
			t.Errorf("got %+v", m)
		}
		for name, want := range map[string]string{
			"Message-Id": "<" + d.ID.String() + "@example.com>", "Date": "Sun, 01 Mar 2026 12:30:05 +0000", "Reply-To": "help@example.com",
			"User-Agent": "onefold/1", "Content-Type": "text/plain; charset=UTF-8", "X-Mailer": "",
		} {
			if got := m.Header.Get(name); got != want {
				t.Errorf("%s: got %q, want %q", name, got, want)
			}
		}
	}
}

// TestAnswers: what each word of a server means.
func TestAnswers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		command, says string
		class         outbox.Class
		status, like  int
		mails         int
	}{
		{"EHLO", "421 4.3.2 closing", outbox.NotSent, 0, 0, 0},
		{"MAIL", "550 5.1.8 no such sender", outbox.Answered, 550, 400, 0},
		{"MAIL", "530 5.7.0 log in", outbox.Answered, 530, 401, 0},
		{"RCPT", "550 5.1.1 unknown", outbox.Answered, 550, 400, 0},
		{"RCPT", "450 4.2.0 greylisted", outbox.NotSent, 0, 0, 0},
		{"DATA", "451 4.3.0 later", outbox.NotSent, 0, 0, 0},
		{".", "552 5.3.4 too large", outbox.Answered, 552, 400, 1},
		{".", "452 4.3.1 full", outbox.NotSent, 0, 0, 1},
		{".", "250 2.0.0 queued", outbox.Answered, 250, 0, 1},
	} {
		s := outboxtest.StartMail(t, outboxtest.Accept, &outboxtest.MailServer{Say: func(command, _ string) string {
			if command == c.command || c.command == "EHLO" && command == "HELO" {
				return c.says
			}
			return ""
		}})
		d := to(s)
		d.Plaintext, d.Credential = true, telemetry.Secret{}
		out := email.New(nil).Send(t.Context(), d)
		if out.Class != c.class || out.Status != c.status || out.Like != c.like || len(s.Mails()) != c.mails {
			t.Errorf("%s %s: got %+v and %d mails, want %s %d like %d and %d", c.command, c.says, out, len(s.Mails()), c.class, c.status, c.like, c.mails)
		}
	}
}

// TestRefused: what is never sent, and what the reason is.
func TestRefused(t *testing.T) {
	t.Parallel()
	server, client := certificates(t)
	for name, c := range map[string]struct {
		server *outboxtest.MailServer
		opts   email.Opts
		change func(*outbox.Delivery)
		class  outbox.Class
		like   int
		code   string
	}{
		"no STARTTLS":       {class: outbox.NotSent, code: outbox.CodeTLS},
		"unknown authority": {server: &outboxtest.MailServer{TLS: server}, class: outbox.NotSent, code: outbox.CodeTLS},
		"unknown authority, implicit": {
			server: &outboxtest.MailServer{TLS: server, Implicit: true}, class: outbox.NotSent, code: outbox.CodeTLS,
		},
		"wrong password": {
			server: &outboxtest.MailServer{TLS: server, User: "u", Password: "p"}, opts: email.Opts{TLS: client},
			change: func(d *outbox.Delivery) { d.Credential = telemetry.NewSecret("wrong") }, class: outbox.Answered, like: 401,
		},
		"no way to log in": {
			server: &outboxtest.MailServer{TLS: server}, opts: email.Opts{TLS: client},
			change: func(d *outbox.Delivery) { d.Credential = telemetry.NewSecret("p") }, class: outbox.Answered, like: 401,
		},
		"bad recipient": {
			change: func(d *outbox.Delivery) { d.Headers["To"] = "nobody" }, class: outbox.Answered, like: 400, code: email.CodeMessage,
		},
		"a line break in a recipient": {
			change: func(d *outbox.Delivery) { d.Headers["To"] = "a@example.org>\r\nRCPT TO:<b@example.org" }, class: outbox.Answered, like: 400, code: email.CodeMessage,
		},
		"a check": {change: func(d *outbox.Delivery) { d.Check = true }, class: outbox.Blocked, code: outbox.CodeBadURL},
		"http":    {change: func(d *outbox.Delivery) { d.URL = telemetry.NewSecret("http://127.0.0.1/") }, class: outbox.Blocked, code: outbox.CodeBadURL},
	} {
		s := outboxtest.StartMail(t, outboxtest.Accept, cmp.Or(c.server, &outboxtest.MailServer{}))
		d := to(s)
		if c.change != nil {
			c.change(&d)
		}
		out := email.New(&c.opts).Send(t.Context(), d)
		if out.Class != c.class || out.Like != c.like || c.code != "" && out.Code != c.code || len(s.Mails()) != 0 {
			t.Errorf("%s: got %+v and %d mails, want %s like %d, code %q, none", name, out, len(s.Mails()), c.class, c.like, c.code)
		}
	}
}
