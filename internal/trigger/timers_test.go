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
		return h.ArmTx(ctx, tx, Wake{Target: "loop:x", ID: timer, At: tx.Now() + in, Label: label.Of(label.Own, label.OperatorOnly)})
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

// TestTimersOfATargetKeepAPace: what is asked for at once is put off, the longer the longer
// runs start each other so, and no two timers of a target are for the same second.
func TestTimersOfATargetKeepAPace(t *testing.T) {
	t.Parallel()
	const second = 1_000_000
	each(t, func(t *testing.T, h *house) {
		h.replace(on("x", On{Timer: true}), on("y", On{Timer: true}))
		var now int64
		arm := func(target, timer string, in int64, hurry int) {
			t.Helper()
			err := h.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
				now = tx.Now()
				return h.ArmTx(ctx, tx, Wake{Target: target, ID: timer, At: now + in, Label: label.Of(label.Own, label.OperatorOnly), Hurry: hurry})
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		// of tells when a timer is armed for, from now on, and in which hurry its run will be.
		of := func(target, timer string) (in int64, hurry int) {
			t.Helper()
			list, err := h.runs.Timers(t.Context(), target)
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range list {
				if x.ID == timerID(target, timer) {
					var a armed
					if err := json.Unmarshal(x.Payload, &a); err != nil {
						t.Fatal(err)
					}
					return x.At - now, a.Hurry
				}
			}
			t.Fatalf("no timer %s of %s", timer, target)
			return 0, 0
		}
		for _, c := range []struct {
			in    int64
			had   int
			want  int64
			hurry int
		}{
			{0, 0, second, 1}, {-5 * second, 0, second, 1}, {second - 1, 7, second, 8},
			{0, slower, 2 * second, slower + 1}, {0, 10 * slower, 11 * second, 10*slower + 1},
			{0, 100 * slower, 60 * second, 100*slower + 1}, {0, 1 << 62, 60 * second, 1<<62 + 1},
			{second, 9, second, 0}, {1500_000, 9, 1500_000, 0}, {3600 * second, 100 * slower, 3600 * second, 0},
		} {
			arm("loop:x", "one", c.in, c.had)
			if in, hurry := of("loop:x", "one"); in != c.want || hurry != c.hurry {
				t.Errorf("in %d after %d: it is armed for %d and the hurry is %d, want %d and %d", c.in, c.had, in, hurry, c.want, c.hurry)
			}
		}
		arm("loop:y", "a", 3*second, 0)
		at := now + 3*second
		arm("loop:y", "b", at-now+second/2, 0) // as near as the clock has gone on
		for _, name := range []string{"c", "d"} {
			arm("loop:y", name, 0, 0)
		}
		arm("loop:y", "a", at-now, 0) // itself is not in its way
		list, err := h.runs.Timers(t.Context(), "loop:y")
		if err != nil || len(list) != 4 {
			t.Fatal(len(list), err)
		}
		for i := range list[1:] {
			if list[i+1].At-list[i].At < second {
				t.Errorf("%s and %s are %d µs apart", list[i].ID, list[i+1].ID, list[i+1].At-list[i].At)
			}
		}
	})
}
