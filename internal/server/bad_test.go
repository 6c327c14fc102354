package server_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/auth"
)

// stored is what a refused request must leave at zero, audit of keys apart.
func (b *bundle) stored(t *testing.T, tenant string) (n int) {
	t.Helper()
	err := b.DB.QueryRow(context.Background(), `
SELECT (SELECT count(*) FROM onefold.tasks WHERE tenant = $1) + (SELECT count(*) FROM onefold.audit WHERE tenant = $1 AND target_type = 'task')`,
		tenant).Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

const marker = "xyzzy" // stands in bodies, must stand in no answer and no log line

func gzipped(s string) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write([]byte(s))
	_ = w.Close()
	return b.Bytes()
}

// input wraps the text of an input into a submit.
func input(text string) []byte { return []byte(`{"kind":"llm.chat","input":` + text + `}`) }

// TestBadSubmits is the list of what a caller can get wrong in a submit: each
// is a clear problem, and nothing is stored.
func TestBadSubmits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	good := input(`{"model":"m","messages":[],"x":"` + marker + `"}`)
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	gz := append([]string{"Content-Encoding: gzip"}, keyLine("k"))
	post := func(body []byte, lines ...string) rawCall { return postTask(b.Key, body, lines...) }
	plain := func(body []byte, lines ...string) rawCall {
		return rawCall{method: "POST", path: "/v1/tasks", auth: b.Key, body: body, lines: lines}
	}
	for name, c := range map[string]struct {
		call  rawCall
		want  api.Code
		field string
	}{
		"key missing":               {post(good), api.CodeKeyMissing, "Idempotency-Key"},
		"key empty":                 {post(good, keyLine("")), api.CodeKeyBlank, "Idempotency-Key"},
		"key of spaces":             {post(good, keyLine(" \t ")), api.CodeKeyBlank, "Idempotency-Key"},
		"key of quoted nothing":     {post(good, keyLine(`""`)), api.CodeKeyBlank, "Idempotency-Key"},
		"key twice":                 {post(good, keyLine("a"), keyLine("a")), api.CodeKeyRepeated, "Idempotency-Key"},
		"two keys that differ":      {post(good, keyLine("a"), "X-Idempotency-Key: b"), api.CodeKeyConflict, "Idempotency-Key"},
		"key of 256 bytes":          {post(good, keyLine(strings.Repeat("k", 256))), api.CodeKeyTooLong, "Idempotency-Key"},
		"key in Latin-1":            {post(good, keyLine("caf\xe9")), api.CodeKeyMalformed, "Idempotency-Key"},
		"key in UTF-8":              {post(good, keyLine("café")), api.CodeKeyMalformed, "Idempotency-Key"},
		"key with a tab":            {post(good, keyLine("a\tb")), api.CodeKeyMalformed, "Idempotency-Key"},
		"key with a broken quote":   {post(good, keyLine(`"a`)), api.CodeKeyMalformed, "Idempotency-Key"},
		"key of onefold's own":      {post(good, keyLine("onefold:task:1")), api.CodeKeyReserved, "Idempotency-Key"},
		"no body":                   {plain(nil, keyLine("k")), api.CodeInvalidJSON, ""},
		"empty body":                {post(nil, keyLine("k")), api.CodeInvalidJSON, ""},
		"not JSON":                  {post([]byte(marker), keyLine("k")), api.CodeInvalidJSON, ""},
		"cut JSON":                  {post(good[:len(good)-1], keyLine("k")), api.CodeInvalidJSON, ""},
		"an array":                  {post([]byte(`["`+marker+`"]`), keyLine("k")), api.CodeInvalidJSON, ""},
		"a byte order mark":         {post(append([]byte("\xef\xbb\xbf"), good...), keyLine("k")), api.CodeByteOrderMark, ""},
		"two values":                {post(append(append([]byte{}, good...), good...), keyLine("k")), api.CodeTrailingData, ""},
		"a member twice":            {post(input(`{"model":"m","a":"`+marker+`","a":1}`), keyLine("k")), api.CodeDuplicateMember, "input.a"},
		"kind twice":                {post([]byte(`{"kind":"llm.chat","kind":"open","input":{}}`), keyLine("k")), api.CodeDuplicateMember, "kind"},
		"ill-formed UTF-8":          {post(input("{\"model\":\"m\",\"p\":\"\xff\"}"), keyLine("k")), api.CodeInvalidUnicode, "input.p"},
		"half a surrogate pair":     {post(input(`{"model":"m","p":"\ud800"}`), keyLine("k")), api.CodeInvalidUnicode, "input.p"},
		"U+0000":                    {post(input(`{"model":"m","p":"a\u0000b"}`), keyLine("k")), api.CodeNULCharacter, "input.p"},
		"U+0000 in metadata":        {post([]byte(`{"kind":"llm.chat","input":{"model":"m"},"metadata":{"a":"\u0000"}}`), keyLine("k")), api.CodeNULCharacter, "metadata.a"},
		"nested too deep":           {post(input(`{"model":"m","x":`+deep(201)+`}`), keyLine("k")), api.CodeTooDeep, ""},
		"a huge exponent":           {post(input(`{"model":"m","n":1e9999999}`), keyLine("k")), api.CodeNumberRange, "input.n"},
		"no kind":                   {post([]byte(`{"input":{}}`), keyLine("k")), api.CodeInvalidField, "kind"},
		"no input":                  {post([]byte(`{"kind":"llm.chat"}`), keyLine("k")), api.CodeInvalidField, "input"},
		"unknown kind":              {post([]byte(`{"kind":"nosuch","input":{}}`), keyLine("k")), api.CodeUnknownKind, "kind"},
		"unknown field":             {post([]byte(`{"kind":"llm.chat","input":{},"inputs":"`+marker+`"}`), keyLine("k")), api.CodeUnknownField, "inputs"},
		"field in another case":     {post([]byte(`{"Kind":"llm.chat","input":{}}`), keyLine("k")), api.CodeUnknownField, "Kind"},
		"no model":                  {post(input(`{"messages":[]}`), keyLine("k")), api.CodeInvalidInput, ""},
		"model in capitals":         {post(input(`{"MODEL":"m","model":"n"}`), keyLine("k")), api.CodeInvalidInput, ""},
		"priority out of range":     {post([]byte(`{"kind":"llm.chat","input":{"model":"m"},"priority":10}`), keyLine("k")), api.CodeInvalidField, "priority"},
		"deadline in the past":      {post([]byte(`{"kind":"llm.chat","input":{"model":"m"},"deadline":"2001-01-01T00:00:00Z"}`), keyLine("k")), api.CodeInvalidField, "deadline"},
		"run_at without a zone":     {post([]byte(`{"kind":"llm.chat","input":{"model":"m"},"run_at":"2031-01-01T00:00:00"}`), keyLine("k")), api.CodeInvalidField, "run_at"},
		"dedupe of another mode":    {post([]byte(`{"kind":"llm.chat","input":{"model":"m"},"dedupe":"none"}`), keyLine("k")), api.CodeDedupeMismatch, "dedupe"},
		"too large":                 {post(input(`{"model":"m","p":"`+strings.Repeat("x", 9<<20)+`"}`), keyLine("k")), api.CodeTooLarge, ""},
		"too large, in chunks":      {rawCall{method: "POST", path: "/v1/tasks", auth: b.Key, noLength: true, lines: []string{jsonLine, keyLine("k"), "Transfer-Encoding: chunked"}, body: chunked(string(input(`{"model":"m","p":"`+strings.Repeat("x", 9<<20)+`"}`)), 1<<20)}, api.CodeTooLarge, ""},
		"broken chunks":             {rawCall{method: "POST", path: "/v1/tasks", auth: b.Key, noLength: true, lines: []string{jsonLine, keyLine("k"), "Transfer-Encoding: chunked"}, body: []byte("zz\r\n")}, api.CodeInvalidJSON, ""},
		"gzip":                      {plain(gzipped(string(good)), append(gz, jsonLine)...), api.CodeEncoding, "Content-Encoding"},
		"another charset":           {plain(good, keyLine("k"), "Content-Type: application/json; charset=iso-8859-1"), api.CodeEncoding, "Content-Type"},
		"no Content-Type":           {plain(good, keyLine("k")), api.CodeMediaType, "Content-Type"},
		"two Content-Types":         {plain(good, keyLine("k"), jsonLine, jsonLine), api.CodeMediaType, "Content-Type"},
		"a form":                    {plain(good, keyLine("k"), "Content-Type: application/x-www-form-urlencoded"), api.CodeMediaType, "Content-Type"},
		"text":                      {plain(good, keyLine("k"), "Content-Type: text/plain"), api.CodeMediaType, "Content-Type"},
		"a broken Content-Type":     {plain(good, keyLine("k"), "Content-Type: ;;"), api.CodeMediaType, "Content-Type"},
		"wait too long":             {rawCall{method: "POST", path: "/v1/tasks?wait=61s", auth: b.Key, body: good, lines: []string{jsonLine, keyLine("k")}}, api.CodeInvalidParam, "wait"},
		"unknown parameter":         {rawCall{method: "POST", path: "/v1/tasks?waits=6s", auth: b.Key, body: good, lines: []string{jsonLine, keyLine("k")}}, api.CodeInvalidParam, "waits"},
		"two Authorization headers": {post(good, keyLine("k"), "Authorization: Bearer "+b.Key), api.CodeUnauthorized, "Authorization"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := sendRaw(t, b.Addr, c.call)
			checkProblem(t, r)
			if r.problem.Code != c.want || c.field != "" && r.problem.Field != c.field {
				t.Errorf("got %s about %q, want %s about %q: %s", r.problem.Code, r.problem.Field, c.want, c.field, r.body)
			}
			if bytes.Contains(r.body, []byte(marker)) {
				t.Errorf("the answer shows what was sent: %s", r.body)
			}
		})
	}
	t.Cleanup(func() {
		if n := b.stored(t, "a"); n != 0 {
			t.Errorf("%d rows were stored", n)
		}
		if strings.Contains(b.Log.String(), marker) {
			t.Errorf("the log shows what was sent")
		}
	})
}

// Requests that net/http refuses before any handler are problems, too.
func TestNotHTTP(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, c := range map[string]struct {
		rawCall
		want   api.Code
		detail string
	}{
		"two lengths that differ":  {rawCall{method: "POST", path: "/v1/tasks", auth: b.Key, lines: []string{jsonLine, keyLine("k"), "Content-Length: 5"}, body: []byte(chat)}, api.CodeInvalidParam, ""},
		"a negative length":        {rawCall{method: "POST", path: "/v1/tasks", auth: b.Key, noLength: true, lines: []string{"Content-Length: -1"}}, api.CodeInvalidParam, ""},
		"another transfer coding":  {rawCall{method: "POST", path: "/v1/tasks", auth: b.Key, lines: []string{jsonLine, keyLine("k"), "Transfer-Encoding: gzip"}, body: []byte(chat)}, api.CodeEncoding, "Transfer-Encoding"},
		"a NUL in the key":         {postTask(b.Key, []byte(chat), keyLine("a\x00b")), api.CodeInvalidParam, ""},
		"a control in the key":     {postTask(b.Key, []byte(chat), keyLine("a\x01b")), api.CodeInvalidParam, ""},
		"64 KiB of headers":        {postTask(b.Key, []byte(chat), keyLine("k"), "X-Long: "+strings.Repeat("x", 64<<10)), api.CodeTooLarge, "headers"},
		"a space in a header name": {postTask(b.Key, []byte(chat), "Idempotency Key: a"), api.CodeInvalidParam, ""},
		"no version":               {rawCall{method: "POST", path: "/v1/tasks HTTP/9.9 x", auth: b.Key, body: []byte(chat)}, api.CodeInvalidParam, ""},
		"HTTP/9":                   {rawCall{method: "GET", path: "/v1/tasks", version: "HTTP/9.0", auth: b.Key}, api.CodeInvalidParam, "protocol version"},
		"two hosts":                {rawCall{method: "GET", path: "/v1/tasks", auth: b.Key, lines: []string{"Host: other"}}, api.CodeInvalidParam, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := sendRaw(t, b.Addr, c.rawCall)
			checkProblem(t, r)
			if r.problem.Code != c.want || !strings.Contains(r.problem.Message, c.detail) {
				t.Errorf("got %d %s, want %s about %q", r.status, r.body, c.want, c.detail)
			}
			b.logLine(t, r.problem.RequestID)
		})
	}
	t.Cleanup(func() {
		if n := b.stored(t, "a"); n != 0 {
			t.Errorf("%d rows were stored", n)
		}
	})
}

// A folded header line is one value to net/http, with a space in it.
func TestFoldedKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := sendRaw(t, b.Addr, postTask(b.Key, []byte(chat), keyLine("a"), " b"))
	checkProblem(t, r)
	if r.problem.Code != api.CodeKeyMalformed {
		t.Errorf("got %s, want %s", r.body, api.CodeKeyMalformed)
	}
}

func TestWhoIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := context.Background()
	expired := b.key(t, "expired", api.ScopeSubmit, api.ScopeRead)
	revoked := b.key(t, "revoked", api.ScopeSubmit, api.ScopeRead)
	for _, sql := range []string{
		`UPDATE onefold.api_keys SET expires_at = now() - interval '1 s' WHERE tenant = 'expired'`,
		`UPDATE onefold.api_keys SET revoked_at = now() WHERE tenant = 'revoked'`,
	} {
		if _, err := b.DB.Exec(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
	reader := b.key(t, "a", api.ScopeRead)
	submitter := b.key(t, "a", api.ScopeSubmit)
	instance := b.key(t, auth.AnyTenant, api.ScopeAdmin)
	task := b.submit(t, "k", chat).task
	before := b.stored(t, "a")
	for name, c := range map[string]struct {
		call
		want api.Code
	}{
		"no key":                     {call{method: "GET", path: "/v1/tasks", key: "-"}, api.CodeUnauthorized},
		"no key, with a body":        {call{method: "POST", path: "/v1/tasks", key: "-", idem: "x", body: chat}, api.CodeUnauthorized},
		"nonsense":                   {call{method: "GET", path: "/v1/tasks", key: "nonsense"}, api.CodeUnauthorized},
		"an expired key":             {call{method: "POST", path: "/v1/tasks", key: expired, idem: "x", body: chat}, api.CodeUnauthorized},
		"a revoked key":              {call{method: "POST", path: "/v1/tasks", key: revoked, idem: "x", body: chat}, api.CodeUnauthorized},
		"submit with read":           {call{method: "POST", path: "/v1/tasks", key: reader, idem: "x", body: chat}, api.CodeForbidden},
		"read with submit":           {call{method: "GET", path: "/v1/tasks/" + task.ID, key: submitter}, api.CodeForbidden},
		"list with submit":           {call{method: "GET", path: "/v1/tasks", key: submitter}, api.CodeForbidden},
		"retry with submit":          {call{method: "POST", path: "/v1/tasks/" + task.ID + "/retry", key: submitter, body: `{"epoch":0}`}, api.CodeForbidden},
		"resolve with submit":        {call{method: "POST", path: "/v1/tasks/" + task.ID + "/resolve", key: submitter, body: `{"epoch":0}`}, api.CodeForbidden},
		"cancel with read":           {call{method: "POST", path: "/v1/tasks/" + task.ID + "/cancel", key: reader}, api.CodeForbidden},
		"submit with the instance's": {call{method: "POST", path: "/v1/tasks", key: instance, idem: "x", body: chat}, api.CodeForbidden},
	} {
		r := b.do(t, c.call)
		checkProblem(t, r)
		if r.problem.Code != c.want {
			t.Errorf("%s: got %s, want %s", name, r.problem.Code, c.want)
		}
		if got := r.header.Get("WWW-Authenticate"); (got != "") != (r.status == http.StatusUnauthorized) {
			t.Errorf("%s: got WWW-Authenticate %q with %d", name, got, r.status)
		}
	}
	if n := b.stored(t, "a"); n != before {
		t.Errorf("%d rows were stored by refused requests", n-before)
	}
}

// The key is checked before the body is read: who is not let in cannot make the
// server read megabytes.
func TestAuthenticatesBeforeReading(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := sendRaw(t, b.Addr, rawCall{ // the body is announced and never sent
		method: "POST", path: "/v1/tasks", noLength: true, lines: []string{jsonLine, keyLine("k"), "Content-Length: 8000000", "Expect: 100-continue"},
	})
	if r.status != http.StatusUnauthorized {
		t.Errorf("got %d, want 401 without a byte of the body", r.status)
	}
}

// Whoever is refused before its body is read hears so although the body does not come, whatever refuses it.
func TestAnswersBeforeTheBodyComes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for path, want := range map[string]string{
		"/v1/tasks": "401", "/v1/tasks?nosuch=1": "4", "/nosuch": "404", "/v1/ingest/nosuch": "404",
	} {
		conn, err := net.Dial("tcp", b.Addr)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n", path)
		raw := make([]byte, 256)
		if n, err := conn.Read(raw); err != nil || !strings.HasPrefix(string(raw[:n]), "HTTP/1.1 "+want) {
			t.Errorf("%s: got %q (%v), want %s", path, raw[:n], err, want)
		}
		conn.Close()
	}
}

func TestPathsAndMethods(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, c := range []struct {
		method, path string
		want         api.Code
		allow        string
	}{
		{"GET", "/", api.CodeNotFound, ""},
		{"GET", "/nothing", api.CodeNotFound, ""},
		{"GET", "/v1", api.CodeNotFound, ""},
		{"GET", "/v1/tasks/", api.CodeNotFound, ""},
		{"POST", "//v1/tasks", api.CodeNotFound, ""},
		{"POST", "/v1/../v1/tasks", api.CodeNotFound, ""},
		{"GET", "/v1/tasks/x/y", api.CodeNotFound, ""},
		{"GET", "/debug/pprof/", api.CodeNotFound, ""},
		{"GET", "/metrics", api.CodeNotFound, ""},
		{"DELETE", "/v1/tasks", api.CodeMethod, "GET, HEAD, POST"},
		{"PUT", "/v1/tasks/" + fmt.Sprintf("%036d", 0), api.CodeMethod, "GET, HEAD"},
		{"GET", "/v1/tasks/x/cancel", api.CodeMethod, "POST"},
		{"OPTIONS", "/v1/tasks", api.CodeMethod, "GET, HEAD, POST"},
		{"BREW", "/healthz", api.CodeMethod, "GET, HEAD"},
	} {
		r := sendRaw(t, b.Addr, rawCall{method: c.method, path: c.path, auth: b.Key})
		checkProblem(t, r)
		if r.problem.Code != c.want || r.header.Get("Allow") != c.allow {
			t.Errorf("%s %s: got %s, Allow %q, want %s, %q", c.method, c.path, r.problem.Code, r.header.Get("Allow"), c.want, c.allow)
		}
	}
}
