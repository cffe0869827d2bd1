package deadletter

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
)

// due moves the clock and lets what is due be told.
func (h *house) due(t *testing.T, after time.Duration) []string {
	t.Helper()
	h.ahead.Add(int64(after))
	if err := h.letters.TellDue(t.Context()); err != nil {
		t.Fatal(err)
	}
	return h.notes("told")
}

// TestABurstIsOneNoticeAndOneSummary gives up many things of one source, and some of
// another, over several pauses and a restart.
func TestABurstIsOneNoticeAndOneSummary(t *testing.T) {
	t.Parallel()
	for _, kind := range dbtest.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			o := dbtest.Options(t, kind)
			h, err := newHouse(t.Context(), t, o)
			if err != nil {
				t.Fatal(err)
			}
			h.start(t.Context())
			for i := range 20 {
				h.event(fmt.Sprint("e", i))
			}
			h.run("x")
			told := h.notes("told")
			if len(told) != 2 || !strings.Contains(told[0], `Given up: the event e0, which "reader" could not handle. it is bad`) ||
				!strings.Contains(told[0], "ombud dlq show dead_") || !strings.Contains(told[0], "within 10m") ||
				!strings.Contains(told[1], `Given up: the work run "the name" (run_`) {
				t.Fatalf("told %q", told)
			}
			if told := h.due(t, 9*time.Minute); len(told) != 2 {
				t.Errorf("within the pause: %q", told[2:])
			}
			h.close()
			ahead := h.ahead.Load()
			if h, err = newHouse(t.Context(), t, o); err != nil {
				t.Fatal(err)
			}
			h.ahead.Store(ahead)
			h.start(t.Context())
			defer func() { h.close() }()
			h.event("e20")
			told = h.due(t, 61*time.Second)
			if len(told) != 3 || !strings.Contains(told[2], `20 more, events that "reader" could not handle; 21 in all since`) ||
				!strings.Contains(told[2], "ombud dlq list --source subscription --name reader") {
				t.Fatalf("after a restart and the pause: %q", told)
			}
			h.event("e21")
			if told := h.due(t, 39*time.Minute); len(told) != 3 {
				t.Errorf("within the longer pause: %q", told[3:])
			}
			if told := h.due(t, 62*time.Second); len(told) != 4 || !strings.Contains(told[3], ": 1 more") {
				t.Errorf("after the longer pause: %q", told[3:])
			}
			// The burst of the run is over long ago, that of the events after one quiet pause.
			h.run("y")
			if told := h.notes("told"); len(told) != 5 || !strings.Contains(told[4], "Given up: the work run") {
				t.Errorf("a new burst: %q", told[4:])
			}
			h.due(t, 161*time.Minute)
			h.event("e22")
			if told := h.notes("told"); len(told) != 6 || !strings.Contains(told[5], "Given up: the event e22") {
				t.Errorf("after a quiet pause: %q", told[5:])
			}
			h.mu.Lock()
			h.held = fault.New(fault.Waiting, "held")
			h.mu.Unlock()
			h.event("e23")
			if told := h.due(t, time.Hour); len(told) != 6 {
				t.Errorf("told while held: %q", told[6:])
			}
		})
	}
}

func TestShort(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{10 * time.Minute: "10m", 24 * time.Hour: "24h", 90 * time.Second: "1m30s", 90 * time.Minute: "1h30m"} {
		if got := short(d); got != want {
			t.Errorf("%s: %s, want %s", d, got, want)
		}
	}
}
