package webhook_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/onefold-dev/onefold/internal/outbox"
)

// TestAnotherLanguageVerifies lets the Standard Webhooks library for JavaScript verify what is sent, through a rotation:
// before, during (by a receiver with the old secret and by one with the new), and after; and a changed body. It needs
// node, and `npm install` in testdata/node.
func TestAnotherLanguageVerifies(t *testing.T) {
	t.Parallel()
	node, err := exec.LookPath("node")
	if _, missing := os.Stat("testdata/node/node_modules/standardwebhooks"); err != nil || missing != nil {
		t.Skip("needs node, and npm install in testdata/node")
	}
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
	cmd.Dir, cmd.Stdin = "testdata/node", &in
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
