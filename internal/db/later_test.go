package db_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
)

const insertMeta = "INSERT INTO meta (key, value) VALUES ($1, $2)"

func metaValue(t *testing.T, d *db.DB, key string) (value string) {
	t.Helper()
	if err := d.Read(t.Context(), func(ctx context.Context, q db.Q) error {
		return q.QueryRow(ctx, "SELECT COALESCE((SELECT value FROM meta WHERE key = $1), '')", key).Scan(&value)
	}); err != nil {
		t.Fatal(err)
	}
	return value
}

// TestLaterKeepsItsOrder mixes statements that are queued with others, in savepoints too.
func TestLaterKeepsItsOrder(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		inner := errors.New("not this")
		err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			if err := tx.Later(ctx, nil, insertMeta, "a", "1"); err != nil {
				return err
			}
			var got string
			if err := tx.QueryRow(ctx, "SELECT value FROM meta WHERE key = 'a'").Scan(&got); err != nil || got != "1" {
				t.Errorf("what was queued reads %q, %v", got, err)
			}
			if err := tx.Later(ctx, inner, "UPDATE meta SET value = $1 WHERE key = $2", "2", "a"); err != nil {
				return err
			}
			if err := tx.Savepoint(ctx, func(ctx context.Context, tx *db.Tx) error {
				return errors.Join(tx.Later(ctx, nil, insertMeta, "b", "gone"), inner)
			}); !errors.Is(err, inner) {
				t.Errorf("the savepoint said %v", err)
			}
			if err := tx.Savepoint(ctx, func(ctx context.Context, tx *db.Tx) error {
				return tx.Later(ctx, inner, "UPDATE meta SET value = 'x' WHERE key = 'none'")
			}); !errors.Is(err, inner) {
				t.Errorf("a savepoint that misses its row said %v", err)
			}
			return tx.Savepoint(ctx, func(ctx context.Context, tx *db.Tx) error { return tx.Later(ctx, nil, insertMeta, "c", "3") })
		})
		if err != nil || metaValue(t, d, "a") != "2" || metaValue(t, d, "b") != "" || metaValue(t, d, "c") != "3" {
			t.Errorf("a=%q b=%q c=%q: %v", metaValue(t, d, "a"), metaValue(t, d, "b"), metaValue(t, d, "c"), err)
		}
	})
}

// TestWhatIsQueuedAndFailsUndoesItsCallerOnly for callers alone and in one batch: the
// error is that of the statement, nothing of its caller is stored and all of the others.
func TestWhatIsQueuedAndFailsUndoesItsCallerOnly(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		missed := errors.New("missed its row")
		fail := map[string]func(ctx context.Context, tx *db.Tx) error{
			"miss": func(ctx context.Context, tx *db.Tx) error {
				return tx.Later(ctx, missed, "UPDATE meta SET value = 'x' WHERE key = 'none'")
			},
			"conflict": func(ctx context.Context, tx *db.Tx) error { return tx.Later(ctx, nil, insertMeta, "taken", "x") },
			"control":  func(ctx context.Context, tx *db.Tx) error { return tx.Later(ctx, nil, "COMMIT") },
		}
		is := func(what string, err error) bool {
			switch what {
			case "miss":
				return errors.Is(err, missed)
			case "conflict":
				return fault.Is(err, fault.Conflict)
			}
			return fault.Is(err, fault.Internal)
		}
		if err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error { return tx.Later(ctx, nil, insertMeta, "taken", "1") }); err != nil {
			t.Fatal(err)
		}
		try := func(n int, what string) error {
			return d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
				if err := tx.Later(ctx, nil, insertMeta, fmt.Sprint(what, n), "1"); err != nil {
					return err
				}
				if what == "fine" {
					return nil
				}
				return fail[what](ctx, tx)
			})
		}
		kinds := []string{"miss", "fine", "conflict", "control", "fine"}
		var wg sync.WaitGroup
		for n := range 40 {
			check := func() {
				what := kinds[n%len(kinds)]
				err := try(n, what)
				if what == "fine" && err != nil || what != "fine" && !is(what, err) {
					t.Errorf("%s: %v", what, err)
				}
			}
			if n < 5 { // alone
				check()
				continue
			}
			wg.Go(check)
		}
		wg.Wait()
		for n := range 40 {
			what := kinds[n%len(kinds)]
			if there := metaValue(t, d, fmt.Sprint(what, n)) != ""; there != (what == "fine") {
				t.Errorf("%s %d: stored %v", what, n, there)
			}
		}
	})
}

// TestAValueOfItsOwnIsLoadedOnce counts how often a register asks: what is rolled back
// leaves it as the last commit did.
func TestAValueOfItsOwnIsLoadedOnce(t *testing.T) {
	t.Parallel()
	for _, kind := range dbtest.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			o := dbtest.Options(t, kind)
			o.LockFile = filepath.Join(t.TempDir(), "lock")
			d := dbtest.Open(t, o)
			loads, stored := 0, 0
			add := func(end error) error {
				return d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
					r := tx.Own("mine", func(context.Context, *db.Tx) (any, error) { loads++; return stored, nil },
						func(context.Context, *db.Tx, any) error { return nil })
					v, err := r.Get(ctx)
					if err != nil {
						return err
					}
					r.Set(v.(int) + 1)
					if end == nil {
						tx.AfterCommit(func() { stored = v.(int) + 1 })
					}
					if _, err := tx.Next(ctx, "numbers"); err != nil {
						return err
					}
					return end
				})
			}
			for range 3 {
				if err := add(nil); err != nil {
					t.Fatal(err)
				}
			}
			if loads != 1 || stored != 3 {
				t.Errorf("loaded %d times, is %d", loads, stored)
			}
			if err := add(errors.New("no")); err == nil {
				t.Fatal("a failure was swallowed")
			}
			if err := add(nil); err != nil || loads != 1 || stored != 4 {
				t.Errorf("after a failure: loaded %d times, is %d, %v", loads, stored, err)
			}
			var n int64
			if err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) (err error) { n, err = tx.Next(ctx, "numbers"); return err }); err != nil || n != 5 {
				t.Errorf("the counter is at %d, %v", n, err)
			}
		})
	}
}

// TestTwoNodesTakeTurns lets two nodes of one store number things, each promising what
// the other makes wrong: no number is given twice and no caller hears of it.
func TestTwoNodesTakeTurns(t *testing.T) {
	t.Parallel()
	o := dbtest.Options(t, dbtest.KindPostgres)
	nodes := []*db.DB{dbtest.Open(t, o), dbtest.Open(t, o)}
	var mu sync.Mutex
	seen := map[int64]bool{}
	var wg sync.WaitGroup
	for i, d := range nodes {
		for caller := range 1 + 3*i { // one alone, the others in batches
			wg.Go(func() {
				for n := range 50 {
					var got int64
					err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) (err error) {
						if got, err = tx.Next(ctx, "log"); err != nil {
							return err
						}
						if n%10 == 9 { // something is asked
							if _, err := tx.Exec(ctx, "UPDATE meta SET value = value WHERE key = 'none'"); err != nil {
								return err
							}
						}
						return tx.Later(ctx, nil, insertMeta, fmt.Sprint(i, "/", caller, "/", n), fmt.Sprint(got))
					})
					mu.Lock()
					if err != nil || seen[got] {
						t.Errorf("node %d: %d again: %v", i, got, err)
					}
					seen[got] = true
					mu.Unlock()
				}
			})
		}
	}
	wg.Wait()
	for n := range int64(250) {
		if !seen[n+1] {
			t.Errorf("%d is left out", n+1)
		}
	}
	if got := metaValue(t, nodes[0], "1/2/49"); got == "" {
		t.Error("a row is missing")
	}
}

// TestConnectionCutInTheOneRoundTripOfABatch cuts before the server has anything and
// after it has committed. With the seat that can be told apart; without it, what may
// have been stored is unknown.
func TestConnectionCutInTheOneRoundTripOfABatch(t *testing.T) {
	t.Parallel()
	for _, seated := range []bool{true, false} {
		o := dbtest.Options(t, dbtest.KindPostgres)
		direct := dbtest.Open(t, o)
		if seated {
			seat, err := db.TakeSeat(t.Context(), db.SeatOptions{DSN: o.DSN})
			if err != nil {
				t.Fatal(err)
			}
			o.Seat = seat
			t.Cleanup(func() { _ = seat.Release(context.Background()) })
		}
		var p *proxy
		p, o.DSN = newProxy(t, o.DSN)
		d := dbtest.Open(t, o)
		add := func(key string) error {
			return d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
				if _, err := tx.Next(ctx, "log"); err != nil {
					return err
				}
				return tx.Later(ctx, nil, insertMeta, key, "1")
			})
		}
		for i, how := range []cut{beforeServer, afterServer, beforeServer, afterServer} {
			for n := range 3 { // so that a promise is made, and its statements are known
				if err := add(fmt.Sprint("before", i, n)); err != nil {
					t.Fatal(err)
				}
			}
			p.batch.Store(int32(how))
			key := fmt.Sprint("cut", i)
			err := add(key)
			<-p.did
			there := metaValue(t, direct, key) != ""
			want := map[bool]map[cut]bool{true: {beforeServer: fault.Is(err, fault.Unavailable), afterServer: err == nil},
				false: {beforeServer: fault.Is(err, fault.Unknown), afterServer: err == nil}}[seated][how] // another may have written since
			if there != (how == afterServer) || !want {
				t.Errorf("seated %v, cut %d: stored %v, told %v", seated, how, there, err)
			}
		}
	}
}
