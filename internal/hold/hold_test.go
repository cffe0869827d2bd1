package hold

import (
	"context"
	"testing"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
)

func TestAHoldStaysUntilItIsLetGo(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		open := func() *Hold {
			t.Helper()
			h, err := Open(t.Context(), d)
			if err != nil {
				t.Fatal(err)
			}
			return h
		}
		in := func(fn func(ctx context.Context, tx *db.Tx) error) error { return d.InTx(t.Context(), fn) }
		h := open()
		if h.Held() || h.Refuse() != nil {
			t.Error("a new store is held")
		}
		err := in(func(ctx context.Context, tx *db.Tx) error { return h.ReleaseTx(ctx, tx, "res_1") })
		if !fault.Is(err, fault.Conflict) {
			t.Errorf("let go of nothing: %v", err)
		}
		want := Record{Restore: "res_1", Backup: "bak_1", At: 7, Made: 5, Head: 3}
		if err := in(func(ctx context.Context, tx *db.Tx) error { return SetTx(ctx, tx, want) }); err != nil {
			t.Fatal(err)
		}
		h, other := open(), open()
		if got, held := h.Record(); !held || got != want {
			t.Errorf("%+v, %v", got, held)
		}
		if err := h.Refuse(); !fault.Is(err, fault.Waiting) || fault.HintOf(err) == "" || fault.Exit(err) != 75 {
			t.Errorf("%v", err)
		}
		err = in(func(ctx context.Context, tx *db.Tx) error { return h.ReleaseTx(ctx, tx, "res_2") })
		if !fault.Is(err, fault.Conflict) || !h.Held() {
			t.Errorf("another restore: %v", err)
		}
		failed := fault.New(fault.Invalid, "no")
		err = in(func(ctx context.Context, tx *db.Tx) error {
			if err := h.ReleaseTx(ctx, tx, "res_1"); err != nil {
				return err
			}
			return failed
		})
		if !fault.Is(err, fault.Invalid) || !h.Held() || !open().Held() {
			t.Errorf("a release that was rolled back let go: %v", err)
		}
		if err := in(func(ctx context.Context, tx *db.Tx) error { return h.ReleaseTx(ctx, tx, "res_1") }); err != nil {
			t.Fatal(err)
		}
		if h.Held() || open().Held() {
			t.Error("it is held still")
		}
		// Another node sees it when it looks.
		if !other.Held() {
			t.Error("it has looked by itself")
		}
		if err := other.Look(t.Context()); err != nil || other.Held() {
			t.Errorf("after a look: %v", err)
		}
		if err := in(func(ctx context.Context, tx *db.Tx) error { return db.SetMeta(ctx, tx, key, "{") }); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(t.Context(), d); !fault.Is(err, fault.Verification) {
			t.Errorf("what cannot be read: %v", err)
		}
	})
}
