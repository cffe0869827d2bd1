package peers

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/run"
)

var (
	perRun = flag.Int("peers.steps", 1000, "steps of a run")
	rounds = flag.Int("peers.rounds", 3, "rounds of every engine")
	only   = flag.String("peers.only", "", "only the engines whose names contain this")
)

// BenchmarkStep is one durable step, in runs of 1,000 steps: with one run under
// way and with eight. Engines are measured in turn, round by round, each figure also
// as a multiple of one flush of the disk in the same round.
func BenchmarkStep(b *testing.B) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nstep\tcallers\tp50 µs\tp99 µs\tslowest ms\tsteps/s\tp50 / flush\tp99 / flush")
	for _, callers := range []int{1, 8} {
		probe := newProbe(b)
		var lines []*line
		add := func(name string, e func() engine) {
			if strings.Contains(name, *only) {
				lines = append(lines, &line{name: name, engine: e()})
			}
		}
		ours := func(kind dbtest.Kind, policy run.PolicyKind, audited bool) func() engine {
			return func() engine { return newOmbud(b, kind, policy, audited) }
		}
		add("ombud sqlite, repeatable, audited", ours(dbtest.KindSQLite, run.Repeatable, true))
		add("ombud sqlite, repeatable, not audited", ours(dbtest.KindSQLite, run.Repeatable, false))
		add("ombud sqlite, effect, audited", ours(dbtest.KindSQLite, run.AtMostOnce, true))
		add("DBOS sqlite", func() engine { return newDBOS(b, dbtest.KindSQLite) })
		add("go-workflows sqlite", func() engine { return newGoWorkflows(b) })
		for _, kind := range dbtest.Kinds() {
			if kind != dbtest.KindSQLite {
				add(fmt.Sprintf("ombud %s, repeatable, audited", kind), ours(kind, run.Repeatable, true))
				add(fmt.Sprintf("ombud %s, repeatable, not audited", kind), ours(kind, run.Repeatable, false))
				add(fmt.Sprintf("ombud %s, effect, audited", kind), ours(kind, run.AtMostOnce, true))
				add(fmt.Sprintf("DBOS %s", kind), func() engine { return newDBOS(b, kind) })
			}
		}
		for range *rounds {
			flush := probe.once()
			for _, l := range lines {
				l.measure(b, callers, flush)
			}
		}
		for _, l := range lines {
			fmt.Fprintf(w, "%s\t%d\t%.0f\t%.0f\t%.1f\t%.0f\t%.1f\t%.1f\n", l.name, callers, median(l.p50), median(l.p99), median(l.slowest), median(l.rate), median(l.r50), median(l.r99))
		}
	}
	_ = w.Flush() // a terminal that is gone needs no table
}

type line struct {
	name          string
	engine        engine
	p50, p99      []float64
	r50, r99      []float64 // as multiples of a flush
	slowest, rate []float64
}

func (l *line) measure(b *testing.B, callers int, flush float64) {
	var mu sync.Mutex
	var all []float64
	var wg sync.WaitGroup
	start := time.Now()
	for range callers {
		wg.Go(func() {
			took := l.engine.steps(b, *perRun)
			mu.Lock()
			defer mu.Unlock()
			for _, t := range took {
				all = append(all, float64(t)/float64(time.Microsecond))
			}
		})
	}
	wg.Wait()
	l.rate = append(l.rate, float64(len(all))/time.Since(start).Seconds())
	slices.Sort(all)
	l.slowest = append(l.slowest, all[len(all)-1]/1000) // a starved caller hides above the 99th
	p50, p99 := all[len(all)/2], all[len(all)*99/100]
	l.p50, l.p99 = append(l.p50, p50), append(l.p99, p99)
	l.r50, l.r99 = append(l.r50, p50/flush), append(l.r99, p99/flush)
}

// probe is the disk alone: 4 KiB written over in place and flushed.
type probe struct {
	b *testing.B
	f *os.File
}

func newProbe(b *testing.B) *probe {
	f, err := os.Create(filepath.Join(b.TempDir(), "probe"))
	must(b, err)
	b.Cleanup(func() { _ = f.Close() })
	_, err = f.Write(make([]byte, 4096*100))
	must(b, err)
	must(b, f.Sync())
	return &probe{b, f}
}

func (p *probe) once() float64 {
	var took []float64
	for i := range 100 {
		start := time.Now()
		_, err := p.f.WriteAt(make([]byte, 4096), int64(i*4096))
		must(p.b, err)
		must(p.b, p.f.Sync())
		took = append(took, float64(time.Since(start))/float64(time.Microsecond))
	}
	return median(took)
}

func median(v []float64) float64 {
	v = slices.Clone(v)
	slices.Sort(v)
	return v[len(v)/2]
}
