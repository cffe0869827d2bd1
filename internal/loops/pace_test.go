package loops

import (
	"context"
	"sync"
	"testing"

	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/trigger"
)

// TestALoopThatStartsItselfAtOnceIsNoBusyOne: each of its runs is a second behind the one
// before, and knows how long this has gone on.
func TestALoopThatStartsItselfAtOnceIsNoBusyOne(t *testing.T) {
	t.Parallel()
	const runs = 3
	var mu sync.Mutex
	var seen []trigger.Trigger
	chain := loop("chain", func(ctx context.Context, k *Kit) error {
		mu.Lock()
		seen = append(seen, k.Trigger())
		n := len(seen)
		mu.Unlock()
		if n > runs {
			return nil
		}
		return k.After(ctx, "again", "again", 0, nil)
	})
	h := open(t, dbtest.SQLite(t), setup{loops: []Loop{chain}})
	h.do("chain")
	h.until(func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(seen) > runs
	})
	mu.Lock()
	defer mu.Unlock()
	for i, tr := range seen[1:] {
		if tr.Hurry != i+1 || tr.At < seen[i].At+1_000_000 {
			t.Errorf("run %d: hurry %d, %d µs behind the one before", i+1, tr.Hurry, tr.At-seen[i].At)
		}
	}
}
