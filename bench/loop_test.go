package bench

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/ombud-run/ombud/wasmloop"
)

// goGuest is a loop written with sdk/loop, of the size such loops have.
func goGuest(b *testing.B) []byte {
	b.Helper()
	out := filepath.Join(b.TempDir(), "calls.wasm")
	cmd := exec.CommandContext(b.Context(), "go", "build", "-buildmode=c-shared", "-ldflags=-s -w", "-trimpath", "-o", out, ".")
	cmd.Dir = "testdata/loops/calls"
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	if text, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("build the guest: %v: %s", err, text)
	}
	return read(b, out)
}

func read(b *testing.B, file string) []byte {
	b.Helper()
	data, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		b.Skipf("there is no %s; its folder says how it is built", file)
	}
	if err != nil {
		b.Fatal(err)
	}
	return data
}

// guestKit answers what the guests ask; what they do not is nil and would end them.
type guestKit struct{ wasmloop.Kit }

func (guestKit) Config(string) string                 { return "value" }
func (guestKit) Recall(string, int) ([]string, error) { return []string{"a fact"}, nil }
func (guestKit) Notify(string, string) error          { return nil }

// Allow grants what the guests need.
func (guestKit) Allow(_ context.Context, class, value string) error {
	if class == "memory" && value == "main" || class == "tool" && value == "app.push" {
		return nil
	}
	return wasmloop.ErrRefused
}

func artifact(module []byte) *wasmloop.Artifact {
	return &wasmloop.Artifact{Manifest: wasmloop.Manifest{Name: "bench", Version: "1", Host: []string{"trigger", "config", "recall", "notify"}}, Module: module}
}

func runner(b *testing.B, module []byte, change func(*wasmloop.Options)) *wasmloop.Runner {
	b.Helper()
	o := wasmloop.Options{Namespace: "main", Kit: guestKit{}, Grants: guestKit{}, Limits: wasmloop.Limits{Calls: 100_000}}
	if change != nil {
		change(&o)
	}
	r, err := wasmloop.NewRunner(b.Context(), artifact(module), o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = r.Close(context.Background()) })
	return r
}

// asked is what a trigger tells the guest of sdk/loop.
type asked struct {
	calls  int
	recall bool
}

// payload is none for a run that does nothing, so that nothing is decoded either.
func (a asked) payload() map[string]any {
	if a == (asked{}) {
		return nil
	}
	return map[string]any{"calls": a.calls, "recall": a.recall}
}

// once is the median time of a run, in milliseconds, over as many as fit into a slice.
func once(b *testing.B, r *wasmloop.Runner, what asked) (ms float64, runs int) {
	b.Helper()
	var each []float64
	for start := time.Now(); time.Since(start) < slice || len(each) == 0; {
		at := time.Now()
		err := r.RunTriggered(b.Context(), time.Minute, "manual", what.payload())
		if err != nil {
			b.Fatal(err)
		}
		each = append(each, float64(time.Since(at))/float64(time.Millisecond))
	}
	return median(each), len(each)
}

// BenchmarkLoopCompile compiles a loop by Go, from nothing and from the cache.
func BenchmarkLoopCompile(b *testing.B) {
	a, dir := artifact(goGuest(b)), b.TempDir()
	compile := func(dir string) float64 {
		at := time.Now()
		if err := wasmloop.Compile(b.Context(), a, wasmloop.Options{CacheDir: dir}); err != nil {
			b.Fatal(err)
		}
		return float64(time.Since(at)) / float64(time.Millisecond)
	}
	compile(dir)
	measure(b, figure{name: "loop by Go: open, compiled before", unit: "ms", peer: "compiled from nothing, ms"},
		func() float64 { return compile("") },
		func() (float64, int) { return compile(dir), 1 })
}

// BenchmarkLoopRun runs a loop that does nothing, in an instance of its own each time.
func BenchmarkLoopRun(b *testing.B) {
	module := goGuest(b)
	fast, plainly := runner(b, module, nil), runner(b, module, func(o *wasmloop.Options) { o.NoImage = true })
	b.Run("go", func(b *testing.B) {
		measure(b, figure{name: "loop by Go: one run, p50", unit: "ms", peer: "without an image, ms", target: "≤1 ms"},
			func() float64 { ms, _ := once(b, plainly, asked{}); return ms },
			func() (float64, int) { return once(b, fast, asked{}) })
	})
	b.Run("assemblyscript", func(b *testing.B) {
		small := runner(b, read(b, "../sdk/assemblyscript/hello.wasm"), func(o *wasmloop.Options) { o.Log = nil })
		measure(b, figure{name: "loop by AssemblyScript: one run, p50", unit: "ms", peer: "by Go, ms", target: "≤1 ms"},
			func() float64 { ms, _ := once(b, fast, asked{}); return ms },
			func() (float64, int) { return once(b, small, asked{}) })
	})
}

// BenchmarkLoopCall makes host calls: the host's side alone, and all of a call of sdk/loop.
func BenchmarkLoopCall(b *testing.B) {
	const many = 1000
	perCall := func(b *testing.B, r *wasmloop.Runner, what asked) (us float64, calls int) {
		b.Helper()
		ms, runs := once(b, r, what)
		return ms * 1000 / many, runs * many
	}
	free := runner(b, read(b, "testdata/loops/free.wasm"), nil)
	gated := runner(b, read(b, "testdata/loops/gated.wasm"), nil)
	b.Run("host", func(b *testing.B) {
		measure(b, figure{name: "host call, no grant needed", unit: "µs", target: "≤5 µs"}, nil,
			func() (float64, int) { return perCall(b, free, asked{}) })
		measure(b, figure{name: "host call, granted", unit: "µs", peer: "no grant needed, µs", target: "≤8 µs"},
			func() float64 { us, _ := perCall(b, free, asked{}); return us },
			func() (float64, int) { return perCall(b, gated, asked{}) })
	})
	b.Run("sdk", func(b *testing.B) {
		r := runner(b, goGuest(b), nil)
		inside := func(b *testing.B, what asked) (float64, int) {
			b.Helper()
			with, _ := once(b, r, what)
			without, _ := once(b, r, asked{})
			return (with - without) * 1000 / many, 0
		}
		measure(b, figure{name: "call through sdk/loop, no grant needed", unit: "µs", peer: "the host's side, µs", target: "≤20 µs"},
			func() float64 { us, _ := perCall(b, free, asked{}); return us },
			func() (float64, int) { return inside(b, asked{calls: many}) })
		measure(b, figure{name: "call through sdk/loop, granted", unit: "µs", peer: "the host's side, µs", target: "≤20 µs"},
			func() float64 { us, _ := perCall(b, gated, asked{}); return us },
			func() (float64, int) { return inside(b, asked{calls: many, recall: true}) })
	})
}
