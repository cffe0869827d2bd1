package db_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
)

// behaviour is what the function of a caller does besides writing its row.
type behaviour int

const (
	succeeds behaviour = iota
	succeedsInSavepoint
	catchesInSavepoint // of another row that fails, then succeeds
	catchesPanicInSavepoint
	fails
	failsInSavepoint
	panics
	breaksAConstraint
	swallowsTheError
	leavesRowsOpen
	isTooLarge // SQLITE_FULL, which takes the whole transaction
	isTooLargeInSavepoint
	nestsByItsContext
	nestsByACapturedContext
	readsInside
	isCancelled
	behaviours
)

var succeeding = map[behaviour]bool{succeeds: true, succeedsInSavepoint: true, catchesInSavepoint: true, catchesPanicInSavepoint: true}

// drawBehaviour prefers success, and has few of those that cost all others of the
// batch a run of their own.
func drawBehaviour() *rapid.Generator[behaviour] {
	return rapid.Custom(func(rt *rapid.T) behaviour {
		switch n := rapid.IntRange(0, 99).Draw(rt, "n"); {
		case n < 40:
			return succeeds
		case n == 99:
			return isTooLarge
		case n == 98:
			return isTooLargeInSavepoint
		}
		for {
			b := behaviour(rapid.IntRange(0, int(behaviours)-1).Draw(rt, "behaviour"))
			if b != isTooLarge && b != isTooLargeInSavepoint {
				return b
			}
		}
	})
}

var errBoom = errors.New("boom")

// world is one round: its rows, counters and chain carry its name.
type world struct {
	d      *db.DB
	name   string
	broken atomic.Int64 // functions that should not have gone on
}

func (w *world) counter() string { return "count-" + w.name }
func (w *world) chain() string   { return "chain-" + w.name }

func link(before, key string) string {
	sum := sha256.Sum256([]byte(before + "|" + key))
	return hex.EncodeToString(sum[:8])
}

// write adds a row with the next number of the counter and the next link of a
// chain whose head is a register.
func (w *world) write(ctx context.Context, tx *db.Tx, key string) error {
	n, err := tx.Next(ctx, w.counter())
	if err != nil {
		return err
	}
	head := tx.Register(w.chain(), func(ctx context.Context, tx *db.Tx) (any, error) {
		all, err := db.All(ctx, tx, db.Column[string], "SELECT value FROM meta WHERE key = $1", w.chain())
		return strings.Join(all, ""), err
	}, func(ctx context.Context, tx *db.Tx, v any) error {
		_, err := tx.Exec(ctx, "INSERT INTO meta (key, value) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value", w.chain(), v)
		return err
	})
	before, err := head.Get(ctx)
	if err != nil {
		return err
	}
	tx.Notify(w.name)
	after := link(before.(string), key)
	head.Set(after)
	_, err = tx.Exec(ctx, "INSERT INTO leases (name, owner, fence, expires) VALUES ($1, $2, $3, 0)", w.name+"/"+key, after, n)
	return err
}

func (w *world) act(outer, ctx context.Context, tx *db.Tx, key string, b behaviour) error {
	if b != succeedsInSavepoint && b != failsInSavepoint {
		if err := w.write(ctx, tx, key); err != nil {
			return err
		}
	}
	switch b {
	case succeedsInSavepoint:
		return tx.Savepoint(ctx, func(ctx context.Context, tx *db.Tx) error { return w.write(ctx, tx, key) })
	case catchesInSavepoint:
		err := tx.Savepoint(ctx, func(ctx context.Context, tx *db.Tx) error {
			if err := w.write(ctx, tx, key+"-undone"); err != nil {
				return err
			}
			return w.write(ctx, tx, key+"-undone") // the same key again
		})
		if !fault.Is(err, fault.Conflict) {
			w.broken.Add(1)
		}
		return nil
	case catchesPanicInSavepoint:
		func() {
			defer func() { _ = recover() }()
			_ = tx.Savepoint(ctx, func(ctx context.Context, tx *db.Tx) error {
				_ = w.write(ctx, tx, key+"-undone")
				panic(errBoom)
			})
		}()
		return nil
	case fails:
		return errBoom
	case failsInSavepoint:
		return tx.Savepoint(ctx, func(ctx context.Context, tx *db.Tx) error {
			return errors.Join(w.write(ctx, tx, key), errBoom)
		})
	case panics:
		panic(errBoom)
	case breaksAConstraint:
		return w.write(ctx, tx, key)
	case swallowsTheError:
		_ = w.write(ctx, tx, key)
		if _, err := tx.Exec(ctx, "DELETE FROM leases WHERE name = $1", "no such"); err == nil {
			w.broken.Add(1)
		}
		return nil
	case leavesRowsOpen:
		_, err := tx.Query(ctx, "SELECT name FROM heads")
		return err
	case isTooLarge, isTooLargeInSavepoint:
		large := func(ctx context.Context, tx *db.Tx) error {
			if w.d.Postgres() {
				return errBoom // its disk is not ours to fill
			}
			_, err := tx.Exec(ctx, "INSERT INTO meta (key, value) VALUES ($1, $2)", w.name+key, strings.Repeat("x", 4<<20))
			return err
		}
		if b == isTooLarge {
			return large(ctx, tx)
		}
		_ = tx.Savepoint(ctx, large)
		return errBoom
	case nestsByItsContext:
		return w.d.InTx(ctx, func(context.Context, *db.Tx) error { w.broken.Add(1); return nil })
	case nestsByACapturedContext:
		return w.d.InTx(outer, func(context.Context, *db.Tx) error { w.broken.Add(1); return nil })
	case readsInside:
		return w.d.Read(outer, func(context.Context, db.Q) error { w.broken.Add(1); return nil })
	}
	return nil
}

// call runs one caller and returns what it was told.
func (w *world) call(ctx context.Context, key string, b behaviour, delay time.Duration) (err error) {
	defer func() {
		if p := recover(); p != nil {
			caught, ok := p.(*db.Panic)
			if !ok || b != panics || !errors.Is(caught, errBoom) {
				panic(p)
			}
			err = caught
		}
	}()
	if b == isCancelled {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		timer := time.AfterFunc(delay, cancel)
		defer cancel()
		defer timer.Stop()
	}
	return w.d.InTx(ctx, func(inner context.Context, tx *db.Tx) error { return w.act(ctx, inner, tx, key, b) })
}

// follow reads the counter's rows while they are written: whatever it sees must
// continue what it saw before without a gap.
func (w *world) follow(ctx context.Context, done <-chan struct{}) error {
	woken, stop := w.d.Watch(w.name)
	defer stop()
	last := int64(0)
	for {
		var seen []int64
		err := w.d.Read(ctx, func(ctx context.Context, q db.Q) (err error) {
			seen, err = db.All(ctx, q, db.Column[int64], "SELECT fence FROM leases WHERE name LIKE $1 AND fence > $2 ORDER BY fence", w.name+"/%", last)
			return err
		})
		if err != nil {
			return err
		}
		for _, n := range seen {
			if n != last+1 {
				return fmt.Errorf("saw number %d after %d", n, last)
			}
			last = n
		}
		select {
		case <-done:
			return nil
		case <-woken:
		}
	}
}

func TestPropertyAnswerTellsWhatIsStored(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		rounds := 0
		rapid.Check(t, func(rt *rapid.T) {
			rounds++
			w := &world{d: d, name: fmt.Sprintf("w%d", rounds)}
			plan := rapid.SliceOfN(rapid.SliceOfN(drawBehaviour(), 1, 3), 64, 64).Draw(rt, "plan")
			delay := time.Duration(rapid.IntRange(0, 3000).Draw(rt, "delay")) * time.Microsecond
			if !d.Postgres() {
				if err := d.SetMaxPages(t.Context(), 600); err != nil {
					rt.Fatal(err)
				}
			}
			stored := w.run(rt, plan, delay)
			w.verify(rt, stored)
		})
		if s := d.Stats(); s.Callers <= s.Batches {
			t.Errorf("%d callers in %d batches: nobody shared a commit", s.Callers, s.Batches)
		}
	})
}

// run lets every caller do its list and returns the keys acknowledged.
func (w *world) run(rt *rapid.T, plan [][]behaviour, delay time.Duration) map[string]bool {
	ctx := context.Background()
	done, followed := make(chan struct{}), make(chan error, 1)
	go func() { followed <- w.follow(ctx, done) }()
	var mu sync.Mutex
	stored := map[string]bool{}
	var callers sync.WaitGroup
	for i, list := range plan {
		callers.Go(func() {
			for n, b := range list {
				key := fmt.Sprintf("%d-%d", i, n)
				err := w.call(ctx, key, b, delay)
				mu.Lock()
				if err == nil {
					stored[key] = true
				}
				if b != isCancelled && succeeding[b] != (err == nil) {
					rt.Errorf("caller %s (behaviour %d): %v", key, b, err)
				}
				mu.Unlock()
			}
		})
	}
	callers.Wait()
	close(done)
	if err := <-followed; err != nil {
		rt.Errorf("reader: %v", err)
	}
	return stored
}

// verify compares the store with what the callers were told.
func (w *world) verify(rt *rapid.T, stored map[string]bool) {
	type row struct {
		name, owner string
		fence       int64
	}
	var rows []row
	var head int64
	var end string
	err := w.d.Read(context.Background(), func(ctx context.Context, q db.Q) (err error) {
		rows, err = db.All(ctx, q, func(r *db.Rows) (v row, err error) {
			err = r.Scan(&v.name, &v.owner, &v.fence)
			return v, err
		}, "SELECT name, owner, fence FROM leases WHERE name LIKE $1 ORDER BY fence", w.name+"/%")
		if err != nil || len(rows) == 0 {
			return err
		}
		if err := q.QueryRow(ctx, "SELECT value FROM heads WHERE name = $1", w.counter()).Scan(&head); err != nil {
			return err
		}
		return q.QueryRow(ctx, "SELECT value FROM meta WHERE key = $1", w.chain()).Scan(&end)
	})
	if err != nil {
		rt.Fatal(err)
	}
	chain := ""
	for i, r := range rows {
		key := strings.TrimPrefix(r.name, w.name+"/")
		if !stored[key] {
			rt.Errorf("row %s is there although its caller got an error", key)
		}
		delete(stored, key)
		if r.fence != int64(i)+1 {
			rt.Errorf("row %s has number %d, want %d", key, r.fence, i+1)
		}
		if chain = link(chain, key); r.owner != chain {
			rt.Errorf("row %s does not continue the chain", key)
		}
	}
	if len(stored) > 0 {
		rt.Errorf("acknowledged but not there: %v", stored)
	}
	if head != int64(len(rows)) || end != chain {
		rt.Errorf("heads: counter %d of %d rows, chain %q, want %q", head, len(rows), end, chain)
	}
	if n := w.broken.Load(); n > 0 {
		rt.Errorf("%d functions went on where they must not", n)
	}
}
