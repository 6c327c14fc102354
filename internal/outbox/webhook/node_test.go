package webhook_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/onefold-dev/onefold/internal/outbox"
)

// javascript is node, and a folder with the Standard Webhooks library for JavaScript, at the versions of package-lock.json.
func javascript(t *testing.T) (node, folder string) {
	t.Helper()
	node, noNode := exec.LookPath("node")
	npm, noNPM := exec.LookPath("npm")
	if err := errors.Join(noNode, noNPM); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("CI has to have node and npm: %v", err)
		}
		t.Skipf("needs node and npm, which are not here: %v", err)
	}
	folder = t.TempDir() // so that two runs at once do not install into one folder
	if err := os.CopyFS(folder, os.DirFS("testdata/node")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	cmd.Dir = folder
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("npm ci: %v\n%s", err, out)
	}
	return node, folder
}

// TestAnotherLanguageVerifies lets the Standard Webhooks library for JavaScript verify what is sent, through a rotation:
// before, during (by a receiver with the old secret and by one with the new), and after; and a changed body. It skips
// only where there is no node or no npm.
func TestAnotherLanguageVerifies(t *testing.T) {
	t.Parallel()
	node, folder := javascript(t)
	fresh := "whsec_" + base64.StdEncoding.EncodeToString([]byte("the secret that comes after it!!"))
	type delivery struct {
		Secret  string            `json:"secret"`
		Headers map[string]string `json:"headers"`
		Body    string            `json:"body"`
	}
	var all []delivery
	received := make(chan delivery, 1)
	url := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		d := delivery{Headers: map[string]string{}, Body: base64.StdEncoding.EncodeToString(body)}
		for _, name := range []string{"webhook-id", "webhook-timestamp", "webhook-signature"} {
			d.Headers[name] = r.Header.Get(name)
		}
		received <- d
	})
	send := func(receiver string, secrets ...string) {
		d := to(url, secrets...)
		d.Body = []byte(`{"text":"<b>& 😀 1.10"}`)
		if out := newSender(t, nil).Send(t.Context(), d); out.Class != outbox.Answered {
			t.Fatalf("got %+v", out)
		}
		got := <-received
		got.Secret = receiver
		all = append(all, got)
	}
	send(whsec, whsec)
	send(whsec, fresh, whsec)
	send(fresh, fresh, whsec)
	send(fresh, fresh)
	send(whsec, fresh) // the old secret no longer signs
	changed := all[0]
	changed.Body = base64.StdEncoding.EncodeToString([]byte(`{"text":"other"}`))
	all = append(all, changed)
	var in bytes.Buffer
	for _, d := range all {
		if err := json.NewEncoder(&in).Encode(d); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), node, "verify.js")
	cmd.Dir, cmd.Stdin = folder, &in
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var got []string
	for line := range strings.SplitSeq(strings.TrimSpace(string(out)), "\n") {
		got = append(got, strings.SplitN(line, ":", 2)[0])
	}
	if want := "ok ok ok ok refused refused"; strings.Join(got, " ") != want {
		t.Errorf("got %s, want %s\n%s", strings.Join(got, " "), want, out)
	}
}
