package wasmloop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// wild has the wild guest do something in a run of its own, and returns what it said.
func (b *guestBench) wild(t testing.TB, limit time.Duration, do string) ([]string, error) {
	t.Helper()
	b.said.take()
	err := b.RunTriggered(t.Context(), limit, "event", map[string]any{"do": do})
	return b.said.take(), err
}

func wildGuest(t testing.TB, change func(*Manifest, *Options)) *guestBench {
	t.Helper()
	return guestOf(t, built(t, "wild"), func(m *Manifest, o *Options) {
		m.Provides = nil
		if change != nil {
			change(m, o)
		}
	})
}

// Whatever a guest does ends with its run, and leaves nothing in the host.
func TestAGuestLeavesNothingRunning(t *testing.T) {
	started := goleak.IgnoreCurrent()
	soon := 300 * time.Millisecond
	for name, c := range map[string]struct {
		module string // of wat; "" for the wild one
		do     string
		limit  time.Duration
		want   error
	}{
		"goroutines that never end":      {"", "goroutines", time.Minute, nil},
		"one that spins, and a wait":     {"", "spinning", soon, ErrTimeout},
		"a sleep beyond its time":        {"", "sleep", soon, ErrTimeout},
		"a short sleep":                  {"", "nap", time.Minute, nil},
		"goroutines, and a trap":         {"", "goroutines trap", time.Minute, ErrTrapped},
		"goroutines, and out of time":    {"", "goroutines sleep", soon, ErrTimeout},
		"a start that spins":             {"startspin", "", soon, ErrTimeout},
		"a start that traps":             {"starttrap", "", time.Minute, ErrTrapped},
		"an _initialize that spins":      {"initspin", "", soon, ErrTimeout},
		"a table that grows for ever":    {"tablegrow", "", time.Minute, ErrTrapped},
		"waits that lie":                 {"poll", "", 10 * time.Second, nil},
		"waits whose length wraps":       {"pollwrap", "", 10 * time.Second, ErrTrapped},
		"a wait that is longer than all": {"pollforever", "", soon, ErrTimeout},
		"answers taken that are none":    {"badtake", "", time.Minute, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var b *guestBench
			if c.module == "" {
				b = wildGuest(t, nil)
			} else {
				b = guestOf(t, wat(t, c.module), plain)
			}
			began := time.Now()
			_, err := b.wild(t, c.limit, c.do)
			if c.want == nil && err != nil || !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			if took := time.Since(began); took > c.limit+20*time.Second {
				t.Errorf("it ended after %s of %s", took, c.limit)
			}
			if text := fmt.Sprint(err); strings.Contains(text, "nil pointer") || strings.Contains(text, "goroutine ") || len(text) > 3000 {
				t.Errorf("it is told with %s", text)
			}
		})
	}
	goleak.VerifyNone(t, started)
}

// A module that is stopped from outside stops, wherever it is.
func TestACancelledRunEnds(t *testing.T) {
	started := goleak.IgnoreCurrent()
	for _, do := range []string{"sleep", "spinning"} {
		ctx, cancel := context.WithCancel(t.Context())
		b := wildGuest(t, func(_ *Manifest, o *Options) {
			o.Log = slog.New(&tripwire{lines: &lines{}, on: cancel})
		})
		if err := b.RunTriggered(ctx, time.Hour, "event", map[string]any{"do": do}); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", do, err)
		}
		if err := b.Close(context.Background()); err != nil {
			t.Error(err)
		}
		cancel()
	}
	goleak.VerifyNone(t, started)
}

// tripwire calls on when a loop says something.
type tripwire struct {
	*lines
	on func()
}

func (w *tripwire) Handle(ctx context.Context, r slog.Record) error {
	err := w.lines.Handle(ctx, r)
	if r.Message == "a loop says" {
		w.on()
	}
	return err
}

// A wait costs no processor time.
func TestAModuleThatSleepsDoesNotSpin(t *testing.T) {
	t.Parallel()
	b := wildGuest(t, nil)
	waits := 0
	_, err := b.wild(t, time.Minute, "nap")
	if err != nil {
		t.Fatal(err)
	}
	// That the clock is asked a few times only is what can be seen of it.
	b = wildGuest(t, func(_ *Manifest, o *Options) {
		o.Clock = func() time.Time { waits++; return time.Unix(0, 0) }
	})
	if _, err := b.wild(t, time.Minute, "nap"); err != nil || waits > 50 {
		t.Errorf("the clock was asked %d times, %v", waits, err)
	}
}

func TestATableIsOutsideOfTheMemoryAndBoundedToo(t *testing.T) {
	b := guestOf(t, wat(t, "tablegrow"), plain)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := b.Run(t.Context(), time.Minute)
	runtime.ReadMemStats(&after)
	if !errors.Is(err, ErrTrapped) || !strings.Contains(err.Error(), "unreachable") {
		t.Errorf("it did not come to its bound: %v", err)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 200<<20 {
		t.Errorf("it took %d bytes of the host", n)
	}
}

func TestAToolThatLiesIsToldAndTakesNothingWithIt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		says string
		err  error
	}{
		"liar":     {"outside of the module's memory", ErrTrapped}, // the answer's place
		"lost":     {"outside of the module's memory", ErrTrapped}, // the allocator's
		"longtool": {"at most 4194304", ErrTrapped},
		"spintool": {"did not end", ErrTimeout},
	} {
		b := guestOf(t, wat(t, name), nil)
		limit := time.Minute
		if c.err == ErrTimeout { //nolint:errorlint // of the table
			limit = 200 * time.Millisecond
		}
		if _, err := b.InvokeTool(t.Context(), "look", nil, limit); !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"noalloc", "otherimport", "unknownimport"} {
		if _, err := newGuest(t, wat(t, name), nil); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := newGuest(t, wat(t, "unknownimport"), plain); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), "fork") {
		t.Errorf("a function the host does not have: %v", err)
	}
}

// A guest cannot speak in another loop's name: whose it is stands beside what it says.
func TestAGuestCannotTakeAnothersName(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	b := guest(t, func(_ *Manifest, o *Options) { o.Log = slog.New(slog.NewTextHandler(&out, nil)) })
	forged := "fine\" loop=other by=log text=\"hello\ntime=2026-01-01 level=INFO msg=\"a loop says\" loop=other text=hello"
	if _, err := b.run(t, call(FnLog, forged), step{Do: "print", N: 10}, call(FnTrigger, `{"loop":"other"}`)); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		if !strings.Contains(line, "loop=guest") || strings.HasPrefix(line, "time=2026-01-01 ") {
			t.Errorf("a line that is not the guest's: %q", line)
		}
	}
	if n := strings.Count(out.String(), "\n"); n < 3 {
		t.Errorf("%d lines", n)
	}
}

func TestAHugeLogIsCutAndTheRestDropped(t *testing.T) {
	t.Parallel()
	b := guest(t, nil)
	said, err := b.run(t, step{Do: "call", Name: FnLog, Req: strings.Repeat("l", 64<<10), Cap: 0, N: 5000})
	if err != nil {
		t.Fatal(err)
	}
	kept := 0
	for _, line := range said {
		kept += len(line)
	}
	if len(said) != 16 || kept > 16*maxLine {
		t.Errorf("%d lines of %d bytes were kept of 320 MiB", len(said), kept)
	}
}
