package budget

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type bench struct {
	*Budget
	t   testing.TB
	now *atomic.Int64 // Unix µs
}

func setup(t testing.TB, kind dbtest.Kind, c Config) *bench {
	t.Helper()
	b := &bench{t: t, now: new(atomic.Int64)}
	b.now.Store(time.Date(2026, 3, 31, 22, 0, 0, 0, time.UTC).UnixMicro())
	o := dbtest.Options(t, kind)
	o.Now = func() time.Time { return time.UnixMicro(b.now.Load()) }
	if c.Zone == nil {
		c.Zone = time.UTC
	}
	b.Budget = New(dbtest.Open(t, o), c)
	return b
}

func each(t *testing.T, fn func(t *testing.T, kind dbtest.Kind)) {
	t.Helper()
	for _, kind := range dbtest.Kinds() {
		t.Run(string(kind), func(t *testing.T) { fn(t, kind) })
	}
}

func (b *bench) tx(fn func(ctx context.Context, tx *db.Tx) error) error {
	return b.db.InTx(b.t.Context(), fn)
}

// reserve goes on after a refusal, as act does to record it.
func (b *bench) reserve(r Reserve) (id string, refused error) {
	b.t.Helper()
	err := b.tx(func(ctx context.Context, tx *db.Tx) (err error) {
		id, err = b.ReserveTx(ctx, tx, r)
		if refused = err; fault.Is(err, fault.Denied) {
			return nil
		}
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return id, refused
}

func (b *bench) do(what func(ctx context.Context, tx *db.Tx, id string) error, id string) error {
	return b.tx(func(ctx context.Context, tx *db.Tx) error { return what(ctx, tx, id) })
}

func (b *bench) commit(id string, actual int64, known bool) error {
	return b.tx(func(ctx context.Context, tx *db.Tx) error { return b.CommitTx(ctx, tx, id, actual, known) })
}

func (b *bench) level(agent, root, node, window string) (out Level) {
	b.t.Helper()
	err := b.db.Read(b.t.Context(), func(ctx context.Context, q db.Q) error {
		h, err := b.Left(ctx, q, agent, root)
		for _, l := range h.Levels {
			if l.Node == node && l.Window == window {
				out = l
			}
		}
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

func TestAReservationIsSpentAndTheNextOneRefusedByName(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind dbtest.Kind) {
		b := setup(t, kind, Config{Instance: Limits{Day: At(1_000_000)}, Agents: map[string]Limits{"main": {Month: At(500_000)}}, Run: At(400_000)})
		id, err := b.reserve(Reserve{Run: "r1", Agent: "main", Amount: 300_000, Known: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.reserve(Reserve{Run: "r1", Agent: "main", Amount: 100_001, Known: true}); !fault.Is(err, fault.Denied) ||
			!strings.Contains(err.Error(), "run:r1 may spend $0.40 a run; $0.00 is spent, $0.30 reserved, $0.00 possibly spent, and the call may cost $0.100001") {
			t.Errorf("refused with %v", err)
		}
		if err := b.commit(id, 250_000, true); err != nil {
			t.Fatal(err)
		}
		if err := b.commit(id, 1, true); !fault.Is(err, fault.Conflict) {
			t.Errorf("committed twice: %v", err)
		}
		if _, err := b.reserve(Reserve{Run: "r2", Agent: "main", Amount: 250_001, Known: true}); !fault.Is(err, fault.Denied) ||
			!strings.Contains(err.Error(), "agent:main may spend $0.50 a month; $0.25 is spent") {
			t.Errorf("refused with %v", err)
		}
		for _, w := range []struct{ node, window string }{{"instance", "day"}, {"instance", "month"}, {"agent:main", "day"}, {"agent:main", "month"}, {"run:r1", "run"}} {
			if l := b.level("main", "r1", w.node, w.window); l.Spent != 250_000 || l.Reserved != 0 || l.Possible != 0 {
				t.Errorf("%s %s: %+v", w.node, w.window, l)
			}
		}
	})
}

func TestUnknownPricesAreCountedAndRefusedOnceALimitIsUsedUp(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind dbtest.Kind) {
		b := setup(t, kind, Config{Instance: Limits{Day: At(100)}})
		unknown, err := b.reserve(Reserve{Run: "r1", Agent: "main", Amount: 55, Known: false})
		if err != nil {
			t.Fatal(err)
		}
		if l := b.level("main", "r1", "instance", "day"); l.Reserved != 0 {
			t.Errorf("a guess was reserved: %+v", l)
		}
		if err := b.commit(unknown, 0, false); err != nil {
			t.Fatal(err)
		}
		if l := b.level("main", "r1", "instance", "day"); l.Unknown != 1 || l.Spent != 0 {
			t.Errorf("counted as %+v", l)
		}
		rest, err := b.reserve(Reserve{Run: "r1", Agent: "main", Amount: 100, Known: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.reserve(Reserve{Run: "r2", Agent: "other"}); !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), "an unknown amount") {
			t.Errorf("an unknown price under a limit that is used up: %v", err)
		}
		if _, err := b.reserve(Reserve{Run: "r2", Agent: "other", Known: true}); err != nil {
			t.Errorf("what is known to be free is refused: %v", err)
		}
		if err := b.do(b.ReleaseTx, rest); err != nil {
			t.Fatal(err)
		}
		if _, err := b.reserve(Reserve{Run: "r2", Agent: "other"}); err != nil {
			t.Errorf("after the release: %v", err)
		}
	})
}

func TestALimitOfZeroLetsNothingBeSpentAndNoLimitEverything(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.KindSQLite, Config{Agents: map[string]Limits{"poor": {Day: At(0)}}})
	if _, err := b.reserve(Reserve{Run: "r", Agent: "poor", Amount: 1, Known: true}); !fault.Is(err, fault.Denied) {
		t.Errorf("a cent of nothing: %v", err)
	}
	if _, err := b.reserve(Reserve{Run: "r", Agent: "rich", Amount: 1 << 50, Known: true}); err != nil {
		t.Errorf("without a limit: %v", err)
	}
	err := b.tx(func(ctx context.Context, tx *db.Tx) error {
		return b.SpendTx(ctx, tx, Reserve{Run: "r", Agent: "poor"}, 7, true)
	})
	if l := b.level("poor", "r", "agent:poor", "day"); err != nil || l.Spent != 7 || l.Left() != 0 {
		t.Errorf("what is spent is spent: %+v, %v", l, err)
	}
	for what, err := range map[string]error{
		"negative": b.tx(func(ctx context.Context, tx *db.Tx) error {
			_, err := b.ReserveTx(ctx, tx, Reserve{Run: "r", Amount: -1, Known: true})
			return err
		}),
		"no run": b.tx(func(ctx context.Context, tx *db.Tx) error { _, err := b.ReserveTx(ctx, tx, Reserve{}); return err }),
	} {
		if !fault.Is(err, fault.Internal) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestARepeatBooksTheFirstAsPossibleCost(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind dbtest.Kind) {
		b := setup(t, kind, Config{Run: At(100)})
		id, err := b.reserve(Reserve{Run: "r", Agent: "main", Amount: 40, Known: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := b.do(b.RepeatTx, id); err != nil {
			t.Fatal(err)
		}
		if l := b.level("main", "r", "run:r", "run"); l.Reserved != 40 || l.Possible != 40 {
			t.Errorf("after the first repeat: %+v", l)
		}
		// A second repeat does not fit any more: nothing may change, and the caller can
		// end the call in the same transaction.
		err = b.tx(func(ctx context.Context, tx *db.Tx) error {
			if err := b.RepeatTx(ctx, tx, id); !fault.Is(err, fault.Denied) {
				t.Errorf("a second repeat: %v", err)
			}
			return b.PossibleTx(ctx, tx, id)
		})
		if err != nil {
			t.Fatal(err)
		}
		if l := b.level("main", "r", "run:r", "run"); l.Reserved != 0 || l.Possible != 80 || l.Spent != 0 {
			t.Errorf("in the end: %+v", l)
		}
		if err := b.do(b.RepeatTx, id); !fault.Is(err, fault.Conflict) {
			t.Errorf("a repeat of what has ended: %v", err)
		}
		days, err := b.Report(t.Context(), 1)
		if err != nil || len(days) != 1 || len(days[0].Lines) != 1 {
			t.Fatalf("%+v, %v", days, err)
		}
		if l := days[0].Lines[0]; l.Possible != 80 || l.Calls != 2 || l.Spent != 0 || l.Unknown != 0 {
			t.Errorf("reported %+v", l)
		}
	})
}

func TestWhatAnEndedRunLeftReservedIsPossibleCost(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.KindSQLite, Config{})
	for _, r := range []Reserve{{Run: "r", Amount: 40, Known: true}, {Run: "r"}, {Run: "other", Amount: 5, Known: true}} {
		if _, err := b.reserve(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.do(b.SettleTx, "r"); err != nil {
		t.Fatal(err)
	}
	if l := b.level("", "", "instance", "day"); l.Possible != 40 || l.Reserved != 5 || l.Unknown != 1 {
		t.Errorf("%+v", l)
	}
}

func TestADayIsTheOperatorsOwnAndACallStaysInIt(t *testing.T) {
	t.Parallel()
	zone := time.FixedZone("here", 2*60*60)
	b := setup(t, dbtest.KindSQLite, Config{Instance: Limits{Day: At(100), Month: At(150)}, Zone: zone})
	b.now.Store(time.Date(2026, 3, 31, 23, 59, 0, 0, zone).UnixMicro())
	late, err := b.reserve(Reserve{Run: "r", Agent: "main", Provider: "p", Model: "m", Amount: 100, Known: true})
	if err != nil {
		t.Fatal(err)
	}
	b.now.Add((2 * time.Minute).Microseconds()) // the first of April there, still March in UTC
	early, err := b.reserve(Reserve{Run: "r", Agent: "main", Provider: "p", Model: "m", Amount: 100, Known: true})
	if err != nil {
		t.Fatalf("a new day and month: %v", err)
	}
	if err := b.commit(late, 90, true); err != nil {
		t.Fatal(err)
	}
	if err := b.commit(early, 10, true); err != nil {
		t.Fatal(err)
	}
	err = b.tx(func(ctx context.Context, tx *db.Tx) error {
		return b.TokensTx(ctx, tx, early, Tokens{Input: 1, Output: 2, CacheRead: 3, CacheWrite: 4})
	})
	if err != nil {
		t.Fatal(err)
	}
	days, err := b.Report(t.Context(), 7)
	if err != nil || len(days) != 2 {
		t.Fatalf("%+v, %v", days, err)
	}
	if d := days[0]; d.Date != "2026-04-01" || d.Lines[0].Spent != 10 || d.Lines[0].Tokens != (Tokens{1, 2, 3, 4}) || d.Lines[0].Model != "m" {
		t.Errorf("newest %+v", d)
	}
	if d := days[1]; d.Date != "2026-03-31" || d.Lines[0].Spent != 90 {
		t.Errorf("the day before %+v", d)
	}
	if l := b.level("main", "", "instance", "month"); l.Spent != 10 || l.Left() != 140 {
		t.Errorf("April has %+v", l)
	}
	for _, n := range []int{0, 367} {
		if _, err := b.Report(t.Context(), n); !fault.Is(err, fault.Invalid) {
			t.Errorf("%d days: %v", n, err)
		}
	}
}

func TestLeftIsThatOfTheTightestWindow(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.KindSQLite, Config{Instance: Limits{Month: At(1000)}, Agents: map[string]Limits{"main": {Day: At(100)}}, Run: At(60)})
	if _, err := b.reserve(Reserve{Run: "child", Root: "r", Agent: "main", Amount: 50, Known: true}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		agent, root string
		left        int64
	}{{"main", "r", 10}, {"main", "r2", 50}, {"main", "", 50}, {"other", "", 950}} {
		err := b.db.Read(t.Context(), func(ctx context.Context, q db.Q) error {
			h, err := b.Left(ctx, q, c.agent, c.root)
			if !h.Limited || h.Left != c.left {
				t.Errorf("%s in %q has %d left, want %d", c.agent, c.root, h.Left, c.left)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
	if _, err := b.reserve(Reserve{Run: "sibling", Root: "r", Agent: "main", Amount: 11, Known: true}); !fault.Is(err, fault.Denied) {
		t.Errorf("children share the allowance of their parent: %v", err)
	}
}

func TestUSDIsReadable(t *testing.T) {
	t.Parallel()
	for micro, want := range map[int64]string{0: "$0.00", 1: "$0.000001", 1_500_000: "$1.50", -250_000: "-$0.25", 12_345_678: "$12.345678"} {
		if got := USD(micro); got != want {
			t.Errorf("%d is %s, want %s", micro, got, want)
		}
	}
}
