package fakellm

import (
	"regexp"
	"strings"
)

// currencies are the signs and words of currencies, those called dollar or written with its sign first. The US dollar
// comes last: the sign alone stands for it only where no other is named.
var currencies = []struct {
	code string
	re   *regexp.Regexp
}{
	{"AUD", regexp.MustCompile(`\bAUD\b|\bAU?\$`)},
	{"CAD", regexp.MustCompile(`\bCAD\b|\bCA?\$`)},
	{"NZD", regexp.MustCompile(`\bNZD\b|\bNZ\$`)},
	{"HKD", regexp.MustCompile(`\bHKD\b|\bHK\$`)},
	{"SGD", regexp.MustCompile(`\bSGD\b|\bS\$`)},
	{"MXN", regexp.MustCompile(`\bMXN\b|\bMX\$`)},
	{"BRL", regexp.MustCompile(`\bBRL\b|\bR\$`)},
	{"CHF", regexp.MustCompile(`\bCHF\b|\bS?Fr\.`)},
	{"PLN", regexp.MustCompile(`\bPLN\b|zł`)},
	{"SEK", regexp.MustCompile(`\bSEK\b`)},
	{"NOK", regexp.MustCompile(`\bNOK\b`)},
	{"DKK", regexp.MustCompile(`\bDKK\b`)},
	{"CZK", regexp.MustCompile(`\bCZK\b|Kč`)},
	{"CNY", regexp.MustCompile(`\bCNY\b|\bRMB\b|人民币`)},
	{"JPY", regexp.MustCompile(`\bJPY\b|¥|円`)},
	{"GBP", regexp.MustCompile(`\bGBP\b|£`)},
	{"EUR", regexp.MustCompile(`\bEUR\b|€|\b[Ee]uros?\b`)},
	{"INR", regexp.MustCompile(`\bINR\b|₹`)},
	{"USD", regexp.MustCompile(`\bUSD\b|\bUS\$|\$`)},
}

// dollars is how many of currencies are written with a dollar sign, the US dollar not counted.
const dollars = 7

// The labels of the total, the most explicit first. What was already paid does not change what the invoice is over, so
// the sum with taxes comes before what is still due.
var totalLabels = compile(
	`invoice\s+total|total\s+invoice|grand\s+total|rechnungsbetrag|gesamtbetrag|gesamtsumme|endbetrag|rechnungssumme|`+
		`(?:total|montant)\s+ttc|total\s+factura|importe\s+total|totale\s+(?:fattura|documento)|totaal\s+incl|totaalbedrag|`+
		`razem\s+brutto|kwota\s+faktury|合計金額|請求金額|税込合計|total\s+inkl|bruttobetrag`,
	`total\s+amount|total\s+due|amount\s+due|net\s+à\s+payer|total\s+a\s+pagar|do\s+zapłaty|zahlbetrag|te\s+betalen|`+
		`(?:totale\s+)?da\s+pagare`,
	`^\s*(?:total|totaal|totale|gesamt|summe|ogółem|razem|合計)`,
	`total|summe|totaal|razem`,
)

// bareTotal is the place of the label that is the word alone: what follows it must not be another word ("Total HT").
const bareTotal = 2

var afterBareTotal = regexp.MustCompile(`^(?:\(|[A-Z]{3}\b|[A-Z]{0,2}[€£$¥\d]|$)`)

// Amounts have thousands in groups of three and one or two decimals, whatever the signs between.
var amount = regexp.MustCompile(`(?:\d{1,3}(?:[.,' ]\d{3})+|\d+)(?:[.,]\d{1,2})?`)

// total finds the total and its currency.
func (d document) total() (value, currency string) {
	for i, label := range totalLabels {
		near := ""
		v, line := d.field(label, func(s string) (string, bool) {
			if i == bareTotal && !afterBareTotal.MatchString(s) {
				return "", false
			}
			near = s
			return firstAmount(s)
		})
		if v != "" {
			return v, d.currency(near, line)
		}
	}
	return "", d.currency()
}

// firstAmount reads the first amount of a text that is no percentage and no part of a word.
func firstAmount(s string) (string, bool) {
	for _, at := range amount.FindAllStringIndex(s, -1) {
		before, after := s[:at[0]], s[at[1]:]
		if strings.HasPrefix(strings.TrimLeft(after, " "), "%") || after != "" && after[0] >= '0' && after[0] <= '9' {
			continue
		}
		if before != "" && strings.ContainsAny(before[len(before)-1:], "0123456789.,-/") {
			continue
		}
		return plainAmount(s[at[0]:at[1]]), true
	}
	return "", false
}

// plainAmount writes an amount with a dot for its decimals and nothing between its thousands.
func plainAmount(s string) string {
	i := strings.LastIndexAny(s, ".,")
	digits := strings.NewReplacer(".", "", ",", "", "'", "", " ", "")
	if i < 0 || len(s)-i-1 == 3 {
		return digits.Replace(s)
	}
	return digits.Replace(s[:i]) + "." + s[i+1:]
}

// currency finds the currency that the nearest text names; else the one that the document names most.
func (d document) currency(near ...string) string {
	for _, s := range near {
		if c := d.currencyIn(s); c != "" {
			return c
		}
	}
	best, most := "", 0
	for _, c := range currencies {
		if n := len(c.re.FindAllString(d.text, -1)); n > most {
			best, most = c.code, n
		}
	}
	return best
}

// currencyIn is the currency that a text names first. A dollar sign alone is the dollar that the document names.
func (d document) currencyIn(s string) string {
	code, first := "", len(s)
	for _, c := range currencies {
		at := c.re.FindStringIndex(s)
		if at == nil || at[0] >= first {
			continue
		}
		code, first = c.code, at[0]
		if s[at[0]:at[1]] == "$" {
			code = d.dollar()
		}
	}
	return code
}

// dollar is the dollar that the document names, the US dollar if none.
func (d document) dollar() string {
	for _, c := range currencies[:dollars] {
		if c.re.MatchString(d.text) {
			return c.code
		}
	}
	return "USD"
}
