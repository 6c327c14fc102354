package telemetry_test

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/onefold-dev/onefold/internal/telemetry"
)

func TestScrubURL(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"https://api.example.com/v1/chat":             "https://api.example.com/v1/chat",
		"https://u:CANARY@h:8443/a%2Fb?key=CANARY#C":  "https://h:8443/a%2Fb",
		"postgres://u:CANARY@db/x?sslpassword=CANARY": "postgres://db/x",
		"/v1/tasks?key=CANARY":                        "/v1/tasks",
		"mailto:CANARY@x":                             "[redacted]",
		"https://h/%zz?CANARY":                        "[redacted]",
		"":                                            "",
	} {
		if got := telemetry.ScrubURL(in); got != want {
			t.Errorf("%s: got %q, want %q", in, got, want)
		}
	}
}

func TestScrubError(t *testing.T) {
	t.Parallel()
	refused := &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 443}, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	noHost := &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "api.example.com", IsNotFound: true}}
	withKey := func(err error) error {
		return &url.Error{Op: "Post", URL: "https://u:CANARY@api.example.com/v1?key=CANARY", Err: err}
	}
	_, badDSN := pgconn.ParseConfig("postgres://u:CANARY@h/db?sslmode=nonsense")
	unique := &pgconn.PgError{Severity: "ERROR", Code: "23505", Message: `duplicate key value violates unique constraint "invoices_pkey"`, Detail: "Key (number)=(CANARY) already exists.", ConstraintName: "invoices_pkey"}
	syntax := &pgconn.PgError{Severity: "ERROR", Code: "22P02", Message: `invalid input syntax for type integer: "CANARY"`, Where: "CANARY"}
	raised := &pgconn.PgError{Severity: "ERROR", Code: "P0001", Message: "CANARY", Hint: "CANARY"}
	for _, c := range []struct {
		name string
		err  error
		want string
	}{
		{"nil", nil, ""},
		{"plain", errors.New("record attempt 3: no rows"), "record attempt 3: no rows"},
		{"url", fmt.Errorf("call: %w", withKey(refused)), "call: Post https://api.example.com/v1: dial tcp 10.0.0.1:443: connect: connection refused"},
		{"dns", withKey(noHost), "Post https://api.example.com/v1: dial tcp: lookup api.example.com: no such host"},
		{"joined", errors.Join(errors.New("a"), withKey(errors.New("b"))), "a Post https://api.example.com/v1: b"},
		{"unique", fmt.Errorf("insert: %w", unique), `insert: postgres error 23505: duplicate key value violates unique constraint "invoices_pkey"`},
		{"data in message", fmt.Errorf("insert: %w", syntax), "insert: postgres error 22P02"},
		{"raised by a trigger", raised, "postgres error P0001"},
		{"dsn", fmt.Errorf("open: %w", badDSN), "open: the database URL is malformed"},
		{"two texts", fmt.Errorf("%w: %w", unique, syntax), `postgres error 23505: duplicate key value violates unique constraint "invoices_pkey": postgres error 22P02`},
		{"provider", errors.New("401: Incorrect API key provided: sk-CANARY2****wxyz. You can find it at https://p.example/keys?x=CANARY."), "401: Incorrect API key provided: [redacted] You can find it at https://p.example/keys."},
		{"own key", errors.New("key of_abc_CANARYCANARY is unknown"), "key [redacted] is unknown"},
		{"header", errors.New("Authorization: Bearer CANARY.x-y"), "Authorization: [redacted] [redacted]"},
		{"pairs", errors.New(`host=h password=CANARY user=x api_key: "CANARY" x-api-key:CANARY`), `host=h password=[redacted] user=x api_key: [redacted] x-api-key:[redacted]`},
		{"controls", errors.New("a\x00b\nc\x1b[31m\xff\u202e"), "ab c\uFFFD[31m\uFFFD\uFFFD"},
	} {
		got := telemetry.ScrubError(c.err)
		if strings.Contains(got, canary) {
			t.Errorf("%s: leaks: %s", c.name, got)
		}
		if got != c.want {
			t.Errorf("%s:\ngot  %q\nwant %q", c.name, got, c.want)
		}
	}
}

func TestScrubConnectError(t *testing.T) {
	t.Parallel()
	_, err := pgconn.Connect(t.Context(), "postgres://someone:CANARY@127.0.0.1:1/db?connect_timeout=5")
	var ce *pgconn.ConnectError
	if !errors.As(err, &ce) {
		t.Fatalf("got %T %v, want a ConnectError", err, err)
	}
	got := telemetry.ScrubError(fmt.Errorf("ping: %w", err))
	if !strings.HasPrefix(got, "ping: connect to the database: ") || strings.Contains(got, canary) || strings.Contains(got, "someone") {
		t.Errorf("got %q", got)
	}
}

func TestScrubbedTextIsShortAndWellFormed(t *testing.T) {
	t.Parallel()
	for _, s := range []string{strings.Repeat("ä", 100_000), strings.Repeat("\xff", 100_000), strings.Repeat("a ", 100_000)} {
		got := telemetry.ScrubText(s)
		if len(got) > 1024 || !utf8.ValidString(got) || got == "" {
			t.Errorf("got %d bytes, valid %v", len(got), utf8.ValidString(got))
		}
	}
}

func FuzzScrubText(f *testing.F) {
	f.Add("Bearer x https://a:b@c/d?e password=x sk-abcdef \x00\xff")
	f.Fuzz(func(t *testing.T, s string) {
		got := telemetry.ScrubText(s)
		if len(got) > 1024 || !utf8.ValidString(got) || strings.ContainsAny(got, "\x00\n\r") {
			t.Errorf("%q gives %q", s, got)
		}
		secret := "sk-" + canary + "0123456789"
		if got := telemetry.ScrubText("key " + secret + " " + s); strings.Contains(got, canary+"0123") {
			t.Errorf("a key before %q is seen in %q", s, got)
		}
	})
}

func TestTraceID(t *testing.T) {
	t.Parallel()
	const id = "4bf92f3577b34da6a3ce929d0e0e4736"
	for in, want := range map[string]string{
		"00-" + id + "-00f067aa0ba902b7-01":                      id,
		" 00-" + id + "-00f067aa0ba902b7-00 ":                    id,
		"01-" + id + "-00f067aa0ba902b7-01-more":                 id,
		"01-" + id + "-00f067aa0ba902b7-01":                      id,
		"00-" + id + "-00f067aa0ba902b7-01-more":                 "",
		"01-" + id + "-00f067aa0ba902b7-01more":                  "",
		"ff-" + id + "-00f067aa0ba902b7-01":                      "",
		"00-" + strings.ToUpper(id) + "-00f067aa0ba902b7-01":     "",
		"00-" + strings.Repeat("0", 32) + "-00f067aa0ba902b7-01": "",
		"00-" + id + "-0000000000000000-01":                      "",
		"00-" + id + "-00f067aa0ba902b7-0":                       "",
		"00_" + id + "-00f067aa0ba902b7-01":                      "",
		"":                                                       "",
	} {
		got, ok := telemetry.TraceID(in)
		if got != want || ok != (want != "") {
			t.Errorf("%q: got %q, %v, want %q", in, got, ok, want)
		}
	}
}

func TestRequestID(t *testing.T) {
	t.Parallel()
	a, b := telemetry.NewRequestID(), telemetry.NewRequestID()
	if a == b || len(a) != 36 || telemetry.RequestID(a) != a {
		t.Errorf("got %q and %q", a, b)
	}
	for _, bad := range []string{"", "a b", "a\nb", "ä", "<x>", strings.Repeat("x", 129)} {
		if got := telemetry.RequestID(bad); got == bad || !strings.HasPrefix(got, "req_") {
			t.Errorf("%q: got %q", bad, got)
		}
	}
}
