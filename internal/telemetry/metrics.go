package telemetry

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// prefix begins the name of every metric of ours.
const prefix = "onefold_"

// bounded are the labels a metric may have: each takes its values from the
// configuration or from a list in the code. Ids, keys, tenants, models, addresses and
// texts are none: whoever sends a request could make as many series as he likes.
var bounded = setOf("kind", "state", "class", "provider", "destination", "source", "outcome", "scope", "name", "type", "table",
	"age", "side", "code", "direction", "what", "method", "status", "route", "version")

// Metric describes one metric, for docs/metrics.md.
type Metric struct {
	Name   string // with its prefix
	Type   string // counter, gauge or histogram
	Help   string
	Labels []string
}

var metrics = struct {
	sync.Mutex
	registry *prometheus.Registry
	all      []Metric
}{registry: newRegistry()}

func newRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// describe notes a metric. It panics where the program is wrong: a name twice, a
// label that is not bounded.
func describe(name, kind, help string, labels []string) (full string) {
	full = prefix + name
	for _, l := range labels {
		if !bounded[l] {
			panic(fmt.Sprintf("the metric %s has the label %q, which is not on the list of bounded ones", full, l))
		}
	}
	metrics.Lock()
	defer metrics.Unlock()
	if slices.ContainsFunc(metrics.all, func(m Metric) bool { return m.Name == full }) {
		panic("the metric " + full + " is declared twice")
	}
	metrics.all = append(metrics.all, Metric{Name: full, Type: kind, Help: help, Labels: labels})
	return full
}

// Counter declares a counter of this process. Call it at the top of the file
// that moves it, with the name less its prefix.
func Counter(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: describe(name, "counter", help, labels), Help: help}, labels)
	metrics.registry.MustRegister(c)
	return c
}

// Gauge declares a gauge of this process.
func Gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: describe(name, "gauge", help, labels), Help: help}, labels)
	metrics.registry.MustRegister(g)
	return g
}

// Histogram declares a histogram of this process. Times are in seconds.
func Histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: describe(name, "histogram", help, labels), Help: help, Buckets: buckets}, labels)
	metrics.registry.MustRegister(h)
	return h
}

// Buckets of times, in seconds.
var (
	// CallSeconds are for calls of models: tens of milliseconds to half an hour.
	CallSeconds = []float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600, 1800}
	// WaitSeconds are for waits in queues.
	WaitSeconds = []float64{.01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 14400}
	// AnswerSeconds are for what is answered at once.
	AnswerSeconds = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
)

// MetricsHandler serves every metric of this process in Prometheus' format, with
// exemplars to those who ask for OpenMetrics.
func MetricsHandler() http.Handler {
	return promhttp.HandlerFor(metrics.registry, promhttp.HandlerOpts{EnableOpenMetrics: true, ErrorHandling: promhttp.ContinueOnError})
}

// Gatherer reads every metric of this process.
func Gatherer() prometheus.Gatherer { return metrics.registry }

// Metrics are all metrics that are declared, by name.
func Metrics() []Metric {
	metrics.Lock()
	defer metrics.Unlock()
	all := slices.Clone(metrics.all)
	slices.SortFunc(all, func(a, b Metric) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// WriteMetricsDoc writes the table of docs/metrics.md.
func WriteMetricsDoc(w io.Writer) error {
	for _, m := range Metrics() {
		labels := "–"
		if len(m.Labels) > 0 {
			labels = "`" + strings.Join(m.Labels, "`, `") + "`"
		}
		if _, err := fmt.Fprintf(w, "| `%s` | %s | %s | %s |\n", m.Name, m.Type, labels, m.Help); err != nil {
			return fmt.Errorf("write the table of metrics: %w", err)
		}
	}
	return nil
}
