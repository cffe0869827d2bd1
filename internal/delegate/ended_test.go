package delegate

import (
	"context"
	"testing"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/harness"
	"github.com/ombud-run/ombud/internal/harness/child"
)

// toldOf counts the events by which listeners are told.
func (h *house) toldOf() (woken, noticed, completed int) {
	return len(h.events("told.woken")), len(h.events("told.notice")), len(h.events(KindCompleted))
}

// TestAnEndIsToldAndBookedThoughASessionIsDamaged: a row that cannot be read costs what is in
// it and not the end of the run.
func TestAnEndIsToldAndBookedThoughASessionIsDamaged(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		h := open(t, d)
		h.stage.play(func(ctx context.Context, task child.Task) (harness.Record, error) {
			return done(task, "42", 1000), nil
		})
		h.damage = func(ctx context.Context, tx *db.Tx) error {
			_, err := tx.Exec(ctx, "UPDATE delegation_sessions SET body = $1", []byte("nothing that was sealed"))
			return err
		}
		h.call(CallTool, callInput{Prompt: "x", Background: true})
		if x, _ := h.last(); x.Ended == 0 || x.Outcome != "completed" || x.MicroUSD != 1000 {
			t.Errorf("the row is %+v", x)
		}
		if woken, noticed, completed := h.toldOf(); woken != 1 || noticed != 0 || completed != 1 {
			t.Errorf("%d were woken, %d noticed, %d completed", woken, noticed, completed)
		}
		if spent, reserved, _, _ := h.spent(); spent != 1000 || reserved != 0 {
			t.Errorf("booked are %d, held %d", spent, reserved)
		}
	})
}

// TestAnEndThatCannotBeToldIsBooked, and told to the operator if anybody can be; else it is
// all done at the next start, once.
func TestAnEndThatCannotBeToldIsBooked(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		h := open(t, d)
		h.deaf.Store(1) // the conversation
		h.call(CallTool, callInput{Prompt: "x", Background: true})
		if x, _ := h.last(); x.Ended == 0 || x.MicroUSD != 1000 {
			t.Errorf("the row is %+v", x)
		}
		if woken, noticed, completed := h.toldOf(); woken != 0 || noticed != 1 || completed != 1 {
			t.Errorf("%d were woken, %d noticed, %d completed", woken, noticed, completed)
		}
		h.deaf.Store(2) // everybody
		h.call(CallTool, callInput{Prompt: "y", Background: true})
		if x, _ := h.last(); x.Ended != 0 {
			t.Errorf("the row is %+v", x)
		}
		if _, reserved, _, _ := h.spent(); reserved == 0 {
			t.Error("nothing is held any more, and nothing was booked")
		}
		if err := h.Settle(t.Context()); err == nil {
			t.Error("it was told, and nobody hears")
		}
		h.halt()
		h.deaf.Store(0)
		h.boot()
		for range 2 {
			if err := h.Settle(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if x, _ := h.last(); x.Ended == 0 || x.Outcome != "completed" {
			t.Errorf("the row is %+v", x)
		}
		if woken, noticed, completed := h.toldOf(); woken != 1 || noticed != 1 || completed != 2 {
			t.Errorf("%d were woken, %d noticed, %d completed", woken, noticed, completed)
		}
		if spent, reserved, possible, unknown := h.spent(); spent != 2000 || reserved+possible+unknown != 0 {
			t.Errorf("booked are %d, held %d, %d, %d", spent, reserved, possible, unknown)
		}
	})
}

// TestAnEndIsBookedThoughWhatWasToldIsDamaged: all that was held may have been spent, and is
// held no longer.
func TestAnEndIsBookedThoughWhatWasToldIsDamaged(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		h := open(t, d)
		h.deps.Price = perToken
		began := make(chan struct{})
		h.stage.play(func(ctx context.Context, task child.Task) (harness.Record, error) {
			close(began)
			<-ctx.Done()
			return cut(task, told(300_000)), nil
		})
		h.damage = func(ctx context.Context, tx *db.Tx) error {
			n, err := tx.Exec(ctx, "UPDATE delegations SET record = $1 WHERE record IS NOT NULL", []byte("nothing that was sealed"))
			if err == nil && n != 1 {
				t.Errorf("%d records were damaged", n)
			}
			return err
		}
		h.call(CallTool, callInput{Prompt: "x", Background: true})
		<-began
		list, err := h.List(t.Context(), 1)
		if err == nil {
			err = h.Runs.Cancel(t.Context(), list[0].Run, "operator", "enough")
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Runs.Wait(t.Context(), list[0].Run); err != nil {
			t.Fatal(err)
		}
		if list, err = h.List(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		if x := list[0]; x.Ended == 0 || x.Outcome != "cancelled" || x.Possible != firstHold {
			t.Errorf("the row is %+v", x)
		}
		if _, reserved, possible, _ := h.spent(); reserved != 0 || possible != firstHold {
			t.Errorf("held %d, possible %d", reserved, possible)
		}
	})
}
