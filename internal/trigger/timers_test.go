package trigger

import (
	"context"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/label"
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
