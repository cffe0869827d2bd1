package looptest

import (
	"errors"
	"testing"

	"github.com/ombud-run/ombud/sdk/loop"
)

// EveryCrash runs the loop once, and then again and again with a crash behind each call it
// makes, and a second attempt. It fails the test if a crash makes a difference in what the
// loop did. begin makes a new host, with its answers.
func EveryCrash(t *testing.T, begin func(t *testing.T) *Host) {
	t.Helper()
	whole := begin(t)
	if err := whole.Run(); err != nil {
		t.Fatalf("without a crash: %v", err)
	}
	for n := range whole.record {
		h := begin(t)
		h.CrashAfter(n + 1)
		if err := h.Run(); !errors.Is(err, ErrCrashed) {
			t.Fatalf("with a crash behind call %d (%s) the run came to %v", n+1, whole.record[n].Name, err)
		}
		if err := h.Again(); err != nil {
			t.Errorf("behind a crash after call %d (%s): %v", n+1, whole.record[n].Name, err)
		}
		differ(t, n+1, whole.Calls, h.Calls)
	}
}

// differ tells the first difference between what was done without a crash and with one.
func differ(t *testing.T, n int, want, got []Call) {
	t.Helper()
	for i := range max(len(want), len(got)) {
		var w, g Call
		if i < len(want) {
			w = want[i]
		}
		if i < len(got) {
			g = got[i]
		}
		if w != g {
			t.Errorf("a crash behind call %d makes a difference: call %d is %s %s without, and %s %s with it", n, i+1, w.Name, w.Request, g.Name, g.Request)
			return
		}
	}
}

var _ loop.Host = (*Host)(nil)
