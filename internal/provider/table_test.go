package provider_test

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/onefold-dev/onefold/internal/provider"
)

var update = flag.Bool("update", false, "write docs/failures.md anew")

func TestDocumentIsCurrent(t *testing.T) {
	t.Parallel()
	path := filepath.Join("..", "..", "docs", "failures.md")
	want := provider.Document()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("docs/failures.md is not what the table says; run: go generate ./internal/provider")
	}
}

func TestTableIsWhole(t *testing.T) {
	t.Parallel()
	snake := regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`)
	classes := map[string]provider.Class{}
	words := map[string]string{}
	for _, r := range provider.Table {
		if r.On == "" || r.Known == "" || r.Next == "" || r.Class == "" || r.Billed == "" || !snake.MatchString(r.Code) {
			t.Errorf("row %q is not filled in: %+v", r.On, r)
		}
		if c, ok := classes[r.Code]; ok && c != r.Class {
			t.Errorf("code %s has the classes %s and %s", r.Code, c, r.Class)
		}
		classes[r.Code] = r.Class
		if !slices.Contains(provider.Sections(), r.Section) {
			t.Errorf("row %q stands in no section", r.On)
		}
		if (r.Section == provider.SectionStatus) != (len(r.Statuses) > 0) || (r.Section == provider.SectionCode) != (len(r.Words) > 0) {
			t.Errorf("row %q has not what its section asks for", r.On)
		}
		if r.Permanent && r.Class != provider.Rejected {
			t.Errorf("row %q is permanent with class %s", r.On, r.Class)
		}
		if r.Class == provider.NotSent && r.Billed != provider.BilledNo {
			t.Errorf("row %q: nothing was sent and it may be billed", r.On)
		}
		for _, w := range r.Words {
			if other, ok := words[w]; ok || w != strings.ToLower(w) {
				t.Errorf("word %q of %s stands in %s too, or has capitals", w, r.Code, other)
			}
			words[w] = r.Code
		}
	}
}

// TestEveryStatusHasItsClass pins the statuses one by one: a row moved by mistake shows here.
func TestEveryStatusHasItsClass(t *testing.T) {
	t.Parallel()
	want := map[int]provider.Class{
		401: provider.Unauthorized, 408: provider.Unknown, 409: provider.Unknown, 425: provider.Refused,
		429: provider.Refused, 499: provider.Unknown,
	}
	for status := 300; status <= 599; status++ {
		class, ok := want[status]
		switch {
		case ok:
		case status < 500:
			class = provider.Rejected
		default:
			class = provider.Unknown
		}
		if got := provider.ByStatus(status); got.Class != class {
			t.Errorf("status %d: class %s (%s), want %s", status, got.Class, got.Code, class)
		}
	}
	for status, code := range map[int]string{
		402: provider.CodeQuotaExhausted, 403: provider.CodeForbidden, 404: provider.CodeNotFound,
		413: provider.CodeRequestTooLarge, 502: provider.CodeBadGateway, 503: provider.CodeUnavailable,
		504: provider.CodeGatewayTimeout, 524: provider.CodeGatewayTimeout, 522: provider.CodeOriginFailed,
		529: provider.CodeServerError, 307: provider.CodeRedirect, 100: provider.CodeUnexpected, 700: provider.CodeUnexpected,
	} {
		if got := provider.ByStatus(status); got.Code != code {
			t.Errorf("status %d: code %s, want %s", status, got.Code, code)
		}
	}
}

func TestWordsCountInTheirOrder(t *testing.T) {
	t.Parallel()
	r, ok := provider.ByWord("no_such_word", "Insufficient_Quota", "rate_limit_exceeded")
	if !ok || r.Code != provider.CodeQuotaExhausted {
		t.Errorf("got %s, %t, want the first word that is known", r.Code, ok)
	}
	if r, ok := provider.ByWord("insufficient_quota_soon", "you exceeded your insufficient_quota"); ok {
		t.Errorf("a part of a text was taken for the code %s", r.Code)
	}
}

func TestForeignErrorIsUnknown(t *testing.T) {
	t.Parallel()
	f := provider.AsError(os.ErrClosed)
	if f.Class != provider.Unknown || f.Code != provider.CodeInternal || strings.Contains(f.Message, "closed") {
		t.Errorf("got %+v, want class unknown without the error's text", f)
	}
	if provider.AsError(nil) != nil {
		t.Error("nil became an error")
	}
}
