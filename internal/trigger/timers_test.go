package trigger

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/run"
)

func (h *house) arm(timer string, in int64) error {
	return h.db.InTx(h.t.Context(), func(ctx context.Context, tx *db.Tx) error {
		return h.ArmTx(ctx, tx, "loop:x", timer, tx.Now()+in, nil, label.Of(label.Own, label.OperatorOnly))
	})
}

// A name that Go quotes otherwise than JSON does once made the run's input unreadable.
func TestATimerOfAnyNameStartsItsTarget(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house) {
		h.replace(on("x", On{Timer: true}))
		h.live()
		for n, name := range []string{"\u00ad\U000e0001", `"quoted"`, "täglich"} {
			if err := h.arm(name, 1); err != nil {
				t.Fatal(err)
			}
			h.until(func() bool { return len(h.works()) == n+1 })
			if got := h.works()[n].value("timer_id"); got != name {
				t.Errorf("the run of %q is told %q", name, got)
			}
		}
	})
}

func TestATimerHasAShortNameOfCharacters(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house) {
		h.replace(on("x", On{Timer: true}))
		for _, name := range []string{"a\x00b", "\a", "a\nb", strings.Repeat("n", 201)} {
			wantClass(t, h.arm(name, 1), fault.Invalid)
		}
		if err := h.arm(strings.Repeat("n", 200), 1); err != nil {
			t.Error(err)
		}
	})
}

// A run that arms two timers for at once would otherwise put two runs in line, those four,
// and so on until the disk is full.
func TestTimersOfATargetAndItsLineAreBounded(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house) {
		h.replace(on("x", On{Timer: true}))
		const hour = 3_600_000_000
		for n := range MaxAhead - 2 {
			if err := h.arm("t"+strconv.Itoa(n), hour); err != nil {
				t.Fatal(n, err)
			}
		}
		for range 2 { // nothing works them off
			if _, err := h.Manual(t.Context(), "loop:x", json.RawMessage(`{}`), "operator"); err != nil {
				t.Fatal(err)
			}
		}
		wantClass(t, h.arm("one more", 1), fault.Invalid)
		if err := h.arm("t0", 2*hour); err != nil {
			t.Errorf("one that is armed cannot be moved: %v", err)
		}
		err := h.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			if _, err := h.DisarmTx(ctx, tx, "loop:x", "t1"); err != nil {
				return err
			}
			return h.runs.ArmTx(ctx, tx, run.Timer{ID: "another's", Kind: "k", Owner: "loop:x", At: 1})
		})
		if err != nil {
			t.Errorf("what is not started by it is bounded too: %v", err)
		}
	})
}
