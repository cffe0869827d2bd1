package signed

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/loops"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/wasmloop"
)

// A run of an older version calls nothing that the installed one gave up.
func TestARunOfAnOldVersionHasNoFunctionThatIsGone(t *testing.T) {
	t.Parallel()
	onSites(t, choice{}, func(t *testing.T, s *site) {
		s.changing().less = []string{wasmloop.FnConfig, wasmloop.FnSleep}
		said := s.do(t, call("config", "color"), call("hosttool", "gws"), ours("sleep", `{"ms":1}`), put("one"))
		for _, want := range []string{"config -2", "hosttool 15", "sleep 2", `{"output":"put"`} {
			if !has(said, want) {
				t.Errorf("no %q: %q", want, said)
			}
		}
	})
}

// What a run records is bounded as a whole.
func TestARunRecordsSoMuchAndNoMore(t *testing.T) {
	t.Parallel()
	k := &kit{record: &record{}, k: &loops.Kit{}}
	if err := k.keep(maxKept); err != nil {
		t.Fatal(err)
	}
	if err := k.keep(1); !errors.Is(err, wasmloop.ErrStop) || !fault.Is(k.why, fault.Invalid) || !strings.Contains(k.why.Error(), "64 MiB") {
		t.Errorf("%v, %v", err, k.why)
	}
}

// A module that panics is told with why, and not with the end of its trace.
func TestAModuleThatPanicsIsToldWithWhy(t *testing.T) {
	t.Parallel()
	onSites(t, choice{}, func(t *testing.T, s *site) {
		id, err := s.times.Manual(t.Context(), "loop:guest", json.RawMessage(`{"steps":1}`), "operator")
		if err != nil {
			t.Fatal(err)
		}
		if rec := s.end(t, id); rec.State != run.Failed || !strings.Contains(rec.Error, "it said last: panic: ") {
			t.Errorf("it is %s: %s", rec.State, rec.Error)
		}
	})
}
