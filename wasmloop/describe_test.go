package wasmloop

import (
	"slices"
	"testing"
)

// A loop that hears of runs hears of its own: one run of it starts the next.
func TestTheScreenSaysThatALoopStartsItself(t *testing.T) {
	t.Parallel()
	for event, want := range map[string]string{
		"run.*":         "run at each event run.*, also of its own runs, and read what is in it",
		"run.completed": "run at each event run.completed, also of its own runs, and read what is in it",
		"comms.message": "run at each event comms.message, and read what is in it",
	} {
		if got := Describe(Manifest{Events: []string{event}}); !slices.Contains(got, want) {
			t.Errorf("%s: %q", event, got)
		}
	}
}
