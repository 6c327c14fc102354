package main

// row is one question and the panels that answer it.
type row struct {
	title  string
	panels []panel
}

// panel is one picture. Its colours and its shape follow from what it shows, so
// that nothing is set by hand in forty places.
type panel struct {
	title   string
	why     string // what it says and when to worry, shown at the panel's corner
	unit    string // in Grafana's words
	shape   shape
	width   int     // of 24; 0 = a quarter, or a sixth of a number
	warn    float64 // from here on yellow; 0 = never
	bad     float64 // from here on red; 0 = never
	below   bool    // red below bad and green above: what should be high
	queries []query
}

type shape string

const (
	lines  shape = "timeseries"
	number shape = "stat"
	list   shape = "table"
)

// query is an expression and what its lines are called.
type query struct{ expr, legend string }

func (p panel) size() (w, h int) {
	w, h = 8, 8
	if p.shape == number {
		w, h = 4, 4
	}
	if p.width > 0 {
		w = p.width
	}
	return w, h
}

// The labels that choose what is shown. Each takes its values from the
// configuration; tenants and keys are no labels, see docs/metrics.md.
const (
	byKind        = `kind=~"$kind"`
	byProvider    = `provider=~"$provider"`
	byDestination = `destination=~"$destination"`
)

// rate is how fast counters grow a second, added up over the processes.
func rate(by, series string) string {
	return "sum by (" + by + ") (rate(" + series + "[$__rate_interval]))"
}

// quantiles are the median and the slow end of a histogram, drawn as lines.
func quantiles(by, series string) []query {
	var out []query
	for _, q := range []struct{ q, name string }{{"0.5", "p50"}, {"0.95", "p95"}, {"0.99", "p99"}} {
		legend := q.name
		within := "le"
		if by != "" {
			legend, within = "{{"+by+"}} "+q.name, "le, "+by
		}
		out = append(out, query{"histogram_quantile(" + q.q + ", " + rate(within, series) + ")", legend})
	}
	return out
}
