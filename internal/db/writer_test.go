package db_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
)

func textLog(w *bytes.Buffer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

func longAgo() time.Time { return time.Unix(1, 0) }

// It is not parallel: it looks for goroutines that outlive their store.
func TestCloseAnswersEveryCallerAndLeavesNothingRunning(t *testing.T) {
	for _, kind := range dbtest.Kinds() {
		o := dbtest.Options(t, kind)
		before := goleak.IgnoreCurrent()
		var stored, refused atomic.Int64
		for round := range 8 {
			d, err := db.Open(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			have := len(keys(t, d))
			if int64(have) != stored.Load() {
				t.Fatalf("%s round %d: %d rows, %d acknowledged", kind, round, have, stored.Load())
			}
			var callers sync.WaitGroup
			first := make(chan struct{})
			var once sync.Once
			for i := range 32 {
				callers.Go(func() {
					for n := 0; ; n++ {
						switch err := put(t.Context(), d, fmt.Sprintf("%d-%d-%d", round, i, n)); {
						case err == nil:
							stored.Add(1)
							once.Do(func() { close(first) })
						case fault.Is(err, fault.Unavailable):
							refused.Add(1)
							return
						default:
							t.Errorf("told %v", err)
							return
						}
						_ = d.Read(t.Context(), func(context.Context, db.Q) error { return nil }) // may be refused
					}
				})
			}
			<-first
			for range 2 { // twice, and at the same time
				callers.Go(func() { _ = d.Close() })
			}
			callers.Wait()
			_ = d.Close()
		}
		if refused.Load() != 8*32 {
			t.Errorf("%s: %d callers were refused, want all", kind, refused.Load())
		}
		goleak.VerifyNone(t, before)
	}
}

func TestFunctionThatEndsItsGoroutineEndsItsCallersOnly(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		var wentOn atomic.Bool
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			errs := together(t, d, 4, func(ctx context.Context, tx *db.Tx, i int) error {
				if i == 2 {
					runtime.Goexit()
				}
				_, err := tx.Exec(ctx, "INSERT INTO meta (key, value) VALUES ($1, $2)", fmt.Sprint(i), "v")
				return err
			})
			if err := errors.Join(errs...); err != nil {
				t.Errorf("others were told %v", err)
			}
		}()
		<-ended
		ended = make(chan struct{})
		go func() {
			defer close(ended)
			_ = d.InTx(t.Context(), func(context.Context, *db.Tx) error { runtime.Goexit(); return nil })
			wentOn.Store(true)
		}()
		<-ended
		if wentOn.Load() {
			t.Error("the caller went on")
		}
		if err := put(t.Context(), d, "after"); err != nil {
			t.Error(err)
		}
		if got := keys(t, d); len(got) != 4 || !got["after"] {
			t.Errorf("stored %v", got)
		}
	})
}

func TestPanicComesOutWithItsStack(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t)
	defer func() {
		p, ok := recover().(*db.Panic)
		if !ok || p.Value != "boom" || !strings.Contains(string(p.Stack), "innermost") || !strings.Contains(p.Caller, "TestPanicComesOut") {
			t.Errorf("panicked with %v", p)
		}
	}()
	_ = d.InTx(t.Context(), func(context.Context, *db.Tx) error { innermost(); return nil })
	t.Error("no panic")
}

//go:noinline
func innermost() { panic("boom") }

func TestHintsFollowTheCommitAndNothingElse(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		var order []string
		_ = together(t, d, 3, func(ctx context.Context, tx *db.Tx, i int) error {
			tx.AfterCommit(func() {
				order = append(order, fmt.Sprint(i)) // read after the batch was answered
				if i == 0 {
					panic("a hint must not take the writer with it")
				}
			})
			_ = tx.Savepoint(ctx, func(_ context.Context, tx *db.Tx) error {
				tx.AfterCommit(func() { t.Error("hint of an undone savepoint") })
				return errBoom
			})
			if i == 1 {
				return errBoom
			}
			return nil
		})
		if len(order) != 2 {
			t.Errorf("hints of %v", order)
		}
		nested := make(chan error, 1)
		err := d.InTx(t.Context(), func(_ context.Context, tx *db.Tx) error {
			tx.AfterCommit(func() { nested <- put(context.Background(), d, "from a hint") })
			return nil
		})
		if err != nil || !fault.Is(<-nested, fault.Internal) {
			t.Errorf("a hint could wait for the writer (%v)", err)
		}
	})
}

func TestStatementsOfTheStoreAreNotForFunctions(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		for _, query := range []string{"COMMIT", " rollback;", "SAVEPOINT x", "PRAGMA synchronous = 0", "SET synchronous_commit = off", "begin"} {
			err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
				_, err := tx.Exec(ctx, query)
				return err
			})
			if !fault.Is(err, fault.Internal) {
				t.Errorf("%s: %v", query, err)
			}
		}
	})
}

func TestTransactionIsOverWhenItsFunctionHasReturned(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		var kept *db.Tx
		var seen db.Q
		if err := d.InTx(t.Context(), func(_ context.Context, tx *db.Tx) error { kept = tx; return nil }); err != nil {
			t.Fatal(err)
		}
		if err := d.Read(t.Context(), func(_ context.Context, q db.Q) error { seen = q; return nil }); err != nil {
			t.Fatal(err)
		}
		if _, err := kept.Exec(t.Context(), "DELETE FROM heads"); !fault.Is(err, fault.Internal) {
			t.Errorf("write after the end: %v", err)
		}
		if err := kept.Savepoint(t.Context(), func(context.Context, *db.Tx) error { return nil }); !fault.Is(err, fault.Internal) {
			t.Errorf("savepoint after the end: %v", err)
		}
		if _, err := seen.Query(t.Context(), "SELECT name FROM heads"); !fault.Is(err, fault.Internal) {
			t.Errorf("read after the end: %v", err)
		}
	})
}

func TestFlushOfOneRegisterMayMoveAnother(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		nothing := func(context.Context, *db.Tx) (any, error) { return nil, nil }
		move := func(ctx context.Context, tx *db.Tx) error {
			if _, err := tx.Next(ctx, "n"); err != nil {
				return err
			}
			tx.Register("r", nothing, func(ctx context.Context, tx *db.Tx, _ any) error {
				_, err := tx.Next(ctx, "n") // its register was flushed before
				return err
			}).Set(1)
			return nil
		}
		for want := int64(2); want <= 6; want += 2 {
			if err := d.InTx(t.Context(), move); err != nil {
				t.Fatal(err)
			}
			var n int64
			err := d.Read(t.Context(), func(ctx context.Context, q db.Q) error {
				return q.QueryRow(ctx, "SELECT value FROM heads WHERE name = 'n'").Scan(&n)
			})
			if err != nil || n != want {
				t.Errorf("counter %d, want %d, %v", n, want, err)
			}
		}
		endless := func(ctx context.Context, tx *db.Tx) error {
			var r *db.Register
			r = tx.Register("endless", nothing, func(context.Context, *db.Tx, any) error { r.Set(1); return nil })
			r.Set(1)
			return nil
		}
		if err := d.InTx(t.Context(), endless); !fault.Is(err, fault.Internal) {
			t.Errorf("endless flush: %v", err)
		}
		failing := func(what func()) func(context.Context, *db.Tx) error {
			return func(ctx context.Context, tx *db.Tx) error {
				tx.Register("failing", nothing, func(context.Context, *db.Tx, any) error { what(); return errBoom }).Set(1)
				_, err := tx.Exec(ctx, "INSERT INTO meta (key, value) VALUES ('k', 'v')")
				return err
			}
		}
		if err := d.InTx(t.Context(), failing(func() {})); !errors.Is(err, errBoom) {
			t.Errorf("failing flush: %v", err)
		}
		func() {
			defer func() {
				if p, ok := recover().(*db.Panic); !ok || p.Value != "flush" {
					t.Errorf("panic of a flush: %v", p)
				}
			}()
			_ = d.InTx(t.Context(), failing(func() { panic("flush") }))
		}()
		if got := keys(t, d); len(got) != 0 {
			t.Errorf("rows of failed flushes: %v", got)
		}
	})
}

func TestWatchersHearEveryTopicUnderLoad(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var watchers sync.WaitGroup
		for i := range 16 { // come and go while signals are sent
			watchers.Go(func() {
				for ctx.Err() == nil {
					ch, stop := d.Watch(fmt.Sprint(i % 4))
					select {
					case <-ch:
					case <-ctx.Done():
					}
					stop()
					stop() // twice does no harm
				}
			})
		}
		steady, stop := d.Watch("3")
		defer stop()
		var callers sync.WaitGroup
		for i := range 16 {
			callers.Go(func() {
				for range 10 {
					err := d.InTx(ctx, func(_ context.Context, tx *db.Tx) error { tx.Notify(fmt.Sprint(i % 4)); return nil })
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		callers.Wait()
		<-steady // InTx has returned, so the hint was given
		cancel()
		watchers.Wait()
	})
}

func TestReadEndsWithItsContextAndKeepsItsConnection(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		for _, cause := range []fault.Class{fault.Cancelled, fault.Timeout} {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
			if cause == fault.Cancelled {
				ctx, cancel = context.WithCancel(t.Context())
				time.AfterFunc(30*time.Millisecond, cancel)
			}
			err := d.Read(ctx, func(ctx context.Context, q db.Q) error {
				return q.QueryRow(ctx, "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 2000000000) SELECT count(*) FROM n").Scan(new(int64))
			})
			cancel()
			if !fault.Is(err, cause) {
				t.Errorf("told %s: %v", fault.ClassOf(err), err)
			}
		}
		for range 8 { // every reader, and one more round
			func() {
				defer func() { _ = recover() }()
				_ = d.Read(t.Context(), func(ctx context.Context, q db.Q) error {
					rows, err := q.Query(ctx, "SELECT name FROM heads")
					if err != nil || !rows.Next() {
						t.Errorf("no rows: %v", err)
					}
					panic(io.EOF)
				})
			}()
		}
		if err := put(t.Context(), d, "k"); err != nil {
			t.Fatal(err)
		}
		for range 8 {
			if !keys(t, d)["k"] {
				t.Error("a reader kept an old snapshot")
			}
		}
	})
}
