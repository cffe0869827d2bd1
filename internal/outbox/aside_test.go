package outbox

import (
	"slices"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
)

// What is kept back holds up its like, in order, and nothing else of its conversation; a
// network that asks to wait holds up all of it.
func TestWhatIsKeptBackHoldsUpItsLikeAlone(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind dbtest.Kind) {
		t.Parallel()
		b := setup(t, kind, Options{})
		quiet, busy := true, false
		net := &network{next: func(it Item) (bool, error) {
			switch {
			case quiet && it.Unasked:
				return false, &RetryAfter{After: time.Minute, Err: fault.New(fault.Unavailable, "quiet hours"), Kept: true, Aside: true}
			case busy:
				return false, &RetryAfter{After: time.Minute, Err: fault.New(fault.Unavailable, "too much")}
			}
			return true, nil
		}}
		if err := b.senders.Add("net", net); err != nil {
			t.Fatal(err)
		}
		unasked := func(n int) {
			m := say("a", "net", n)
			m.Unasked = true
			b.put(m)
		}
		unasked(1)
		b.put(say("a", "net", 2))
		b.round() // the first is tried; what follows it was not let past yet
		b.round()
		unasked(3)
		b.put(say("a", "net", 4))
		b.reboot()
		b.round()
		if !slices.Equal(net.seen, []string{"a 2", "a 4"}) {
			t.Errorf("arrived %q", net.seen)
		}
		busy = true
		b.put(say("a", "net", 5))
		b.round()
		b.put(say("a", "net", 6))
		unasked(7)
		quiet, busy = false, false
		b.round()
		if !slices.Equal(net.seen, []string{"a 2", "a 4"}) {
			t.Errorf("a network that asked to wait was not waited for: %q", net.seen)
		}
		b.pass(time.Minute)
		for range 6 {
			b.round()
		}
		var kept, asked []string
		for _, text := range net.seen {
			if slices.Contains([]string{"a 1", "a 3", "a 7"}, text) {
				kept = append(kept, text)
			} else {
				asked = append(asked, text)
			}
		}
		if !slices.Equal(kept, []string{"a 1", "a 3", "a 7"}) || !slices.Equal(asked, []string{"a 2", "a 4", "a 5", "a 6"}) {
			t.Errorf("arrived %q", net.seen)
		}
	})
}
