package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/vault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is an outbox on a store whose clock the test moves.
type bench struct {
	*Outbox
	t       testing.TB
	db      *db.DB
	vault   *vault.Vault
	log     *eventlog.Log
	senders *Senders
	opt     Options
	ahead   *atomic.Int64 // how far the clock is ahead, in nanoseconds
}

func setup(t testing.TB, kind dbtest.Kind, o Options) *bench {
	t.Helper()
	b := &bench{t: t, ahead: new(atomic.Int64), senders: NewSenders(), opt: o}
	now := func() time.Time { return time.Now().Add(time.Duration(b.ahead.Load())) }
	options := dbtest.Options(t, kind)
	options.Now = now
	b.db = dbtest.Open(t, options)
	var err error
	if b.vault, err = vault.OpenKeyFile(filepath.Join(t.TempDir(), "key")); err != nil {
		t.Fatal(err)
	}
	b.log = eventlog.NewLog(b.db, b.vault, slog.New(slog.DiscardHandler), eventlog.Options{Now: now})
	b.reboot()
	return b
}

// reboot drops everything in memory, as a kill does.
func (b *bench) reboot() {
	b.Outbox = New(b.db, b.vault, b.log, b.senders, b.opt)
	b.lease = 0 // what a dead node had in flight need not be waited for
}

func (b *bench) pass(d time.Duration) { b.ahead.Add(int64(d)) }

func each(t *testing.T, fn func(t *testing.T, kind dbtest.Kind)) {
	t.Helper()
	for _, kind := range dbtest.Kinds() {
		t.Run(string(kind), func(t *testing.T) { fn(t, kind) })
	}
}

// round takes what is due and waits until it is recorded.
func (b *bench) round() {
	b.t.Helper()
	if err := b.runOnce(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	b.sends.Wait()
}

func (b *bench) append(m Message) (it Item, err error) {
	err = b.db.InTx(b.t.Context(), func(ctx context.Context, tx *db.Tx) (err error) {
		it, err = b.AppendTx(ctx, tx, m)
		return err
	})
	return it, err
}

func (b *bench) put(m Message) Item {
	b.t.Helper()
	it, err := b.append(m)
	if err != nil {
		b.t.Fatal(err)
	}
	return it
}

func (b *bench) get(id string) Item {
	b.t.Helper()
	it, err := b.Get(b.t.Context(), id)
	if err != nil {
		b.t.Fatal(err)
	}
	return it
}

// kinds are the events of a conversation, in order.
func (b *bench) kinds(conversation string) (out []string) {
	b.t.Helper()
	events, err := b.log.Stream(b.t.Context(), "conversation:"+conversation, 0, 1000)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, e := range events {
		out = append(out, e.Kind)
	}
	return out
}

func say(conversation, channel string, n int) Message {
	return Message{Conversation: conversation, Channel: channel, Recipient: "you", Run: "run_" + conversation, Ordinal: n,
		Text: fmt.Sprintf("%s %d", conversation, n)}
}

// network is a channel of the outside world: what it holds is what really arrived.
type network struct {
	mu    sync.Mutex
	calls []string // texts, by call
	seen  []string // texts, by arrival
	ids   map[string]int
	next  func(it Item) (arrives bool, err error) // what becomes of a call; nil: it arrives
}

func (n *network) Send(_ context.Context, it Item) (Receipt, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls = append(n.calls, it.Text)
	arrives, err := true, error(nil)
	if n.next != nil {
		arrives, err = n.next(it)
	}
	if arrives {
		n.arrive(it)
	}
	return Receipt{Ref: "ref of " + it.Text}, err
}

func (n *network) arrive(it Item) {
	if n.ids == nil {
		n.ids = map[string]int{}
	}
	n.ids[it.ID]++
	n.seen = append(n.seen, it.Text)
}

// probed is a network that can be asked.
type probed struct {
	network
	answer func(Item) (Answer, error) // nil: the truth
}

func (p *probed) Probe(_ context.Context, it Item) (Answer, Receipt, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.answer != nil {
		if a, err := p.answer(it); a != "" || err != nil {
			return a, Receipt{}, err
		}
	}
	if p.ids[it.ID] > 0 {
		return Happened, Receipt{Ref: "found"}, nil
	}
	return DidNotHappen, Receipt{}, nil
}

var (
	_ Sender = (*network)(nil)
	_ Prober = (*probed)(nil)
)

// table is a channel whose delivery is rows.
type table struct{ fail func(Item) error }

func (s *table) SendTx(ctx context.Context, tx *db.Tx, it Item) (Receipt, error) {
	if _, err := tx.Exec(ctx, "INSERT INTO meta (key, value) VALUES ($1, $2)", "row of "+it.ID, it.Text); err != nil {
		return Receipt{}, err
	}
	if s.fail != nil {
		if err := s.fail(it); err != nil {
			return Receipt{}, err
		}
	}
	return Receipt{Ref: "row"}, nil
}

func (b *bench) rows() (n int) {
	b.t.Helper()
	err := b.db.Read(b.t.Context(), func(ctx context.Context, q db.Q) error {
		return q.QueryRow(ctx, "SELECT count(*) FROM meta WHERE key LIKE 'row of %'").Scan(&n)
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return n
}

func (b *bench) network(name string) *network {
	b.t.Helper()
	n := &network{}
	if err := b.senders.Add(name, n); err != nil {
		b.t.Fatal(err)
	}
	return n
}

func TestOneResultIsOneRowWhateverPathMadeIt(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind dbtest.Kind) {
		b := setup(t, kind, Options{})
		n := b.network("net")
		first := b.put(say("c", "net", 0))
		again := b.put(say("c", "net", 0))
		byOtherPath := say("c", "net", 0)
		byOtherPath.Ordinal = 7
		twin := b.put(byOtherPath)
		if again.ID != first.ID || twin.ID != first.ID {
			t.Errorf("%s, %s and %s should be one", first.ID, again.ID, twin.ID)
		}
		other := say("c", "net", 0)
		other.Text = "something else"
		if _, err := b.append(other); !fault.Is(err, fault.Conflict) {
			t.Errorf("another text under the same ordinal: %v", err)
		}
		byOtherPath.Separate = true
		if separate := b.put(byOtherPath); separate.ID == first.ID {
			t.Error("what is declared separate was made one")
		}
		otherRun := say("c", "net", 0)
		otherRun.Run = "run_2"
		if again := b.put(otherRun); again.ID == first.ID {
			t.Error("another run says the same on its own account")
		}
		for range 3 {
			b.round()
		}
		if len(n.seen) != 3 {
			t.Errorf("arrived: %v", n.seen)
		}
		if _, err := b.append(say("c", "nte", 9)); !fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), "net") {
			t.Errorf("an unknown channel: %v", err)
		}
	})
}

func TestARetryingHeadIsNeverOvertaken(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind dbtest.Kind) {
		b := setup(t, kind, Options{})
		n := b.network("net")
		limited := true
		n.next = func(it Item) (bool, error) {
			if it.Conversation == "c" && limited {
				limited = false
				return false, &RetryAfter{After: 33 * time.Second, Err: errors.New("too many requests")}
			}
			return true, nil
		}
		head := b.put(say("c", "net", 0))
		b.put(say("c", "net", 1))
		b.put(say("other", "net", 0))
		b.round()
		b.pass(32 * time.Second)
		b.round()
		if slices.Sort(n.calls); !slices.Equal(n.calls, []string{"c 0", "other 0"}) { // conversations have no order between them
			t.Fatalf("calls before the wait is over: %v", n.calls)
		}
		if it := b.get(head.ID); it.State != Queued || it.Attempts != 1 || !strings.Contains(it.Error, "too many requests") {
			t.Errorf("the head: %+v", it)
		}
		b.pass(2 * time.Second)
		b.round()
		b.round()
		if want := []string{"c 0", "other 0", "c 0", "c 1"}; !slices.Equal(n.calls, want) {
			t.Errorf("calls %v, want %v", n.calls, want)
		}
		if it := b.get(head.ID); it.State != Delivered || it.Ref != "ref of c 0" || it.Error != "" || it.DeliveredAt == 0 {
			t.Errorf("delivered: %+v", it)
		}
		if k := b.kinds("c"); !slices.Equal(k, []string{KindSent, KindSent}) {
			t.Errorf("events %v", k)
		}
	})
}

func TestAStuckConversationOrChannelDelaysNoOther(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.KindSQLite, Options{Poll: 5 * time.Millisecond, PerChannel: 2})
	stuck, release := b.network("stuck"), make(chan struct{})
	arrived := make(chan string, 100)
	if err := b.senders.Add("blocked", sendFunc(func(ctx context.Context, it Item) (Receipt, error) {
		select {
		case <-release:
		case <-ctx.Done():
		}
		return Receipt{}, ctx.Err()
	})); err != nil {
		t.Fatal(err)
	}
	stuck.next = func(Item) (bool, error) { return false, fault.New(fault.Unavailable, "down") }
	if err := b.senders.Add("net", sendFunc(func(_ context.Context, it Item) (Receipt, error) {
		arrived <- it.Text
		return Receipt{}, nil
	})); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		b.put(say(fmt.Sprint("blocked", i), "blocked", 0))
		b.put(say(fmt.Sprint("stuck", i), "stuck", 0))
	}
	for i := range 20 {
		b.put(say(fmt.Sprint("free", i%4), "net", i))
	}
	for range 2 { // starting twice is starting once
		if err := b.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	last := map[string]int{}
	for range 20 {
		select {
		case text := <-arrived:
			conversation, n, _ := strings.Cut(text, " ")
			var i int
			if _, err := fmt.Sscan(n, &i); err != nil || i < last[conversation] {
				t.Errorf("%s after %d (%v)", text, last[conversation], err)
			}
			last[conversation] = i
		case <-time.After(20 * time.Second):
			t.Fatal("others wait for the stuck ones")
		}
	}
	close(release)
	b.Stop()
	b.Stop()
}

type sendFunc func(ctx context.Context, it Item) (Receipt, error)

func (f sendFunc) Send(ctx context.Context, it Item) (Receipt, error) { return f(ctx, it) }

// A channel that breaks at every send, and then says that nothing was sent, is tried with
// growing pauses and given up like any other.
func TestASendThatNeverHappensIsGivenUp(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind dbtest.Kind) {
		b := setup(t, kind, Options{Attempts: 3})
		tries := 0
		p := &probed{}
		p.next = func(Item) (bool, error) {
			tries++
			return false, errors.New("the connection broke")
		}
		if err := b.senders.Add("asked", p); err != nil {
			t.Fatal(err)
		}
		it := b.put(say("c", "asked", 0))
		for range 4 {
			b.round() // nothing passes meanwhile: it waits
		}
		if tries != 1 {
			t.Errorf("it was tried %d times at once", tries)
		}
		for range 20 {
			b.round()
			b.pass(time.Minute)
		}
		if got := b.get(it.ID); got.State != Failed || tries != 3 || !strings.Contains(got.Error, "never sent") {
			t.Errorf("%d tries: %+v", tries, got)
		}
	})
}

// A channel that knows when it can tell is asked then, and neither before nor much later.
func TestAChannelThatCannotTellYetIsAskedWhenItSays(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind dbtest.Kind) {
		t.Parallel()
		b := setup(t, kind, Options{})
		asked := 0
		p := &probed{answer: func(Item) (Answer, error) {
			if asked++; asked == 1 {
				return "", &RetryAfter{After: 5 * time.Minute, Err: errors.New("it may still be at it")}
			}
			return "", nil
		}}
		p.next = func(Item) (bool, error) { return true, errors.New("the answer was lost") }
		if err := b.senders.Add("asked", p); err != nil {
			t.Fatal(err)
		}
		it := b.put(say("c", "asked", 0))
		b.round()
		b.round()
		b.pass(4 * time.Minute)
		b.round()
		if got := b.get(it.ID); got.State != Sending || asked != 1 {
			t.Errorf("after four minutes it was asked %d times: %s", asked, got.State)
		}
		b.pass(time.Minute + time.Second)
		b.round()
		if got := b.get(it.ID); got.State != Delivered || asked != 2 || len(p.seen) != 1 {
			t.Errorf("after five minutes it was asked %d times: %s, arrived %q", asked, got.State, p.seen)
		}
	})
}

func TestFailureIsToldAndTheNextGoesOut(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind dbtest.Kind) {
		var told []Item
		b := setup(t, kind, Options{Attempts: 4, OnTrouble: func(_ context.Context, _ *db.Tx, it Item) error {
			told = append(told, it)
			return nil
		}})
		n := b.network("net")
		n.next = func(it Item) (bool, error) {
			switch it.Text {
			case "down 0":
				return false, fault.New(fault.Unavailable, "502")
			case "gone 0":
				return false, fault.New(fault.NotFound, "no such chat")
			case "panics 0":
				panic("nil map")
			}
			return true, nil
		}
		down, gone, panics := b.put(say("down", "net", 0)), b.put(say("gone", "net", 0)), b.put(say("panics", "net", 0))
		for _, c := range []string{"down", "gone", "panics"} {
			b.put(say(c, "net", 1))
		}
		for range 6 {
			b.round()
			b.pass(time.Minute)
		}
		if it := b.get(down.ID); it.State != Failed || it.Attempts != 4 || it.ErrorClass != fault.Unavailable || it.Error != "502" {
			t.Errorf("down: %+v", it)
		}
		if it := b.get(gone.ID); it.State != Failed || it.Attempts != 1 || it.ErrorClass != fault.NotFound {
			t.Errorf("gone: %+v", it)
		}
		if it := b.get(panics.ID); it.State != Uncertain || it.Attempts != 1 {
			t.Errorf("panics: %+v", it)
		}
		slices.Sort(n.seen)
		if want := []string{"down 1", "gone 1", "panics 1"}; !slices.Equal(n.seen, want) {
			t.Errorf("arrived %v, want %v", n.seen, want)
		}
		for c, want := range map[string][]string{"down": {KindFailed, KindSent}, "gone": {KindFailed, KindSent}, "panics": {KindUncertain, KindSent}} {
			if k := b.kinds(c); !slices.Equal(k, want) {
				t.Errorf("%s: events %v, want %v", c, k, want)
			}
		}
		if len(told) != 3 {
			t.Errorf("told of %d items", len(told))
		}
	})
}

func TestAChannelThatOnlyAsksToWaitIsGivenUpByTime(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.KindSQLite, Options{Attempts: 2, GiveUp: time.Hour})
	n := b.network("net")
	n.next = func(Item) (bool, error) {
		return false, &RetryAfter{After: 10 * time.Minute, Err: errors.New("slow down")}
	}
	it := b.put(say("c", "net", 0))
	for range 6 {
		b.round()
		b.pass(11 * time.Minute)
	}
	if it := b.get(it.ID); it.State != Queued {
		t.Errorf("given up after %d tries: %s", it.Attempts, it.State)
	}
	b.round()
	if it := b.get(it.ID); it.State != Failed || it.Attempts != 7 {
		t.Errorf("after an hour: %s, %d tries", it.State, it.Attempts)
	}
}

func TestDeliveryByRowsIsOneCommitAndNeverInDoubt(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind dbtest.Kind) {
		b := setup(t, kind, Options{})
		local := &table{}
		if err := b.senders.AddTx("local", local); err != nil {
			t.Fatal(err)
		}
		if it := b.put(say("c", "local", 0)); it.State != Delivered || it.Ref != "row" || b.rows() != 1 {
			t.Errorf("delivered with its commit: %+v, %d rows", it, b.rows())
		}
		fails := true
		local.fail = func(it Item) error {
			switch {
			case it.Text == "c 3":
				return fault.New(fault.Invalid, "it has no window")
			case fails && it.Text == "c 1":
				panic("at the wrong time")
			}
			return nil
		}
		second, third := b.put(say("c", "local", 1)), b.put(say("c", "local", 2))
		if second.State != Queued || third.State != Queued || b.rows() != 1 {
			t.Errorf("%s, %s, %d rows: what failed is rolled back and nothing overtakes it", second.State, third.State, b.rows())
		}
		b.round()
		if it := b.get(third.ID); it.State != Queued || it.Attempts != 0 {
			t.Errorf("overtook: %+v", it)
		}
		fails = false
		b.pass(time.Minute)
		b.round()
		b.round()
		fourth := b.put(say("c", "local", 3))
		if fourth.State != Failed || fourth.ErrorClass != fault.Invalid {
			t.Errorf("a definite refusal: %+v", fourth)
		}
		if b.get(second.ID).State != Delivered || b.get(third.ID).State != Delivered || b.rows() != 3 {
			t.Errorf("%s, %s, %d rows", b.get(second.ID).State, b.get(third.ID).State, b.rows())
		}
		if k := b.kinds("c"); !slices.Equal(k, []string{KindSent, KindSent, KindSent, KindFailed}) {
			t.Errorf("events %v", k)
		}
		err := b.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			if _, err := b.AppendTx(ctx, tx, say("c", "local", 4)); err != nil {
				return err
			}
			return errors.New("the turn's commit fails")
		})
		if err == nil || b.rows() != 3 {
			t.Errorf("%v, %d rows: a reply without its commit", err, b.rows())
		}
	})
}

func TestAPersonDecidesAboutWhatDidNotSimplyArrive(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind dbtest.Kind) {
		b := setup(t, kind, Options{})
		n := b.network("net")
		n.next = func(it Item) (bool, error) {
			if it.PossibleRepeat {
				return true, nil
			}
			return true, errors.New("the connection was cut")
		}
		resent, arrived, skipped := b.put(say("a", "net", 0)), b.put(say("b", "net", 0)), b.put(say("c", "net", 0))
		b.round()
		decide := func(id string, d Decision, want State) {
			t.Helper()
			if it, err := b.Decide(t.Context(), id, d, "operator", "looked"); err != nil || it.State != want {
				t.Errorf("%s: %s, %v", d, it.State, err)
			}
		}
		decide(resent.ID, Resend, Queued)
		decide(arrived.ID, Arrived, Delivered)
		decide(skipped.ID, Skip, Skipped)
		b.round()
		if it := b.get(resent.ID); it.State != Delivered || !it.PossibleRepeat || n.ids[it.ID] != 2 {
			t.Errorf("resent: %+v, %d arrivals", it, n.ids[it.ID])
		}
		decide(skipped.ID, Resend, Queued)
		if it := b.get(skipped.ID); !it.PossibleRepeat {
			t.Error("that it may have arrived was forgotten")
		}
		for id, d := range map[string]Decision{resent.ID: Resend, arrived.ID: Arrived} {
			if _, err := b.Decide(t.Context(), id, d, "operator", ""); !fault.Is(err, fault.Conflict) {
				t.Errorf("%s of a delivered item: %v", d, err)
			}
		}
		if _, err := b.Decide(t.Context(), resent.ID, "again", "operator", ""); !fault.Is(err, fault.Invalid) {
			t.Errorf("an unknown decision: %v", err)
		}
		if k := b.kinds("a"); !slices.Equal(k, []string{KindUncertain, KindDecided, KindSent}) {
			t.Errorf("events %v", k)
		}
		list, err := b.List(t.Context(), Filter{State: Delivered, Channel: "net", Limit: 1})
		if err != nil || len(list) != 1 || list[0].ID != arrived.ID {
			t.Errorf("list: %+v, %v", list, err)
		}
	})
}

func TestStopRecordsWhatItInterrupts(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.KindSQLite, Options{Poll: 5 * time.Millisecond, Grace: time.Millisecond})
	began := make(chan struct{})
	if err := b.senders.Add("net", sendFunc(func(ctx context.Context, _ Item) (Receipt, error) {
		close(began)
		<-ctx.Done()
		return Receipt{}, ctx.Err()
	})); err != nil {
		t.Fatal(err)
	}
	it := b.put(say("c", "net", 0))
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-began
	b.Stop()
	if it := b.get(it.ID); it.State != Uncertain {
		t.Errorf("an interrupted send is %s", it.State)
	}
}
