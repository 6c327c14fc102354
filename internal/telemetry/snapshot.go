package telemetry

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Snapshot is a set of gauges about the whole installation, read from the
// database by one process at a time. They appear, change and vanish together, so that no
// scrape sees half of them, and a process that reads no more shows nothing old.
type Snapshot struct {
	mu     sync.Mutex
	values []prometheus.Metric
}

// NewSnapshot makes an empty snapshot and shows it in this process.
func NewSnapshot() *Snapshot {
	s := &Snapshot{}
	metrics.registry.MustRegister(s)
	return s
}

// Described is a gauge or histogram of a snapshot.
type Described struct{ desc *prometheus.Desc }

// Gauge declares a gauge of a snapshot.
func (s *Snapshot) Gauge(name, help string, labels ...string) Described {
	return Described{prometheus.NewDesc(describe(name, "gauge", help, labels), help, labels, nil)}
}

// Histogram declares a histogram of a snapshot: a count of what is there now, that can fall.
func (s *Snapshot) Histogram(name, help string, labels ...string) Described {
	return Described{prometheus.NewDesc(describe(name, "histogram", help, labels), help, labels, nil)}
}

// Is is a gauge's value; labels are in the order of its declaration.
func (d Described) Is(v float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d.desc, prometheus.GaugeValue, v, clipped(labels)...)
}

// Are is a histogram's values: how many there are up to each bound, in all, and their sum.
func (d Described) Are(count uint64, sum float64, upTo map[float64]uint64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstHistogram(d.desc, count, sum, upTo, clipped(labels)...)
}

// clipped makes label values printable.
func clipped(labels []string) []string {
	out := make([]string, len(labels))
	for i, l := range labels {
		out[i] = cut(printable(l))
	}
	return out
}

// Show puts values in the place of those shown before; none hides the snapshot.
func (s *Snapshot) Show(values ...prometheus.Metric) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values = values
}

// Describe tells nothing: what is shown changes.
func (s *Snapshot) Describe(chan<- *prometheus.Desc) {}

// Collect gives what is shown.
func (s *Snapshot) Collect(to chan<- prometheus.Metric) {
	s.mu.Lock()
	values := s.values
	s.mu.Unlock()
	for _, v := range values {
		to <- v
	}
}
