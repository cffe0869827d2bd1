package outbox

import (
	"slices"
	"sync/atomic"
	"testing"

	"github.com/ombud-run/ombud/internal/db/dbtest"
)

// TestAHeldOutboxSendsNothing restarts an outbox held, with items that wait and one
// that was in flight, and lets go, or drops them.
func TestAHeldOutboxSendsNothing(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind dbtest.Kind) {
		t.Parallel()
		var held atomic.Bool
		b := setup(t, kind, Options{Held: held.Load})
		net := &network{}
		if err := b.senders.Add("net", net); err != nil {
			t.Fatal(err)
		}
		flight := b.put(say("a", "net", 1))
		if items, err := b.claim(t.Context(), []string{flight.ID}); err != nil || len(items) != 1 {
			t.Fatal(items, err)
		}
		waiting := b.put(say("b", "net", 1))
		held.Store(true)
		b.reboot()
		late := b.put(say("b", "net", 2))
		b.round()
		if got := []State{b.get(flight.ID).State, b.get(waiting.ID).State, b.get(late.ID).State}; !slices.Equal(got, []State{Sending, Queued, Queued}) || len(net.calls) != 0 {
			t.Errorf("%v, sent %q", got, net.calls)
		}
		dropped, err := b.DropAll(t.Context(), "operator", "a restore")
		if err != nil || dropped != 3 {
			t.Errorf("%d dropped, %v", dropped, err)
		}
		held.Store(false)
		b.round()
		if it := b.get(flight.ID); it.State != Skipped || !it.PossibleRepeat || len(net.calls) != 0 {
			t.Errorf("%+v, sent %q", it, net.calls)
		}
		if got := b.kinds("b"); !slices.Equal(got, []string{KindDecided, KindDecided}) {
			t.Errorf("events %q", got)
		}
		// A person may want one of them all the same.
		if _, err := b.Decide(t.Context(), waiting.ID, Resend, "operator", ""); err != nil {
			t.Fatal(err)
		}
		b.put(say("c", "net", 1))
		b.round()
		if !slices.Equal(net.seen, []string{"b 1", "c 1"}) && !slices.Equal(net.seen, []string{"c 1", "b 1"}) {
			t.Errorf("arrived %q", net.seen)
		}
	})
}
