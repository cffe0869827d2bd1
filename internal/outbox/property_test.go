package outbox

import (
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
)

// fate is what becomes of one call of a channel.
type fate int

const (
	works fate = iota
	down
	wait
	refuses
	cutBefore // an error nobody understands; it did not arrive
	cutAfter  // … and it did
	diesBefore
	diesAfter
)

// play makes a call meet its fate. Goexit ends the send without a word, as a kill
// does: the row stays in flight.
func play(n *network, f fate, it Item) (bool, error) {
	switch f {
	case down:
		return false, fault.New(fault.Unavailable, "down")
	case wait:
		return false, &RetryAfter{After: 7 * time.Second, Err: errors.New("slow down")}
	case refuses:
		return false, fault.New(fault.Invalid, "no")
	case cutBefore:
		return false, errors.New("cut")
	case cutAfter:
		return true, errors.New("cut")
	case diesBefore:
		runtime.Goexit()
	case diesAfter:
		n.arrive(it)
		runtime.Goexit()
	}
	return true, nil
}

// world is a model of what should be: every item in the order it was said.
type world struct {
	*bench
	t     *rapid.T
	net   *network
	asked *probed
	items map[string][]Item // by conversation, in order
	again map[string]bool   // ids a person had sent again from uncertain
	n     int
}

func TestNothingIsLostDoubledOrOutOfOrderWhateverHappens(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind dbtest.Kind) {
		shared := setup(t, kind, Options{Attempts: 5})
		check, passed, failed := 0, 0, false
		enough := map[dbtest.Kind]int{dbtest.KindSQLite: 40, dbtest.KindPostgres: 20}[kind]
		rapid.Check(t, func(t *rapid.T) {
			if passed >= enough && !failed {
				return // a commit on a server takes its time
			}
			defer func() {
				passed, failed = passed+1, failed || t.Failed()
			}()
			check++
			w := &world{bench: shared, t: t, net: &network{}, asked: &probed{}, items: map[string][]Item{}, again: map[string]bool{}}
			shared.senders = NewSenders() // what earlier checks left has no channel any more
			for _, err := range []error{
				shared.senders.Add(fmt.Sprint("net", check), w.net), shared.senders.Add(fmt.Sprint("probed", check), w.asked),
				shared.senders.AddTx(fmt.Sprint("rows", check), &table{fail: func(Item) error {
					if rapid.IntRange(0, 3).Draw(t, "rows fail") == 0 {
						return fault.New(fault.Unavailable, "locked")
					}
					return nil
				}}),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
			shared.reboot()
			w.meet(true)
			t.Repeat(map[string]func(*rapid.T){
				"say":    func(t *rapid.T) { w.say(t, check) },
				"round":  func(*rapid.T) { w.round() },
				"time":   func(t *rapid.T) { w.pass(time.Duration(rapid.IntRange(1, 20).Draw(t, "seconds")) * time.Second) },
				"kill":   func(*rapid.T) { w.reboot() },
				"resend": func(t *rapid.T) { w.resend(t) },
				"":       func(t *rapid.T) { w.holds(t) },
			})
			w.meet(false)
			w.drain(t)
		})
	})
}

// meet sets whether calls meet random fates or simply work.
func (w *world) meet(random bool) {
	draw := func(n *network) func(Item) (bool, error) {
		return func(it Item) (bool, error) {
			if !random {
				return true, nil
			}
			return play(n, fate(rapid.IntRange(int(works), int(diesAfter)).Draw(w.t, "fate")), it)
		}
	}
	w.net.next, w.asked.next = draw(w.net), draw(&w.asked.network)
	w.asked.answer = func(Item) (Answer, error) {
		if !random {
			return "", nil
		}
		switch rapid.IntRange(0, 4).Draw(w.t, "probe") {
		case 0:
			return CannotTell, nil
		case 1:
			return "", fault.New(fault.Unavailable, "down")
		}
		return "", nil
	}
}

// round is one look, one call at a time so that fates are drawn in one order.
func (w *world) round() {
	if _, err := w.runOnceOneByOne(); err != nil {
		w.t.Fatal(err)
	}
}

// runOnceOneByOne is runOnce with one call at a time.
func (w *world) runOnceOneByOne() (int, error) {
	w.Outbox.opt.PerChannel = 1
	ctx, taken := w.bench.t.Context(), 0
	for _, channel := range w.senders.names() {
		plain, rows, err := w.senders.get(channel)
		if err != nil {
			return taken, err
		}
		n, err := w.dispatch(ctx, channel, plain, rows)
		w.sends.Wait()
		taken += n
		if err == nil && plain != nil {
			n, err = w.lookAfterDoubt(ctx, channel, plain)
			w.sends.Wait()
			taken += n
		}
		if err != nil {
			return taken, err
		}
	}
	return taken, nil
}

func (w *world) say(t *rapid.T, check int) {
	channel := rapid.SampledFrom([]string{"net", "probed", "rows"}).Draw(t, "channel")
	c := fmt.Sprintf("%s%d.%d", channel, check, rapid.IntRange(0, 1).Draw(t, "conversation"))
	m := say(c, fmt.Sprint(channel, check), w.n)
	w.n++
	it, err := w.append(m)
	if err != nil {
		t.Fatal(err)
	}
	w.items[c] = append(w.items[c], it)
	if rapid.Bool().Draw(t, "again") { // the turn was done again after a crash
		if twin, err := w.append(m); err != nil || twin.ID != it.ID {
			t.Fatalf("said again: %s, %v; first %s", twin.ID, err, it.ID)
		}
	}
}

func (w *world) resend(t *rapid.T) {
	for _, c := range slices.Sorted(maps.Keys(w.items)) {
		for _, it := range w.items[c] {
			now := w.get(it.ID)
			if now.State != Uncertain && now.State != Failed {
				continue
			}
			if _, err := w.Decide(w.bench.t.Context(), it.ID, Resend, "operator", ""); err != nil {
				t.Fatal(err)
			}
			w.again[it.ID] = w.again[it.ID] || now.State == Uncertain
			return
		}
	}
	t.Skip("nothing to send again")
}

func (w *world) arrivals(id string) int { return w.net.ids[id] + w.asked.ids[id] }

// items as the store has them, by id.
func (w *world) stored(t *rapid.T) map[string]Item {
	out := map[string]Item{}
	for _, channel := range w.senders.names() {
		list, err := w.List(w.bench.t.Context(), Filter{Channel: channel, Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		for _, it := range list {
			out[it.ID] = it
		}
	}
	return out
}

// holds checks what must be true at any instant.
func (w *world) holds(t *rapid.T) {
	stored := w.stored(t)
	for c, items := range w.items {
		flying, waiting := 0, false
		for _, it := range items {
			now, n := stored[it.ID], w.arrivals(it.ID)
			switch {
			case n > 1 && !w.again[it.ID]:
				t.Fatalf("%s arrived %d times", it.Text, n)
			case now.State == Failed && n > 0 && !w.again[it.ID]:
				t.Fatalf("%s is said to have failed and arrived", it.Text)
			case now.PossibleRepeat != w.again[it.ID]:
				t.Fatalf("%s: possible repeat %v, should be %v", it.Text, now.PossibleRepeat, w.again[it.ID])
			case now.State == Sending && waiting:
				t.Fatalf("%s overtakes one that waits", it.Text)
			}
			if now.State == Sending {
				flying++
			}
			waiting = waiting || now.State == Queued && now.since == now.Queued // not one a person sent again later
		}
		if flying > 1 {
			t.Fatalf("%d of %s are in flight", flying, c)
		}
	}
	w.ordered(t, stored)
}

// ordered holds that first arrivals are in the order said, but for what a person
// sent again.
func (w *world) ordered(t *rapid.T, stored map[string]Item) {
	for _, seen := range [][]string{w.net.seen, w.asked.seen} {
		last := map[string]int{}
		for _, text := range seen {
			var c string
			var n int
			if _, err := fmt.Sscan(text, &c, &n); err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(w.items[c], func(it Item) bool { return it.Text == text })
			if sent := w.items[c][i]; w.again[sent.ID] || stored[sent.ID].since != sent.Queued {
				continue
			}
			if n < last[c] {
				t.Fatalf("%s arrived after %d", text, last[c])
			}
			last[c] = n
		}
	}
}

// drain lets everything come to its end: nothing may be lost.
func (w *world) drain(t *rapid.T) {
	w.reboot()
	for idle := 0; idle < 2; {
		n, err := w.runOnceOneByOne()
		if err != nil {
			t.Fatal(err)
		}
		w.pass(5 * time.Minute)
		if idle++; n > 0 {
			idle = 0
		}
	}
	w.holds(t)
	stored := w.stored(t)
	for c, items := range w.items {
		told := w.kinds(c)
		for _, it := range items {
			now := stored[it.ID]
			switch now.State {
			case Delivered:
				if now.Ref != "row" && w.arrivals(it.ID) == 0 {
					t.Fatalf("%s is said to be delivered and never arrived: %+v", it.Text, now)
				}
			case Failed:
				if !slices.Contains(told, KindFailed) {
					t.Fatalf("nobody was told that %s failed", it.Text)
				}
			case Uncertain:
				if !slices.Contains(told, KindUncertain) {
					t.Fatalf("nobody was told that %s is uncertain", it.Text)
				}
			default:
				t.Fatalf("%s is left as %s (%s)", it.Text, now.State, now.Error)
			}
		}
	}
}
