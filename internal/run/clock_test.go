package run

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/db/dbtest"
)

// A machine whose clock was hours ahead works on when it is put right: what is due at once is
// due by the clock on the wall, though the time of transactions never goes back.
func TestAClockThatGoesBackHoldsNoRunUp(t *testing.T) {
	t.Parallel()
	for _, kind := range dbtest.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			var ahead atomic.Int64
			o := dbtest.Options(t, kind)
			o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
			handle := func(context.Context, *Run) ([]byte, error) { return nil, nil }
			woken := func(ctx context.Context, r *Run) ([]byte, error) {
				_, err := r.WaitSignal(ctx, "wait", "go", 0)
				return nil, err
			}
			b := setup(t, dbtest.Open(t, o), Kind{Name: "k", Handle: handle}, Kind{Name: "w", Handle: woken})
			b.open()
			ahead.Store(int64(10 * time.Hour))
			b.wait(b.begin(Spec{Kind: "k"}))
			waits := b.begin(Spec{Kind: "w"})
			first, second := b.begin(Spec{Kind: "k", Key: "a"}), b.begin(Spec{Kind: "k", Key: "a"})
			b.wait(first)
			b.wait(second)
			ahead.Store(0)
			b.wait(b.begin(Spec{Kind: "k"}))
			first, second = b.begin(Spec{Kind: "k", Key: "a"}), b.begin(Spec{Kind: "k", Key: "a"})
			b.wait(first)
			b.wait(second)
			if err := b.Signal(t.Context(), waits, "go", nil, "test"); err != nil {
				t.Fatal(err)
			}
			b.wait(waits)
			b.verify()
		})
	}
}
