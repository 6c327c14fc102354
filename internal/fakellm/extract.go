package fakellm

import (
	"regexp"
	"strings"
	"unicode"
)

// invoice is what extract finds; an empty field was not found.
type invoice struct {
	number, date, currency, total string
}

// extractJSON finds the fields of an invoice in a text and answers them as a JSON object: the date in ISO form, the
// currency as its ISO code, the total as a number with the digits it has in the text. What is not found is null.
func extractJSON(text string) string {
	found := extract(text)
	quoted := func(s string) string {
		if s == "" {
			return "null"
		}
		return string(encode(s))
	}
	total := found.total
	if total == "" {
		total = "null"
	}
	return `{"number":` + quoted(found.number) + `,"date":` + quoted(found.date) +
		`,"currency":` + quoted(found.currency) + `,"total":` + total + `}`
}

func extract(text string) invoice {
	d := newDocument(text)
	var out invoice
	line := ""
	out.number, line = d.number()
	out.total, out.currency = d.total()
	out.date = d.date(line, out.currency)
	return out
}

// document is a text in lines, with full-width forms and the many sorts of spaces made plain.
type document struct {
	lines []string
	text  string
}

func newDocument(text string) document {
	plain := strings.Map(func(r rune) rune {
		switch {
		case r >= 0xFF01 && r <= 0xFF5E: // full-width ASCII
			return r - 0xFEE0
		case r == 0xFFE5:
			return '¥'
		case r != '\n' && unicode.IsSpace(r), r == 0x202F, r == 0x3000:
			return ' '
		case r == '’':
			return '\''
		}
		return r
	}, text)
	return document{lines: strings.Split(plain, "\n"), text: plain}
}

var gap = regexp.MustCompile(`\s{2,}|\s*\|\s*`)

// cells takes a line of a table apart.
func cells(line string) []string {
	return gap.Split(strings.Trim(line, " |"), -1)
}

// field looks for a label and, after it, in the rest of its line or in the cell below, for a value that read takes.
func (d document) field(label *regexp.Regexp, read func(string) (string, bool)) (value, line string) {
	for i, l := range d.lines {
		at := label.FindStringIndex(l)
		if at == nil {
			continue
		}
		rest := strings.TrimLeft(l[at[1]:], " :.#|-–")
		if v, ok := read(rest); ok {
			return v, l
		}
		if v, ok := d.below(i, l[at[0]:at[1]], read); ok {
			return v, l
		}
	}
	return "", ""
}

// below reads the cell under a label: the next line that is not empty has as many cells.
func (d document) below(i int, label string, read func(string) (string, bool)) (string, bool) {
	head := cells(d.lines[i])
	alone := strings.TrimSpace(d.lines[i]) == strings.TrimSpace(label)
	for _, l := range d.lines[i+1 : min(i+3, len(d.lines))] {
		if strings.TrimSpace(l) == "" {
			continue
		}
		if alone {
			return read(strings.TrimSpace(l))
		}
		under := cells(l)
		if len(under) != len(head) {
			return "", false
		}
		for n, c := range head {
			if strings.Contains(c, strings.TrimSpace(label)) {
				return read(under[n])
			}
		}
		return "", false
	}
	return "", false
}

// The labels of an invoice number, the most explicit first. (?i) folds Latin letters only.
var numberLabels = compile(
	`invoice\s+(?:number|no|nr|num|id)\b|invoice\s*#`,
	`rechnungs\s*-?\s*(?:nummer|nr)|rechnung\s+(?:nummer|nr)`,
	`n[°º.]+\s*(?:de\s+)?factur[ea]|n[uú]m[eé]ro\s+de\s+factur[ea]|factur[ea]\s+n[°º.]+`,
	`num[ea]ro\s+fattura|fattura\s+n(?:r|umero)?\b`,
	`factuur\s*-?\s*(?:nummer|nr)`,
	`faktura\s+(?:vat\s+)?nr|nume?r\s+faktury`,
	`請求書?(?:番号|no)`,
	`(?:invoice|facture|factura|fattura|rechnung|factuur|faktura)\s*:`,
	`(?:belegnummer|bill\s+no|folio\s+no)\b`,
	`(?:invoice|rechnung|facture|factura|fattura|factuur|faktura)\s`,
	`(?:^|\s)no\.`,
)

func compile(patterns ...string) []*regexp.Regexp {
	var out []*regexp.Regexp
	for _, p := range patterns {
		out = append(out, regexp.MustCompile(`(?i)(?:`+p+`)`))
	}
	return out
}

var numberValue = regexp.MustCompile(`^[\p{L}\d][\p{L}\d./_-]*`)

// number finds the invoice number and the line of its label.
func (d document) number() (value, line string) {
	for _, label := range numberLabels {
		if v, l := d.field(label, readNumber); v != "" {
			return v, l
		}
	}
	return "", ""
}

func readNumber(s string) (string, bool) {
	v := strings.TrimRight(numberValue.FindString(s), "./_-")
	return v, strings.ContainsAny(v, "0123456789")
}
