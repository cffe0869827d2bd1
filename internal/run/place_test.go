package run

import (
	"context"
	"errors"
	"testing"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
)

// TestAPlaceGivenToARunningChildIsKept ends a parent whose child is being worked on:
// the child takes the place over, keeps it through a wait and gives it on at its end.
func TestAPlaceGivenToARunningChildIsKept(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := setup(t, d, Kind{Name: "k", Handle: nothing})
		parent := b.begin(Spec{Kind: "k", Key: "x"})
		b.claimOne()
		child := b.begin(Spec{Kind: "k", Key: "x", Parent: parent})
		r := b.claimOne()
		if err := r.loadSteps(); err != nil { // it relies on what it knows of its row from here
			t.Fatal(err)
		}
		next := b.begin(Spec{Kind: "k", Key: "x"})
		kind, _ := b.kinds.get("k")
		if err := b.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			return b.endTx(ctx, tx, kind, parent, noFence, change{kind: evFailed, data: endedData{}})
		}); err != nil {
			t.Fatal(err)
		}
		alone := func(when string) {
			t.Helper()
			if due, err := b.due(t.Context(), 4); err != nil || len(due) != 0 {
				t.Errorf("%s: due beside the child: %v, %v", when, due, err)
			}
		}
		alone("the parent has failed")
		if err := r.Park(t.Context(), ForSignal, "x", never, nil); !errors.Is(err, errParked) {
			t.Fatal(err)
		}
		alone("the child waits")
		if err := b.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error { return b.WakeTx(ctx, tx, child, ForSignal, "x") }); err != nil {
			t.Fatal(err)
		}
		r = b.claimOne()
		if err := r.loadSteps(); err != nil {
			t.Fatal(err)
		}
		b.conclude(r, kind, nil, nil)
		if r := b.claimOne(); r.ID() != next {
			t.Errorf("claimed %s, not the next in line", r.ID())
		}
		b.verify()
	})
}
