package budget

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
)

// errRollback ends a transaction of a test that must leave nothing.
var errRollback = errors.New("the caller fails after it reserved")

// 64 callers reserve, commit, release, repeat and roll back at once. No sum of
// what is held may pass a limit at any commit, and the totals must be the sums of
// the reservations in the end.
func TestCallersAtOnceNeverPassALimit(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind dbtest.Kind) {
		const instanceDay, agentDay, run = 5_000, 2_000, 700
		b := setup(t, kind, Config{
			Instance: Limits{Day: At(instanceDay)}, Run: At(run),
			Agents: map[string]Limits{"a0": {Day: At(agentDay)}, "a1": {Day: At(agentDay)}, "a2": {Day: At(agentDay)}},
		})
		var mu sync.Mutex
		refused, allowed := 0, 0
		var callers sync.WaitGroup
		for i := range 64 {
			callers.Go(func() {
				random := rand.New(rand.NewPCG(1, uint64(i)))
				for range 6 {
					ok, err := b.oneCall(random, i)
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					if ok {
						allowed++
					} else {
						refused++
					}
					mu.Unlock()
				}
			})
		}
		callers.Wait()
		if refused == 0 || allowed == 0 {
			t.Errorf("%d allowed, %d refused: nothing was tested", allowed, refused)
		}
		b.addsUp()
	})
}

// oneCall takes one call through a random life. Within the transaction that
// reserves it looks whether a limit is passed.
func (b *bench) oneCall(random *rand.Rand, i int) (allowed bool, err error) {
	r := Reserve{Run: fmt.Sprint("r", i%16), Agent: fmt.Sprint("a", i%3), Amount: int64(random.IntN(200)), Known: true}
	rollBack := random.IntN(5) == 0
	var id string
	err = b.tx(func(ctx context.Context, tx *db.Tx) error {
		allowed = false
		var err error
		id, err = b.ReserveTx(ctx, tx, r)
		if fault.Is(err, fault.Denied) {
			return b.within(ctx, tx, r)
		}
		if err != nil {
			return err
		}
		allowed = true
		if err := b.within(ctx, tx, r); err != nil || !rollBack {
			return err
		}
		return errRollback
	})
	if errors.Is(err, errRollback) {
		return true, nil
	}
	if err != nil || !allowed {
		return false, err
	}
	return true, b.tx(func(ctx context.Context, tx *db.Tx) error {
		if r.Amount > 0 {
			if err := b.RaiseTx(ctx, tx, id, r.Amount); err != nil && !fault.Is(err, fault.Denied) {
				return err
			}
			if err := b.within(ctx, tx, r); err != nil {
				return err
			}
		}
		switch end := id[len(id)-1] % 4; end {
		case 0:
			return b.ReleaseTx(ctx, tx, id)
		case 1:
			if err := b.RepeatTx(ctx, tx, id); err != nil && !fault.Is(err, fault.Denied) {
				return err
			}
			if err := b.within(ctx, tx, r); err != nil {
				return err
			}
			return b.PossibleTx(ctx, tx, id)
		default:
			return b.CommitTx(ctx, tx, id, r.Amount/2, true)
		}
	})
}

// within fails if a window above the call holds more than its limit. Costs never
// pass what was reserved here, so nothing excuses it.
func (b *bench) within(ctx context.Context, tx *db.Tx, r Reserve) error {
	h, err := b.Left(ctx, tx, r.Agent, r.Run)
	for _, l := range h.Levels {
		if l.Limit.Set && l.Spent+l.Reserved+l.Possible > l.Limit.MicroUSD {
			return fmt.Errorf("%s %s holds %+v", l.Node, l.Window, l)
		}
	}
	return err
}

// addsUp compares the totals with the reservations they sum up.
func (b *bench) addsUp() {
	b.t.Helper()
	type row struct{ node, period string }
	want, have := map[row]sums{}, map[row]sums{}
	err := b.db.Read(b.t.Context(), func(ctx context.Context, q db.Q) error {
		_, err := db.All(ctx, q, func(r *db.Rows) (struct{}, error) {
			var agent, root, day, state string
			var amount, actual, possible, unknown int64
			if err := r.Scan(&agent, &root, &day, &state, &amount, &actual, &possible, &unknown); err != nil {
				return struct{}{}, err
			}
			if state != "open" {
				amount = 0
			}
			for _, w := range b.windows(agent, root, day) {
				s := want[row{w.node, w.period}]
				want[row{w.node, w.period}] = sums{s.spent + actual, s.reserved + amount, s.possible + possible, s.unknown + unknown}
			}
			return struct{}{}, nil
		}, "SELECT agent, root, day, state, amount, actual, possible, unknown FROM budget_reservations")
		if err != nil {
			return err
		}
		_, err = db.All(ctx, q, func(r *db.Rows) (struct{}, error) {
			var k row
			var s sums
			err := r.Scan(&k.node, &k.period, &s.spent, &s.reserved, &s.possible, &s.unknown)
			if s != (sums{}) {
				have[k] = s
			}
			return struct{}{}, err
		}, "SELECT node, period, spent, reserved, possible, unknown FROM budget_totals")
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	for k, w := range want {
		if have[k] != w {
			b.t.Errorf("%s %s: totals %+v, reservations %+v", k.node, k.period, have[k], w)
		}
		delete(have, k)
	}
	for k, s := range have {
		b.t.Errorf("%s %s: totals %+v of nothing", k.node, k.period, s)
	}
}

func TestTotalsAreAlwaysTheSumsOfTheirReservations(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.KindSQLite, Config{Instance: Limits{Day: At(3_000), Month: At(20_000)}, Run: At(500)})
	rapid.Check(t, func(t *rapid.T) {
		var open []string
		pick := func(t *rapid.T) string {
			if len(open) == 0 {
				t.Skip("none open")
			}
			return rapid.SampledFrom(open).Draw(t, "reservation")
		}
		must := func(t *rapid.T, err error, classes ...fault.Class) {
			for _, c := range append(classes, fault.Conflict, "") {
				if fault.ClassOf(err) == c {
					return
				}
			}
			t.Fatal(err)
		}
		t.Repeat(map[string]func(*rapid.T){
			"reserve": func(t *rapid.T) {
				r := Reserve{
					Run: rapid.SampledFrom([]string{"r1", "r2"}).Draw(t, "run"), Root: rapid.SampledFrom([]string{"", "r1"}).Draw(t, "root"),
					Agent: rapid.SampledFrom([]string{"", "a"}).Draw(t, "agent"), Amount: rapid.Int64Range(0, 300).Draw(t, "amount"),
					Known: rapid.Bool().Draw(t, "known"), Apart: rapid.Bool().Draw(t, "apart"),
				}
				if id, err := b.reserve(r); err == nil {
					open = append(open, id)
				}
			},
			"commit": func(t *rapid.T) {
				must(t, b.commit(pick(t), rapid.Int64Range(0, 400).Draw(t, "actual"), rapid.Bool().Draw(t, "known")))
			},
			"raise": func(t *rapid.T) {
				more := rapid.Int64Range(1, 300).Draw(t, "more")
				must(t, b.do(func(ctx context.Context, tx *db.Tx, id string) error { return b.RaiseTx(ctx, tx, id, more) }, pick(t)), fault.Denied)
			},
			"at least": func(t *rapid.T) {
				actual, maybe := rapid.Int64Range(0, 200).Draw(t, "actual"), rapid.Int64Range(0, 200).Draw(t, "maybe")
				must(t, b.do(func(ctx context.Context, tx *db.Tx, id string) error { return b.AtLeastTx(ctx, tx, id, actual, maybe) }, pick(t)))
			},
			"release":  func(t *rapid.T) { must(t, b.do(b.ReleaseTx, pick(t))) },
			"possible": func(t *rapid.T) { must(t, b.do(b.PossibleTx, pick(t))) },
			"repeat":   func(t *rapid.T) { must(t, b.do(b.RepeatTx, pick(t)), fault.Denied) },
			"settle":   func(t *rapid.T) { must(t, b.do(b.SettleTx, rapid.SampledFrom([]string{"r1", "r2"}).Draw(t, "run"))) },
			"time":     func(*rapid.T) { b.now.Add(7 * 60 * 60 * 1e6) },
			"": func(t *rapid.T) {
				b.addsUp()
				if b.t.Failed() {
					t.FailNow()
				}
			},
		})
	})
}
