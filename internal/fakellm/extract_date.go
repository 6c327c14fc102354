package fakellm

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// months are the names and short forms of the months in the languages that extract reads.
var months = func() map[string]int {
	m := map[string]int{}
	for _, year := range []string{
		"january february march april may june july august september october november december",
		"jan feb mar apr may jun jul aug sep oct nov dec",
		"januar februar märz april mai juni juli august september oktober november dezember",
		"jänner feber maerz - - - - - sept - - -",
		"janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
		"- fevrier - - - - - aout - - - decembre",
		"enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
		"gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre",
		"januari februari maart april mei juni juli augustus september oktober november december",
		"stycznia lutego marca kwietnia maja czerwca lipca sierpnia września października listopada grudnia",
	} {
		for i, name := range strings.Fields(year) {
			m[name] = i + 1
		}
	}
	return m
}()

// The forms of a date. In the last two the order of day and month is open when both could be either.
var (
	ymd       = regexp.MustCompile(`\b(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})\b`)
	kanji     = regexp.MustCompile(`(\d{4}|令和\s*(?:\d{1,2}|元))年\s*(\d{1,2})月\s*(\d{1,2})日`)
	dayMonth  = regexp.MustCompile(`(?i)\b(\d{1,2})(?:\.|er|st|nd|rd|th|º|°)?[\s-]+(?:of\s+|de\s+|di\s+)?(\p{L}{3,})\.?,?[\s-]+(?:de\s+|del\s+)?(\d{4})\b`)
	monthDay  = regexp.MustCompile(`(?i)(\p{L}{3,})\.?\s+(\d{1,2})(?:st|nd|rd|th)?,?\s+(\d{4})\b`)
	numeric   = regexp.MustCompile(`\b(\d{1,2})([./-])(\d{1,2})[./-](\d{4})\b`)
	beforeDay = regexp.MustCompile(`(?i)^(?:le|den|the|dnia|del|du|of|vom|on|il|de)\s+`)
)

var dateLabels = compile(
	`invoice\s+date|date\s+of\s+(?:the\s+)?invoice|date\s+of\s+issue|issue\s+date|issued\s+on|`+
		`rechnungsdatum|date\s+de\s+(?:la\s+)?factur(?:ation|e)|date\s+d'[ée]mission|`+
		`fecha\s+(?:de\s+)?(?:emisi[óo]n|la\s+factura|factura|expedici[óo]n)|data\s+(?:fattura|documento|(?:di\s+)?emissione)|`+
		`factuurdatum|data\s+wystawienia|発行日|請求日|作成日`,
	`^\s*(?:date|datum|data|fecha|日付)\b`,
)

// placeAndDate is a line that ends in a date after a place; the date is read by dates.
var placeAndDate = regexp.MustCompile(`^\s*\p{Lu}[\p{L} .'-]*,\s*(?:le\s+|den\s+|li\s+)?(.*)$`)

// date finds the date of an invoice: after its label, on the line of the invoice number, in the dateline of a letter,
// on a line of its own, or else the first there is.
func (d document) date(numberLine, currency string) string {
	monthFirst := d.monthFirst(currency)
	read := func(s string) (string, bool) {
		s = beforeDay.ReplaceAllString(s, "")
		if found := dates(s, monthFirst); len(found) > 0 && found[0].start == 0 {
			return found[0].iso, true
		}
		return "", false
	}
	if v, _ := d.field(dateLabels[0], read); v != "" {
		return v
	}
	if found := dates(numberLine, monthFirst); len(found) > 0 {
		return found[0].iso
	}
	if v, _ := d.field(dateLabels[1], read); v != "" {
		return v
	}
	for _, l := range d.lines {
		if m := placeAndDate.FindStringSubmatch(l); m != nil {
			if v, ok := whole(m[1], monthFirst); ok {
				return v
			}
		}
	}
	for _, l := range d.lines {
		if v, ok := whole(l, monthFirst); ok {
			return v
		}
	}
	if found := dates(d.text, monthFirst); len(found) > 0 {
		return found[0].iso
	}
	return ""
}

// whole reads a text that is a date and nothing else.
func whole(s string, monthFirst bool) (string, bool) {
	s = strings.Trim(s, " .")
	found := dates(s, monthFirst)
	if len(found) == 1 && found[0].start == 0 && found[0].end == len(s) {
		return found[0].iso, true
	}
	return "", false
}

// monthFirst says whether 02/03/2026 is February 3: when another date of the text shows it, else when the invoice is
// in US dollars.
func (d document) monthFirst(currency string) bool {
	for _, m := range numeric.FindAllStringSubmatch(d.text, -1) {
		a, _ := strconv.Atoi(m[1])
		b, _ := strconv.Atoi(m[3])
		switch {
		case m[2] != "/":
		case a > 12 && b <= 12:
			return false
		case b > 12 && a <= 12:
			return true
		}
	}
	return currency == "USD"
}

type foundDate struct {
	start, end int
	iso        string
}

// dates finds the dates of a text in the order they stand there.
func dates(s string, monthFirst bool) []foundDate {
	var out []foundDate
	add := func(at []int, y, m, d string) {
		if iso, ok := isoDate(y, m, d); ok {
			out = append(out, foundDate{at[0], at[1], iso})
		}
	}
	forms := []struct {
		re      *regexp.Regexp
		y, m, d int
	}{{ymd, 1, 2, 3}, {kanji, 1, 2, 3}, {dayMonth, 3, 2, 1}, {monthDay, 3, 1, 2}}
	for _, f := range forms {
		for _, at := range f.re.FindAllStringSubmatchIndex(s, -1) {
			g := func(n int) string { return s[at[2*n]:at[2*n+1]] }
			add(at, g(f.y), g(f.m), g(f.d))
		}
	}
	for _, at := range numeric.FindAllStringSubmatchIndex(s, -1) {
		day, month := s[at[2]:at[3]], s[at[6]:at[7]]
		if monthFirst && s[at[4]:at[5]] == "/" {
			day, month = month, day
		}
		add(at, s[at[8]:at[9]], month, day)
	}
	for i := range out { // few: a simple sort by place
		for j := i; j > 0 && out[j].start < out[j-1].start; j-- {
			out[j], out[j-1] = out[j-1], out[j]
		}
	}
	return out
}

func isoDate(y, m, d string) (string, bool) {
	if era, ok := strings.CutPrefix(y, "令和"); ok {
		n, err := strconv.Atoi(strings.TrimSpace(era))
		if err != nil {
			n = 1 // 元: the first year
		}
		y = strconv.Itoa(2018 + n)
	}
	month, ok := months[strings.ToLower(m)]
	if !ok {
		month, _ = strconv.Atoi(m)
	}
	year, _ := strconv.Atoi(y)
	day, _ := strconv.Atoi(d)
	t := time.Date(year, time.Month(month), day, 0, 0, 0, 0, time.UTC)
	if month == 0 || t.Day() != day || int(t.Month()) != month {
		return "", false
	}
	return fmt.Sprintf("%04d-%02d-%02d", year, month, day), true
}
