//go:build harness

package real

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/confine"
	"github.com/ombud-run/ombud/internal/harness"
	"github.com/ombud-run/ombud/internal/harness/child"
	"github.com/ombud-run/ombud/internal/harness/fakeapi"
)

const (
	rounds = 15
	most   = 30 * time.Millisecond // that an adapter may add to its program
)

// BenchmarkHarness measures one plain answer by each program in four ways in turn: by hand,
// through its adapter without walls, so with its key held by ombud, and so with walls too.
// What the adapter adds is the difference of the medians. Each way has a state of its own that was
// used before.
func BenchmarkHarness(b *testing.B) {
	for _, cli := range all {
		b.Run(string(cli), func(b *testing.B) {
			program(b, cli)
			for b.Loop() {
				ways := []func() time.Duration{byHandWay(b, cli), childWay(b, cli, confine.EnforceOff, true), childWay(b, cli, confine.EnforceOff, false), childWay(b, cli, confine.EnforceStrict, false)}
				took := make([][]time.Duration, len(ways))
				for round := range rounds + 1 {
					for i, way := range ways {
						if d := way(); round > 0 { // the first warms
							took[i] = append(took[i], d)
						}
					}
				}
				hand, adapter, held, walls := median(took[0]), median(took[1]), median(took[2]), median(took[3])
				report := func(d time.Duration, unit string) { b.ReportMetric(float64(d.Microseconds())/1000, unit) }
				report(hand, "ms-by-hand")
				report(adapter-hand, "ms-adapter")
				report(held-adapter, "ms-key-held")
				report(walls-held, "ms-walls")
				b.ReportMetric(0, "ns/op")
				b.Logf("%s: by hand %v, through the adapter %+v (limit %v), its key held %+v more, behind walls %+v more; the quickest of each %v, %+v, %+v, %+v",
					cli, hand, adapter-hand, most, held-adapter, walls-held, took[0][0], took[1][0]-took[0][0], took[2][0]-took[1][0], took[3][0]-took[2][0])
			}
		})
	}
}

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2].Round(10 * time.Microsecond)
}

// like are the arguments that make a program do by hand what it does for its adapter.
func like(cli harness.Name) []string {
	switch cli {
	case harness.Claude:
		return []string{"--setting-sources", "", "--strict-mcp-config", "--tools", "Read,Grep,Glob"}
	case harness.Pi:
		return []string{"--no-extensions", "--no-skills", "--no-mcp", "--tools", "read,grep,find,ls"}
	}
	return nil
}

func byHandWay(b *testing.B, cli harness.Name) func() time.Duration {
	b.Helper()
	run := fakeapi.New(b).Run(fakeapi.Plain())
	h := hand{cli: cli, run: run, home: b.TempDir(), dir: b.TempDir(), more: like(cli)}
	return func() time.Duration {
		begun := time.Now()
		rec := h.play(b, "say something")
		took := time.Since(begun)
		if rec.Outcome != harness.Completed {
			b.Fatalf("%+v", rec)
		}
		return took
	}
}

func childWay(b *testing.B, cli harness.Name, enforce confine.Enforce, bare bool) func() time.Duration {
	b.Helper()
	s := stand(b, cli, fakeapi.Plain(), enforce)
	s.bare = bare
	task := s.task("say something")
	if enforce == confine.EnforceOff {
		task.Profile = confine.Profile{Name: "none", Network: confine.NetAll}
	}
	starter := child.New(s.launcher, child.Config{Environ: []string{"PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8"}})
	if err := os.MkdirAll(filepath.Join(s.state, "home"), 0o700); err != nil {
		b.Fatal(err)
	}
	return func() time.Duration {
		begun := time.Now()
		rec, err := starter.Run(b.Context(), task)
		took := time.Since(begun)
		if err != nil || rec.Outcome != harness.Completed {
			b.Fatalf("%+v, %v", rec, err)
		}
		return took
	}
}
