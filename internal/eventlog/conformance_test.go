package eventlog

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
)

// The test binary is also the second process of a test.
var (
	role  = flag.String("role", "", "be another process: append or handle")
	store = flag.String("store", "", "address of the store of that process")
)

func TestMain(m *testing.M) {
	flag.Parse()
	if *role == "" {
		os.Exit(m.Run())
	}
	if err := second(context.Background()); err != nil {
		fmt.Println("second process:", err)
		os.Exit(1)
	}
}

// Sizes of the conformance test.
const (
	appenders = 8
	appends   = 60
	batchSize = 3
)

func second(ctx context.Context) error {
	d, err := db.Open(ctx, db.Options{DSN: *store})
	if err != nil {
		return err
	}
	v, err := testVault()
	if err != nil {
		return err
	}
	l := NewLog(d, v, nil, Options{})
	if *role == "handle" {
		return handleAndHang(ctx, l)
	}
	if err := appendMany(ctx, l, appenders/2, appenders); err != nil {
		return err
	}
	return d.Close()
}

// appendMany is some of the appenders. Every other transaction is rolled back, so
// that positions are taken and given back all the time.
func appendMany(ctx context.Context, l *Log, from, to int) error {
	var wg sync.WaitGroup
	errs := make([]error, to)
	for a := from; a < to; a++ {
		wg.Go(func() {
			for n := range appends {
				errs[a] = appendOnce(ctx, l, a, n)
				if errs[a] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func appendOnce(ctx context.Context, l *Log, a, n int) error {
	for _, undo := range []bool{true, false} {
		err := l.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
			for i := range batchSize {
				_, err := l.AppendTx(ctx, tx, New{
					ID: fmt.Sprintf("%d-%d", a, n*batchSize+i), Stream: fmt.Sprint("s", i), Kind: "k", Expect: Any, Data: n,
				})
				if err != nil {
					return err
				}
			}
			if undo {
				return errBad
			}
			return nil
		})
		if undo && errors.Is(err, errBad) {
			continue
		}
		if err != nil || undo {
			return fmt.Errorf("append, undo %v: %w", undo, err)
		}
	}
	return nil
}

// TestReadersSeeEveryEventOnceInCommitOrder: 8 appenders (on PostgreSQL half of
// them in another process), one reader that follows from the start, and one
// subscription.
func TestReadersSeeEveryEventOnceInCommitOrder(t *testing.T) {
	t.Parallel()
	for _, kind := range dbtest.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			o := dbtest.Options(t, kind)
			l := newLog(t, dbtest.Open(t, o))
			var j journal
			if err := l.Start(t.Context(), Subscription{Name: "s", Handle: j.handle}); err != nil {
				t.Fatal(err)
			}
			defer l.Stop()

			const total = appenders * appends * batchSize
			var wg sync.WaitGroup
			wg.Go(func() {
				mine := appenders
				if kind == dbtest.KindPostgres {
					mine /= 2
					wg.Go(func() {
						out, err := exec.CommandContext(t.Context(), os.Args[0], "-role=append", "-store="+o.DSN).CombinedOutput()
						if err != nil {
							t.Errorf("second process: %v\n%s", err, out)
						}
					})
				}
				if err := appendMany(t.Context(), l, 0, mine); err != nil {
					t.Error(err)
				}
			})
			var tailed []Event
			err := l.Tail(t.Context(), 0, Filter{}, func(e Event) error {
				if tailed = append(tailed, e); len(tailed) == total {
					return io.EOF
				}
				return nil
			})
			wg.Wait()
			if !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			checkOrder(t, tailed)
			waitHandled(t, l, "s", total)
			want := make([]string, total)
			for i, e := range tailed {
				want[i] = e.ID
			}
			if got := handled(t, l); !slices.Equal(got, want) {
				t.Errorf("the subscription handled %d events, or in another order than the %d read", len(got), len(want))
			}
		})
	}
}

// checkOrder: positions and versions without gaps, each appender's events in the
// order it appended them.
func checkOrder(t *testing.T, events []Event) {
	t.Helper()
	versions := map[string]int64{}
	next := map[int]int{}
	for i, e := range events {
		if e.Position != int64(i+1) || e.Version != versions[e.Stream]+1 {
			t.Fatalf("event %d: position %d, version %d of %s", i, e.Position, e.Version, e.Stream)
		}
		versions[e.Stream]++
		var a, n int
		if _, err := fmt.Sscanf(e.ID, "%d-%d", &a, &n); err != nil || n != next[a] {
			t.Fatalf("event %s comes where %d-%d should (%v)", e.ID, a, next[a], err)
		}
		next[a]++
	}
}

func waitHandled(t *testing.T, l *Log, name string, position int64) {
	t.Helper()
	wake, unwatch := l.db.Watch(Topic)
	defer unwatch()
	for stored(t, l, name).Position < position {
		// Appending is over: an empty commit of ours stands for the hint we wait for.
		err := l.db.InTx(t.Context(), func(_ context.Context, tx *db.Tx) error { tx.Notify(Topic); return nil })
		if err != nil {
			t.Fatal(err)
		}
		<-wake
	}
}

// handleAndHang handles events until the one named "3", in which it stops for
// ever: after the handler's writes, before their commit.
func handleAndHang(ctx context.Context, l *Log) error {
	var j journal
	note := j.handle
	err := l.Start(ctx, Subscription{Name: "s", Handle: func(ctx context.Context, tx *db.Tx, e Event) error {
		if err := note(ctx, tx, e); err != nil || e.ID != "3" {
			return err
		}
		fmt.Println("inside")
		select {}
	}})
	if err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

func TestKilledBetweenHandlerAndCommitTheEventsAreDeliveredAgain(t *testing.T) {
	t.Parallel()
	for _, kind := range dbtest.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			o := db.Options{DSN: dbtest.DSN(t, kind), LockFile: filepath.Join(t.TempDir(), "lock")}
			d, err := db.Open(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			l := newLog(t, d)
			var j journal
			s := Subscription{Name: "s", Handle: j.handle}
			r := open(t, l, s)
			must(t, l, ev("1", "a"))
			run(t, r)
			must(t, l, ev("2", "a"), ev("3", "b"), ev("4", "a"))
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}

			child := exec.CommandContext(t.Context(), os.Args[0], "-role=handle", "-store="+o.DSN)
			out, err := child.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := child.Start(); err != nil {
				t.Fatal(err)
			}
			said, err := bufio.NewReader(out).ReadString('\n')
			if err != nil || strings.TrimSpace(said) != "inside" {
				t.Fatalf("second process: %q, %v", said, err)
			}
			if err := child.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = child.Wait() // killed, so always an error

			l = newLog(t, dbtest.Open(t, o))
			if got := handled(t, l); !slices.Equal(got, []string{"1"}) {
				t.Errorf("after the kill: %v", got)
			}
			run(t, open(t, l, s))
			if got := handled(t, l); !slices.Equal(got, []string{"1", "2", "3", "4"}) {
				t.Errorf("handled %v", got)
			}
		})
	}
}
