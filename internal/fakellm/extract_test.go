package fakellm_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/internal/provider"
)

// invoiceFields keeps the digits of the total as they are written.
type invoiceFields struct {
	Number, Date, Currency string
	Total                  json.Number
}

// TestExtractEveryInvoice asks for each text of examples/invoices in the words a kind would use.
func TestExtractEveryInvoice(t *testing.T) {
	t.Parallel()
	dir := filepath.Join("..", "..", "examples", "invoices")
	raw, err := os.ReadFile(filepath.Join(dir, "expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	var expected map[string]invoiceFields
	if err := json.Unmarshal(raw, &expected); err != nil {
		t.Fatal(err)
	}
	texts, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil || len(texts) != len(expected) || len(texts) < 24 {
		t.Fatalf("%d texts, %d expected: %v", len(texts), len(expected), err)
	}
	r := setup(t)
	for _, path := range texts {
		want, ok := expected[filepath.Base(path)]
		if !ok {
			t.Fatalf("%s is not in expected.json", path)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := r.call(t.Context(), "extract", "Extract the fields:\n"+string(text), provider.Request{Stream: true})
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		var got invoiceFields
		if err := json.Unmarshal([]byte(resp.Text), &got); err != nil {
			t.Fatalf("%s: answered %q: %v", path, resp.Text, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", filepath.Base(path), diff)
		}
	}
}

func TestExtractOtherForms(t *testing.T) {
	t.Parallel()
	r := setup(t)
	if err := r.Script("gpt-any", "extract"); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"Invoice No. 7, 2 May 2026, total $12.00":                      `{"number":"7","date":"2026-05-02","currency":"USD","total":12.00}`,
		"Invoice 7 of 03/04/2026\nTotal: £1,234,567.80":                `{"number":"7","date":"2026-04-03","currency":"GBP","total":1234567.80}`,
		"Invoice 7 of 03/04/2026\nTotal: $5":                           `{"number":"7","date":"2026-03-04","currency":"USD","total":5}`,
		"Rechnung Nr. 9 vom 1. Jänner 2026\nGesamtbetrag: 1.234 EUR":   `{"number":"9","date":"2026-01-01","currency":"EUR","total":1234}`,
		"Invoice: A1\nDate: 01-Mar-2026\nTotal: C$10.50":               `{"number":"A1","date":"2026-03-01","currency":"CAD","total":10.50}`,
		"Faktura nr 5/26\nData wystawienia: 2026-03-01\nRazem: 5,5 zł": `{"number":"5/26","date":"2026-03-01","currency":"PLN","total":5.5}`,
		"no invoice at all":           `{"number":null,"date":null,"currency":null,"total":null}`,
		"Invoice 8, dated 31/02/2026": `{"number":"8","date":null,"currency":null,"total":null}`,
		"":                            `{"number":null,"date":null,"currency":null,"total":null}`,
	} {
		resp, err := r.call(t.Context(), "gpt-any", text, provider.Request{})
		if err != nil {
			t.Fatal(err)
		}
		if resp.Text != want {
			t.Errorf("%q:\n got %s\nwant %s", text, resp.Text, want)
		}
	}
}
