package run

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/lease"
)

// TestAHeldEngineBeginsNothing opens an engine on a store with work that is due, as a
// restored one is, and lets go later.
func TestAHeldEngineBeginsNothing(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		var done atomic.Int64
		b := setup(t, d, Kind{Name: "k", Handle: func(context.Context, *Run) ([]byte, error) { done.Add(1); return []byte(`{}`), nil }})
		var held atomic.Bool
		held.Store(true)
		b.Engine = New(d, b.vault, b.log, b.kinds, Options{Poll: 5 * time.Millisecond, Held: held.Load})
		first := b.begin(Spec{Kind: "k"})
		arm := func(id string) {
			t.Helper()
			err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
				return b.ArmTx(ctx, tx, Timer{ID: id, Kind: "reminder", Owner: "o", At: 1})
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		arm("overdue")
		b.open()
		second := b.begin(Spec{Kind: "k"})
		// Both loops are asked by hand too: that they do nothing is not a matter of time.
		if more, err := b.dispatchOnce(t.Context()); more || err != nil {
			t.Fatal(more, err)
		}
		if err := b.fireOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{first, second} {
			if rec, _, err := b.Get(t.Context(), id); err != nil || rec.State != Queued {
				t.Errorf("%+v, %v", rec.State, err)
			}
		}
		if armed, err := b.Timers(t.Context(), ""); err != nil || len(armed) != 1 || done.Load() != 0 {
			t.Errorf("%d timers armed, %d runs done, %v", len(armed), done.Load(), err)
		}
		if n, err := b.SkipOverdue(t.Context()); n != 1 || err != nil {
			t.Errorf("%d skipped, %v", n, err)
		}
		arm("later")
		held.Store(false)
		b.wait(first)
		b.wait(second)
		for end := time.Now().Add(20 * time.Second); ; {
			events, err := b.log.Stream(t.Context(), "timer:later", 0, 10)
			if err != nil {
				t.Fatal(err)
			}
			if len(events) == 1 {
				break
			}
			if time.Now().After(end) {
				t.Fatal("the timer does not fire")
			}
			<-time.After(5 * time.Millisecond)
		}
		if events, err := b.log.Stream(t.Context(), "timer:overdue", 0, 10); err != nil || len(events) != 0 {
			t.Errorf("a skipped timer fired: %v, %v", events, err)
		}
		b.verify()
	})
}

// A store that was restored knows nodes and holders of leases that do not know it.
func TestWhoWasAliveInABackupIsForgotten(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		b := setup(t, d, Kind{Name: "k", Handle: func(context.Context, *Run) ([]byte, error) { return []byte(`{}`), nil }})
		if err := b.renew(t.Context(), time.Hour); err != nil {
			t.Fatal(err)
		}
		leases := lease.New(d)
		held, err := leases.Acquire(t.Context(), "l", "old", time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		// A run that the node of before was doing.
		id := b.begin(Spec{Kind: "k"})
		if claimed, _, err := b.claim(t.Context(), 10); err != nil || len(claimed) != 1 {
			t.Fatal(claimed, err)
		}
		err = d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			if err := ForgetNodesTx(ctx, tx); err != nil {
				return err
			}
			return lease.ForgetTx(ctx, tx)
		})
		if err != nil {
			t.Fatal(err)
		}
		again, err := leases.Acquire(t.Context(), "l", "new", time.Hour)
		if err != nil || again.Fence <= held.Fence {
			t.Errorf("%+v after %+v, %v", again, held, err)
		}
		b.Engine = New(d, b.vault, b.log, b.kinds, Options{Poll: 5 * time.Millisecond, Home: "elsewhere"})
		b.open()
		if rec := b.wait(id); rec.State != Completed {
			t.Errorf("%s", rec.State)
		}
		b.verify()
	})
}
