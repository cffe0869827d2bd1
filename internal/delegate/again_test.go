package delegate

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
)

// TestATaskWithTheSameKeyIsTheSameTask, also where two ask at once.
func TestATaskWithTheSameKeyIsTheSameTask(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		h := open(t, d)
		begin := func(o Order, key string) (got Started, known bool, err error) {
			err = d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) (err error) {
				got, known, err = h.StartOnceTx(ctx, tx, o, "conv_1", key)
				return err
			})
			return got, known, err
		}
		o := ours(h.cfg.Workspace, false)
		if _, known, err := h.Begun(t.Context(), o, "k"); known || err != nil {
			t.Fatalf("before the first: %v, %v", known, err)
		}
		var mu sync.Mutex
		runs := map[string]int{}
		var askers sync.WaitGroup
		for range 4 {
			askers.Go(func() {
				got, _, err := begin(o, "k")
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				runs[got.Run]++
				mu.Unlock()
			})
		}
		askers.Wait()
		got, known, err := h.Begun(t.Context(), o, "k")
		if err != nil || !known || len(runs) != 1 || runs[got.Run] != 4 || got.Session == "" || got.Route.Harness != "claude" {
			t.Errorf("%v is %+v, %v, %v", runs, got, known, err)
		}
		other := o
		other.Prompt = "something else"
		if _, _, err := begin(other, "k"); !fault.Is(err, fault.Conflict) {
			t.Errorf("another task under the key: %v", err)
		}
		if _, _, err := h.Begun(t.Context(), other, "k"); !fault.Is(err, fault.Conflict) {
			t.Errorf("another task under the key: %v", err)
		}
		if _, _, err := h.Begun(t.Context(), o, strings.Repeat("k", maxKey+1)); !fault.Is(err, fault.Invalid) {
			t.Errorf("a long key: %v", err)
		}
		for range 2 {
			if _, known, err := begin(o, ""); known || err != nil {
				t.Errorf("without a key: %v, %v", known, err)
			}
		}
		h.last()
		if list, err := h.List(t.Context(), 10); err != nil || len(list) != 3 {
			t.Errorf("there are %d tasks, %v", len(list), err)
		}
	})
}
