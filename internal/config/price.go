package config

import (
	"math/big"
	"regexp"
	"strings"
)

// Decimal is an exact decimal number. The zero value is 0.
type Decimal struct{ text string }

func (d Decimal) String() string {
	if d.text == "" {
		return "0"
	}
	return d.text
}

// Rat returns the exact value.
func (d Decimal) Rat() *big.Rat {
	r, _ := new(big.Rat).SetString(d.String())
	return r
}

var decimalPattern = regexp.MustCompile(`^(0|[1-9][0-9]{0,8})(\.[0-9]{1,12})?$`)

// Price is what a million tokens cost, in whatever currency the operator counts in: one for the whole file, for costs
// are added up.
type Price struct{ Input, Cached, Output, Reasoning Decimal }

// Tokens are what one call used. Cached are a part of Input, Reasoning a part of Output: providers that count them apart
// add them up before.
type Tokens struct{ Input, Cached, Output, Reasoning int64 }

// million is what prices are for.
var million = big.NewRat(1_000_000, 1)

// Cost is what tokens cost at this price: exact, a decimal without needless zeros.
func (p Price) Cost(t Tokens) string {
	sum := new(big.Rat)
	for _, part := range []struct {
		tokens int64
		price  Decimal
	}{
		{max(t.Input-t.Cached, 0), p.Input},
		{t.Cached, p.Cached},
		{max(t.Output-t.Reasoning, 0), p.Output},
		{t.Reasoning, p.Reasoning},
	} {
		sum.Add(sum, new(big.Rat).Mul(new(big.Rat).SetInt64(part.tokens), part.price.Rat()))
	}
	// Prices have at most 12 decimals, so that 18 hold every cost exactly.
	s := sum.Quo(sum, million).FloatString(18)
	return strings.TrimRight(strings.TrimRight(s, "0"), ".")
}

// PriceOf returns what model costs under k: the kind's price, where it has none the provider's. ok is false when
// neither has one.
func (c *Config) PriceOf(k *Kind, model string) (p Price, ok bool) {
	if p, ok = k.Prices[model]; ok {
		return p, true
	}
	if up := c.Providers[k.Provider]; up != nil {
		p, ok = up.Prices[model]
	}
	return p, ok
}

func (d *decoder) prices(v *value, path string) map[string]Price {
	m := d.mapping(v, path)
	out := map[string]Price{}
	for _, model := range m.order {
		p := d.mapping(m.take(model, tObject), join(path, model))
		var x Price
		p.decimal("input", &x.Input)
		p.decimal("cached", &x.Cached)
		p.decimal("output", &x.Output)
		p.decimal("reasoning", &x.Reasoning)
		if !p.has("cached") {
			x.Cached = x.Input
		}
		if !p.has("reasoning") {
			x.Reasoning = x.Output
		}
		p.done()
		out[model] = x
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// decimal reads a non-negative decimal, quoted or not, and writes it without needless zeros.
func (m *mapping) decimal(name string, dst *Decimal) {
	v := m.take(name, tString, tNumber)
	if v == nil {
		return
	}
	if !decimalPattern.MatchString(v.s) {
		m.fail(name, `write a decimal per million tokens, as in "0.15"`, "%q is not a price", clip(v.s))
		return
	}
	s := v.s
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	*dst = Decimal{s}
}

func pricesValue(prices map[string]Price) *value {
	out := object()
	for _, model := range names(prices) {
		p, x := prices[model], object()
		x.set("cached", str(p.Cached.String()))
		x.set("input", str(p.Input.String()))
		x.set("output", str(p.Output.String()))
		x.set("reasoning", str(p.Reasoning.String()))
		out.set(model, x)
	}
	return out
}
