package bench

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"
)

// rounds is how often a figure and its peer are measured in turn.
const rounds = 5

// slice is how long one round of a rate lasts.
const slice = 250 * time.Millisecond

// figure is one line of the table.
type figure struct {
	name   string
	unit   string
	value  float64 // median of the rounds
	peer   string  // what it is measured beside; "" for a fixed limit
	beside float64 // median of the peer's rounds
	ratio  float64 // median of value / peer, round by round
	target string
	cpu    time.Duration // of this process for one operation; 0: not meant
	note   string
}

// table collects the figures of a run.
var table struct {
	mu   sync.Mutex
	rows []figure
}

// add keeps a figure. The framework may run a benchmark again; the last counts.
func add(b *testing.B, f figure) {
	b.Helper()
	b.ReportMetric(0, "ns/op") // a round is no operation
	b.ReportMetric(f.value, f.unit)
	if f.peer != "" {
		b.ReportMetric(f.ratio, "×peer")
	}
	table.mu.Lock()
	defer table.mu.Unlock()
	if i := slices.IndexFunc(table.rows, func(g figure) bool { return g.name == f.name }); i >= 0 {
		table.rows[i] = f
		return
	}
	table.rows = append(table.rows, f)
}

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == mcpEchoWord {
		mcpEcho()
		return
	}
	code := m.Run()
	if len(table.rows) > 0 {
		printTable()
	}
	os.Exit(code)
}

func printTable() {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nfigure\tmedian\tunit\tbeside\tmedian\tratio\ttarget\tCPU/op\tnote")
	for _, f := range table.rows {
		beside, ratio, cpu := "", "", ""
		if f.peer != "" {
			beside, ratio = short(f.beside), fmt.Sprintf("%.2f", f.ratio)
		}
		if f.cpu > 0 {
			cpu = f.cpu.Round(100 * time.Nanosecond).String()
		}
		fmt.Fprintln(w, strings.Join([]string{f.name, short(f.value), f.unit, f.peer, beside, ratio, f.target, cpu, f.note}, "\t"))
	}
	_ = w.Flush() // a terminal that is gone needs no table
}

func short(v float64) string {
	switch {
	case v >= 1000:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.3g", v)
	}
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Clone(v)
	slices.Sort(v)
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// measure runs peer and work in turn and fills in the medians. Each returns a
// number of the figure's unit and how many operations it did.
func measure(b *testing.B, f figure, peer func() float64, work func() (value float64, ops int)) {
	b.Helper()
	var values, peers, ratios, cpus []float64
	for range rounds {
		var p float64
		if peer != nil {
			p = peer()
			peers = append(peers, p)
		}
		before := cpuTime()
		v, ops := work()
		if b.Failed() {
			return
		}
		if used := cpuTime() - before; ops > 0 {
			cpus = append(cpus, float64(used)/float64(ops))
		}
		values = append(values, v)
		if p > 0 {
			ratios = append(ratios, v/p)
		}
	}
	f.value, f.beside, f.ratio, f.cpu = median(values), median(peers), median(ratios), time.Duration(median(cpus))
	add(b, f)
}

// rate runs do in producers goroutines for one slice and returns operations a
// second. do gets the producer and its count and returns false to stop.
func rate(producers int, do func(producer, n int) bool) (perSecond float64, ops int) {
	var wg sync.WaitGroup
	counts := make([]int, producers)
	start := time.Now()
	for p := range producers {
		wg.Go(func() {
			for time.Since(start) < slice && do(p, counts[p]) {
				counts[p]++
			}
		})
	}
	wg.Wait()
	took := time.Since(start)
	for _, n := range counts {
		ops += n
	}
	return float64(ops) / took.Seconds(), ops
}
