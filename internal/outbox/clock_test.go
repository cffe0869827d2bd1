package outbox

import (
	"slices"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
)

// A clock that was hours ahead and is put right keeps nothing back that is said from then on.
func TestAClockThatGoesBackHoldsNothingUp(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind dbtest.Kind) {
		t.Parallel()
		b := setup(t, kind, Options{})
		down := false
		net := &network{next: func(Item) (bool, error) {
			if down {
				return false, &RetryAfter{After: time.Minute, Err: fault.New(fault.Unavailable, "too much")}
			}
			return true, nil
		}}
		if err := b.senders.Add("net", net); err != nil {
			t.Fatal(err)
		}
		b.pass(10 * time.Hour)
		b.put(say("a", "net", 1))
		b.round()
		b.pass(-10 * time.Hour)
		b.put(say("a", "net", 2))
		b.round()
		down = true
		b.put(say("a", "net", 3))
		b.round()
		down = false
		b.round()
		if !slices.Equal(net.seen, []string{"a 1", "a 2"}) {
			t.Errorf("arrived %q", net.seen)
		}
		b.pass(time.Minute)
		b.round()
		if !slices.Equal(net.seen, []string{"a 1", "a 2", "a 3"}) {
			t.Errorf("arrived %q", net.seen)
		}
	})
}
