package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// machine is what the figures were measured on.
type machine struct {
	OS                string `json:"os"`
	CPU               string `json:"cpu"`
	Cores             int    `json:"cores"`
	Go                string `json:"go"`
	Postgres          string `json:"postgres"`
	Fsync             string `json:"fsync"`
	SynchronousCommit string `json:"synchronous_commit"`
	FullPageWrites    string `json:"full_page_writes"`
	SharedBuffers     string `json:"shared_buffers"`
	Data              string `json:"data_folder"`
}

func describe(ctx context.Context, c *cluster) (machine, error) {
	m := machine{
		OS: runtime.GOOS + "/" + runtime.GOARCH, CPU: cpuName(), Cores: runtime.NumCPU(), Go: runtime.Version(), Data: c.Dir(),
	}
	err := c.admin.QueryRow(ctx, `
SELECT current_setting('server_version'), current_setting('fsync'), current_setting('synchronous_commit'),
    current_setting('full_page_writes'), current_setting('shared_buffers')`).
		Scan(&m.Postgres, &m.Fsync, &m.SynchronousCommit, &m.FullPageWrites, &m.SharedBuffers)
	if err != nil {
		return m, fmt.Errorf("read the server's settings: %w", err)
	}
	return m, nil
}

// cpuName is the processor's name where Linux tells it.
func cpuName() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// report is all that was measured. Times are in milliseconds.
type report struct {
	Machine   machine   `json:"machine"`
	Time      string    `json:"time"`
	Rounds    int       `json:"rounds"`
	Tasks     int       `json:"tasks"`
	Reference float64   `json:"pgbench_8_per_second"` // median of all runs around scenarios
	Scenarios []*figure `json:"scenarios"`

	around []float64
}

// figure is one scenario over all rounds. The medians are the figures that count.
type figure struct {
	Name      string    `json:"name"`
	Rates     []float64 `json:"per_second_by_round"`
	Ratios    []float64 `json:"ratio_by_round"`
	Rate      float64   `json:"per_second"`
	Ratio     float64   `json:"ratio"` // to pgbench's single-row insert with 8 clients, run before and after
	Prototype float64   `json:"ratio_of_prototype,omitempty"`
	N         int       `json:"n"`
	P50       float64   `json:"p50_ms,omitempty"`
	P95       float64   `json:"p95_ms,omitempty"`
	P99       float64   `json:"p99_ms,omitempty"`
	GoCPU     float64   `json:"go_cpu_ms"`       // each: of this process, callers included
	PgCPU     float64   `json:"postgres_cpu_ms"` // each
	WAL       float64   `json:"wal_bytes"`       // each

	scenario scenario
	each     []time.Duration
	total    result
}

// add takes one round of a scenario in.
func (r *report) add(s scenario, got result, around float64) {
	i := slices.IndexFunc(r.Scenarios, func(f *figure) bool { return f.Name == s.name })
	if i < 0 {
		i = len(r.Scenarios)
		r.Scenarios = append(r.Scenarios, &figure{Name: s.name, Prototype: s.target, scenario: s})
	}
	f := r.Scenarios[i]
	f.Rates = append(f.Rates, got.rate())
	f.Ratios = append(f.Ratios, got.rate()/around)
	f.each = append(f.each, got.each...)
	f.total.n += got.n
	f.total.goCPU += got.goCPU
	f.total.pgCPU += got.pgCPU
	f.total.wal += got.wal
	r.around = append(r.around, around)
}

// finish works the medians out.
func (r *report) finish() {
	r.Reference = median(r.around)
	for _, f := range r.Scenarios {
		f.Rate, f.Ratio, f.N = median(f.Rates), median(f.Ratios), f.total.n
		slices.Sort(f.each)
		f.P50, f.P95, f.P99 = milli(quantile(f.each, 0.50)), milli(quantile(f.each, 0.95)), milli(quantile(f.each, 0.99))
		n := float64(f.total.n)
		f.GoCPU, f.PgCPU, f.WAL = milli(f.total.goCPU)/n, milli(f.total.pgCPU)/n, float64(f.total.wal)/n
	}
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(v))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// quantile is the smallest value that q of the sorted values do not exceed.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	i := int(q * float64(len(sorted)))
	return sorted[min(i, len(sorted)-1)]
}

func milli(d time.Duration) float64 { return d.Seconds() * 1000 }

const legend = `
Each line is the median of %d rounds. "x pgbench" compares with pgbench's insert of one row by 8 clients, run just
before and after: 2.00 means twice as many a second. "prototype" is what the design's prototype reached.
CPU is spent by Postgres and by this process (onefold and its callers together); %d cores have %d ms of it a second.
`

// print writes the figures for a person.
func (r *report) print(w io.Writer) error {
	m := r.Machine
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s, %d cores (%s), %s, Postgres %s: fsync %s, synchronous_commit %s, full_page_writes %s, shared_buffers %s\n",
		m.OS, m.Cores, m.CPU, m.Go, m.Postgres, m.Fsync, m.SynchronousCommit, m.FullPageWrites, m.SharedBuffers)
	fmt.Fprintf(&b, "data in %s; pgbench's single-row insert, 8 clients: %.0f/s\n\n", m.Data, r.Reference)
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "\tper second\tx pgbench\tprototype\tp50\tp95\tp99 ms\tCPU ms each: Postgres\tthis\tWAL bytes each\t\n")
	group := ""
	for _, f := range r.Scenarios {
		if f.scenario.group != group {
			group = f.scenario.group
			fmt.Fprintf(t, "%s\t\t\t\t\t\t\t\t\t\t\n", left(group))
		}
		f.line(t)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(&b, legend, r.Rounds, m.Cores, m.Cores*1000)
	r.compare(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

// nameWidth is the width of the first column, which stands at the left.
const nameWidth = 28

func left(s string) string { return fmt.Sprintf("%-*s", nameWidth, s) }

func (f *figure) line(w io.Writer) {
	ratio, prototype := fmt.Sprintf("%.2f", f.Ratio), ""
	if f.Prototype > 0 {
		prototype = fmt.Sprintf("%.2f", f.Prototype)
	}
	if f.scenario.timed {
		ratio = ""
	}
	quantiles := "\t\t"
	if len(f.each) > 0 {
		quantiles = fmt.Sprintf("%.2f\t%.2f\t%.2f", f.P50, f.P95, f.P99)
	}
	fmt.Fprintf(w, "%s\t%.0f\t%s\t%s\t%s\t%.3f\t%.3f\t%.0f\t\n", left("  "+f.scenario.title), f.Rate, ratio, prototype, quantiles, f.PgCPU, f.GoCPU, f.WAL)
}

// compare says what is best said as a sentence.
func (r *report) compare(w io.Writer) {
	of := map[string]*figure{}
	for _, f := range r.Scenarios {
		of[f.Name] = f
	}
	for _, n := range []string{"8", "64"} {
		river := of["river/"+n]
		if river == nil {
			continue
		}
		for _, how := range []string{"submit", "http"} {
			if f := of[how+"/"+n]; f != nil {
				fmt.Fprintf(w, "%s: %.1f times River's InsertTx with as many callers\n", f.Name, f.Ratio/river.Ratio)
			}
		}
	}
	if insert := of["pgbench/1"]; insert != nil {
		for _, f := range r.Scenarios {
			if f.scenario.timed {
				fmt.Fprintf(w, "%s: a result after %.1f ms (median of %d), the time of %.1f single-row inserts by 1 client\n",
					f.Name, f.P50, f.N, f.P50/(1000/insert.Rate))
			}
		}
	}
}
