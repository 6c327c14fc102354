package provider_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/onefold-dev/onefold/internal/provider"
)

func TestScrub(t *testing.T) {
	t.Parallel()
	request := []byte(`{"model":"gpt-4.1-mini-2025-04-14","messages":[{"role":"user","content":"Patient Anna Kowalska, born\n1984-02-11, has \"asthma\""}]}`)
	for _, c := range []struct{ name, in, want string }{
		{"plain words", "the model is overloaded", "the model is overloaded"},
		{"url", "POST https://user:pw@api.example.com:8443/v1/x?key=abc#f failed", "POST https://api.example.com:8443 failed"},
		{"given secret", "no such key hunter2hunter2", "no such key ***"},
		{"openai key", "Incorrect API key provided: sk-proj-Ab12****wxyz.", "Incorrect API key provided: ***."},
		{"bearer", "Authorization: Bearer abc.def", "Authorization: ***"},
		{"html", "<html><head><style>b{}</style></head><body><h1>502</h1> Bad</body></html>", "502 Bad"},
		{"nul and controls", "a\x00b\r\nc\x1b[31m", "a b c [31m"},
		{"direction marks", "a\u202eb", "a b"},
		{"ill-formed", "a\xffb", "a\uFFFDb"},
		{"quoted prompt", `Invalid value: 'Patient Anna Kowalska, born' at messages[0]`, "Invalid value: '…' at messages[0]"},
		{"quoted prompt, escaped", `bad text: born\n1984-02-11, has "asthma"!`, `bad text: born\…"!`},
		{"quoted prompt, other breaks", "bad text: BORN 1984-02-11 has asthma!", "bad text: …!"},
		{"model name stays", "The model `gpt-4.1-mini-2025-04-14` does not exist", "The model `gpt-4.1-mini-2025-04-14` does not exist"},
	} {
		if got := provider.Scrub(c.in, request, "hunter2hunter2", ""); got != c.want {
			t.Errorf("%s:\n got %q\nwant %q", c.name, got, c.want)
		}
	}
}

func TestScrubCuts(t *testing.T) {
	t.Parallel()
	for _, in := range []string{strings.Repeat("é", 4000), strings.Repeat("x", 1024), strings.Repeat("\u2028 ", 9000), strings.Repeat("<", 100_000)} {
		got := provider.Scrub(in, nil)
		if len(got) > 1024 || !utf8.ValidString(got) {
			t.Errorf("%d bytes, valid %t", len(got), utf8.ValidString(got))
		}
	}
}

func FuzzScrub(f *testing.F) {
	f.Add("Invalid value: 'secret passage of text'", `{"content":"secret passage of text"}`)
	f.Add("<b>x</b> https://a:b@c/d?e sk-aaaaaaaaaaaa", `[]`)
	f.Fuzz(func(t *testing.T, message, prompt string) {
		request, err := json.Marshal(map[string]any{"messages": []any{map[string]string{"content": prompt}}})
		if err != nil {
			t.Skip()
		}
		got := provider.Scrub(message, request)
		if len(got) > 1024 || !utf8.ValidString(got) || strings.ContainsRune(got, 0) {
			t.Errorf("%q", got)
		}
	})
}
