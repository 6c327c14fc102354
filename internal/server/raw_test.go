package server_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// rawCall is a request written byte by byte: what a careful client library would
// never send.
type rawCall struct {
	method, path string
	lines        []string // header lines, Host and Authorization apart
	auth         string   // API key; none when empty
	body         []byte
	noLength     bool   // the lines say how long the body is
	version      string // HTTP/1.1 when empty
}

func (c rawCall) bytes() []byte {
	var b bytes.Buffer
	version := c.version
	if version == "" {
		version = "HTTP/1.1"
	}
	fmt.Fprintf(&b, "%s %s %s\r\nHost: onefold.test\r\n", c.method, c.path, version)
	if c.auth != "" {
		fmt.Fprintf(&b, "Authorization: Bearer %s\r\n", c.auth)
	}
	for _, l := range c.lines {
		b.WriteString(l + "\r\n")
	}
	if !c.noLength {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(c.body))
	}
	b.WriteString("\r\n")
	b.Write(c.body)
	return b.Bytes()
}

// sendRaw sends a request on a connection of its own and reads the answer.
func sendRaw(t *testing.T, addr string, c rawCall) reply {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// The answer may come before all is written, and nobody reads on then.
	go func() { _, _ = conn.Write(c.bytes()) }()
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: c.method})
	if err != nil {
		t.Fatalf("read the answer: %v", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("read the answer's body: %v", err)
	}
	return read(t, resp, body)
}

const jsonLine = "Content-Type: application/json"

// postTask is a submit with the key header lines given.
func postTask(auth string, body []byte, lines ...string) rawCall {
	return rawCall{method: "POST", path: "/v1/tasks", auth: auth, body: body, lines: append([]string{jsonLine}, lines...)}
}

func keyLine(key string) string { return "Idempotency-Key: " + key }

// chunked frames a body in chunks of n bytes.
func chunked(body string, n int) []byte {
	var b strings.Builder
	for len(body) > 0 {
		part := body[:min(n, len(body))]
		fmt.Fprintf(&b, "%x\r\n%s\r\n", len(part), part)
		body = body[len(part):]
	}
	return []byte(b.String() + "0\r\n\r\n")
}
