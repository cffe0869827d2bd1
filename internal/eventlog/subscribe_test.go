package eventlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
)

// clock is a time that only a test moves.
type clock struct{ us atomic.Int64 }

func (c *clock) now() time.Time          { return time.UnixMicro(c.us.Load()) }
func (c *clock) forward(d time.Duration) { c.us.Add(d.Microseconds()) }

// each runs fn on both stores, whose clock and the log's is the test's.
func each(t *testing.T, fn func(t *testing.T, l *Log, c *clock)) {
	t.Helper()
	for _, kind := range dbtest.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			c := &clock{}
			c.us.Store(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro())
			o := dbtest.Options(t, kind)
			o.Now = c.now
			fn(t, NewLog(dbtest.Open(t, o), newVault(t), nil, Options{Now: c.now}), c)
		})
	}
}

// journal is a handler that writes what it handled into rows, so that what was
// rolled back is not there.
type journal struct {
	mu    sync.Mutex
	fails map[string]error // by event id
	calls map[string]int
}

func (j *journal) set(id string, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.fails == nil {
		j.fails = map[string]error{}
	}
	j.fails[id] = err
}

var errBad = errors.New("bad event")

func (j *journal) handle(ctx context.Context, tx *db.Tx, e Event) error {
	n, err := tx.Next(ctx, "journal")
	if err != nil {
		return err
	}
	mark := e.ID
	if e.OutOfOrder {
		mark += "!"
	}
	if _, err := tx.Exec(ctx, `INSERT INTO meta (key, value) VALUES ($1, $2)`, fmt.Sprintf("journal/%06d", n), mark); err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.calls == nil {
		j.calls = map[string]int{}
	}
	j.calls[e.ID]++
	return j.fails[e.ID]
}

func (j *journal) count(id string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.calls[id]
}

func handled(t *testing.T, l *Log) []string {
	t.Helper()
	var out []string
	err := l.db.Read(t.Context(), func(ctx context.Context, q db.Q) (err error) {
		out, err = db.All(ctx, q, db.Column[string], `SELECT value FROM meta WHERE substr(key, 1, 8) = 'journal/' ORDER BY key`)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func open(t *testing.T, l *Log, s Subscription) *reader {
	t.Helper()
	readers, err := l.register(t.Context(), []Subscription{s})
	if err != nil {
		t.Fatal(err)
	}
	return readers[s.Name]
}

func run(t *testing.T, r *reader) {
	t.Helper()
	for more := true; more; {
		var err error
		if more, err = r.runOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func stored(t *testing.T, l *Log, name string) Status {
	t.Helper()
	all, err := l.Subscriptions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("no subscription %s in %v", name, all)
	return Status{}
}

func ev(id, stream string) New { return New{ID: id, Stream: stream, Kind: "k", Expect: Any} }

func TestNewSubscriptionStartsAtTheHeadAndAnOldOneWhereItWas(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *Log, _ *clock) {
		var j journal
		must(t, l, ev("1", "a"), ev("2", "a"))
		s := Subscription{Name: "s", Handle: j.handle}
		run(t, open(t, l, s))
		must(t, l, ev("3", "a"))
		run(t, open(t, l, s))
		must(t, l, ev("4", "a"))
		r := open(t, l, s)
		run(t, r)
		if got := handled(t, l); !slices.Equal(got, []string{"3", "4"}) {
			t.Errorf("handled %v", got)
		}
		if s := stored(t, l, "s"); s.Position != 4 || s.Head != 4 || s.Blocked+s.DeadLetters != 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestFailingEventBlocksItsStreamOnlyAndCatchesUpInOrder(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *Log, c *clock) {
		var j journal
		r := open(t, l, Subscription{Name: "s", Handle: j.handle})
		j.set("a1", errBad)
		must(t, l, ev("b1", "b"), ev("a1", "a"), ev("a2", "a"), ev("b2", "b"))
		run(t, r)
		must(t, l, ev("a3", "a"), ev("b3", "b"))
		run(t, r)
		if got := handled(t, l); !slices.Equal(got, []string{"b1", "b2", "b3"}) {
			t.Fatalf("while blocked: %v", got)
		}
		b, err := l.Blocked(t.Context())
		if err != nil || len(b) != 1 || b[0].Stream != "a" || b[0].From != 2 || b[0].Attempts != 1 || b[0].Error != errBad.Error() {
			t.Fatalf("blocked %+v, %v", b, err)
		}
		calls := j.count("a1")
		c.forward(time.Second - time.Microsecond)
		run(t, r)
		if j.count("a1") != calls {
			t.Error("retried before its time")
		}
		j.set("a1", nil)
		c.forward(time.Microsecond)
		run(t, r)
		if got := handled(t, l); !slices.Equal(got, []string{"b1", "b2", "b3", "a1", "a2", "a3"}) {
			t.Fatalf("caught up: %v", got)
		}
		must(t, l, ev("a4", "a"))
		run(t, r)
		if got := handled(t, l); got[len(got)-1] != "a4" {
			t.Fatalf("free again: %v", got)
		}
		if s := stored(t, l, "s"); s.Blocked != 0 || s.Position != 7 {
			t.Errorf("%+v", s)
		}
	})
}

func TestAfterThreeRetriesOnlyTheEventIsADeadLetterAndTheStreamGoesOn(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *Log, c *clock) {
		var j journal
		s := Subscription{Name: "s", Filter: Filter{Kinds: []string{"k"}}, Handle: j.handle}
		r := open(t, l, s)
		j.set("a1", errBad)
		must(t, l, ev("a1", "a"), ev("a2", "a"))
		run(t, r)
		for i, wait := range []time.Duration{time.Second, 5 * time.Second, 25 * time.Second} {
			if got := handled(t, l); len(got) != 0 {
				t.Fatalf("before retry %d: %v", i+1, got)
			}
			c.forward(wait - time.Microsecond)
			run(t, r)
			before := j.count("a1")
			c.forward(time.Microsecond)
			r = open(t, l, s) // a restart forgets nothing
			run(t, r)
			if j.count("a1") == before {
				t.Fatalf("no retry %d after %s", i+1, wait)
			}
		}
		if got := handled(t, l); !slices.Equal(got, []string{"a2"}) {
			t.Fatalf("after the last retry: %v", got)
		}
		letters, err := l.DeadLetters(t.Context(), LetterFilter{})
		if err != nil || len(letters) != 1 || letters[0].Ref != "a1" || letters[0].Last-letters[0].First != (31*time.Second).Microseconds() || letters[0].Attempts != 4 || letters[0].Error != errBad.Error() {
			t.Fatalf("letters %+v, %v", letters, err)
		}
		told, err := l.Read(t.Context(), 0, 0, Filter{Kinds: []string{KindCritical}})
		if err != nil || len(told) != 1 || told[0].Cause != "a1" {
			t.Fatalf("told %+v, %v", told, err)
		}
		if after, err := l.DeadLetters(t.Context(), LetterFilter{After: letters[0].ID}); err != nil || len(after) != 0 {
			t.Errorf("next page %v, %v", after, err)
		}
	})
}

// replay settles a letter and hands its event on, in one transaction.
func replay(t *testing.T, l *Log, letter string) error {
	t.Helper()
	err := l.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		d, err := l.DeadLetterIn(ctx, tx, letter)
		if err != nil {
			return err
		}
		if err := l.SettleLetterTx(ctx, tx, d.ID, LetterReplayed, "test", ""); err != nil {
			return err
		}
		return l.HandAgainTx(ctx, tx, d)
	})
	if HandedAgain(err) {
		return errors.Join(err, l.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error { return l.FailedAgainTx(ctx, tx, letter, err) }))
	}
	return err
}

func TestALongErrorOfADeadLetterIsCutBetweenCharacters(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *Log, _ *clock) {
		long := "x" + strings.Repeat("é", maxError)
		err := l.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			d, err := l.BuryTx(ctx, tx, DeadLetter{Source: FromDelivery, Name: "mail", Ref: "dlv_1", Error: long})
			if err != nil {
				return err
			}
			if len(d.Error) != maxError-1 || !utf8.ValidString(d.Error) {
				t.Errorf("%d bytes: …%q", len(d.Error), d.Error[len(d.Error)-4:])
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if text := errorText(errors.New(long)); !utf8.ValidString(text) {
			t.Errorf("…%q", text[len(text)-4:])
		}
	})
}

func TestReplayIsMarkedOutOfOrderAndHappensOnce(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *Log, _ *clock) {
		l.retries = nil
		var j journal
		s := Subscription{Name: "s", Filter: Filter{StreamPrefix: "a"}, Handle: j.handle}
		if err := l.Start(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		defer l.Stop()
		j.set("a1", errBad)
		must(t, l, ev("a1", "a"), ev("a2", "a"))
		done := make(chan struct{})
		err := l.Tail(t.Context(), 0, Filter{Kinds: []string{KindCritical}}, func(Event) error { close(done); return errBad })
		<-done
		if !errors.Is(err, errBad) {
			t.Fatal(err)
		}
		letters, err := l.DeadLetters(t.Context(), LetterFilter{})
		if err != nil || len(letters) != 1 {
			t.Fatal(letters, err)
		}
		id := letters[0].ID
		if err := replay(t, l, id); !errors.Is(err, errBad) {
			t.Errorf("still failing: %v", err)
		}
		j.set("a1", nil)
		if err := replay(t, l, id); err != nil {
			t.Error(err)
		}
		if err := replay(t, l, id); !fault.Is(err, fault.Conflict) {
			t.Errorf("twice: %v", err)
		}
		if err := replay(t, l, "dead_x"); !fault.Is(err, fault.NotFound) {
			t.Errorf("unknown: %v", err)
		}
		if got := handled(t, l); !slices.Equal(got, []string{"a2", "a1!"}) {
			t.Errorf("handled %v", got)
		}
		letters, err = l.DeadLetters(t.Context(), LetterFilter{})
		if err != nil || letters[0].State != LetterReplayed || letters[0].Replays != 1 || letters[0].Attempts != 2 {
			t.Errorf("%+v, %v", letters, err)
		}
	})
}

func TestPanicAndSwallowedStatementErrorCountAsFailures(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *Log, _ *clock) {
		var j journal
		note := j.handle
		r := open(t, l, Subscription{Name: "s", Handle: func(ctx context.Context, tx *db.Tx, e Event) error {
			switch e.ID {
			case "p1":
				panic("oh")
			case "q1":
				_, _ = tx.Exec(ctx, `INSERT INTO no_such_table VALUES (1)`)
				return nil
			}
			return note(ctx, tx, e)
		}})
		must(t, l, ev("1", "a"), ev("p1", "p"), ev("2", "a"), ev("q1", "q"), ev("3", "a"), ev("q2", "q"))
		run(t, r)
		if got := handled(t, l); !slices.Equal(got, []string{"1", "2", "3"}) {
			t.Errorf("handled %v", got)
		}
		if s := stored(t, l, "s"); s.Blocked != 2 || s.Position != 6 {
			t.Errorf("%+v", s)
		}
	})
}

func TestUnreadableEventBlocksOnlyItsStream(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *Log, _ *clock) {
		var j journal
		r := open(t, newLog(t, l.db), Subscription{Name: "s", Handle: j.handle}) // with nothing in memory
		must(t, l, ev("1", "a"), ev("x", "x"), ev("y", "y"), ev("z", "z"), ev("2", "a"))
		err := l.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			for id, column := range map[string]string{"x": "actor = 'somebody else'", "y": "data = leaf", "z": "leaf = data"} {
				if _, err := tx.Exec(ctx, `UPDATE events SET `+column+` WHERE id = $1`, id); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		run(t, r)
		if got := handled(t, l); !slices.Equal(got, []string{"1", "2"}) {
			t.Errorf("handled %v", got)
		}
		if s := stored(t, l, "s"); s.Blocked != 3 || s.Position != 5 {
			t.Errorf("%+v", s)
		}
	})
}

// A lost connection is the store's failure: it blocks nothing and is tried again.
func TestLostConnectionCountsAgainstNoEvent(t *testing.T) {
	t.Parallel()
	l := newLog(t, dbtest.Postgres(t))
	var j journal
	note, broken := j.handle, true
	r := open(t, l, Subscription{Name: "s", Handle: func(ctx context.Context, tx *db.Tx, e Event) error {
		if e.ID == "2" && broken {
			var gone bool
			return tx.QueryRow(ctx, `SELECT pg_terminate_backend(pg_backend_pid())`).Scan(&gone)
		}
		return note(ctx, tx, e)
	}})
	must(t, l, ev("1", "a"), ev("2", "b"), ev("3", "a"))
	for range 3 {
		if _, err := r.runOnce(t.Context()); !fault.Is(err, fault.Unavailable) {
			t.Errorf("while broken: %v", err)
		}
	}
	if s := stored(t, l, "s"); s.Blocked != 0 || s.Position != 0 {
		t.Errorf("%+v", s)
	}
	broken = false
	run(t, r)
	if got := handled(t, l); !slices.Equal(got, []string{"1", "2", "3"}) {
		t.Errorf("handled %v", got)
	}
}

func TestEventsNobodyChoseMoveThePositionLazily(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *Log, _ *clock) {
		var j journal
		r := open(t, l, Subscription{Name: "s", Filter: Filter{Kinds: []string{"wanted"}}, Handle: j.handle})
		batch := make([]New, lazyMove-1)
		for i := range batch {
			batch[i] = New{Stream: "a", Kind: "k", Expect: Any}
		}
		must(t, l, batch...)
		run(t, r)
		if s := stored(t, l, "s"); s.Position != 0 {
			t.Errorf("moved to %d for nothing", s.Position)
		}
		must(t, l, ev("1", "a"))
		run(t, r)
		if s := stored(t, l, "s"); s.Position != lazyMove {
			t.Errorf("moved to %d, want %d", s.Position, lazyMove)
		}
		must(t, l, ev("2", "a"), New{ID: "3", Stream: "a", Kind: "wanted", Expect: Any})
		run(t, r)
		if s := stored(t, l, "s"); s.Position != lazyMove+2 {
			t.Errorf("moved to %d, want %d", s.Position, lazyMove+2)
		}
		if got := handled(t, l); !slices.Equal(got, []string{"3"}) {
			t.Errorf("handled %v", got)
		}
	})
}

// Two readers of one name are what two nodes are: each event is still handled once.
func TestTwoReadersOfOneSubscriptionHandleEachEventOnce(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *Log, c *clock) {
		var j journal
		s := Subscription{Name: "s", Handle: j.handle}
		a, b := open(t, l, s), open(t, l, s)
		j.set("a1", errBad)
		must(t, l, ev("1", "x"), ev("a1", "a"))
		run(t, a)
		if _, err := b.runOnce(t.Context()); !errors.Is(err, errStale) {
			t.Errorf("b moved what a had moved: %v", err)
		}
		run(t, b)
		must(t, l, ev("2", "x"), ev("a2", "a"))
		run(t, b)
		if _, err := a.runOnce(t.Context()); !errors.Is(err, errStale) {
			t.Errorf("a moved what b had moved: %v", err)
		}
		j.set("a1", nil)
		c.forward(time.Second)
		run(t, b)
		run(t, a)
		must(t, l, ev("a3", "a"))
		run(t, a)
		if got := handled(t, l); !slices.Equal(got, []string{"1", "2", "a1", "a2", "a3"}) {
			t.Errorf("handled %v", got)
		}
		if s := stored(t, l, "s"); s.Position != 5 {
			t.Errorf("%+v", s)
		}
	})
}

func TestPositionNeverMovesBack(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *Log, _ *clock) {
		var j journal
		r := open(t, l, Subscription{Name: "s", Handle: j.handle})
		must(t, l, ev("1", "a"), ev("2", "a"))
		run(t, r)
		if err := r.advance(t.Context(), nil, 1, together); !errors.Is(err, errStale) {
			t.Errorf("moved back: %v", err)
		}
		if s := stored(t, l, "s"); s.Position != 2 {
			t.Errorf("%+v", s)
		}
	})
}

// What is rolled back between the handler and its commit is delivered again.
func TestRolledBackBatchIsDeliveredAgain(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *Log, _ *clock) {
		var j journal
		note := j.handle
		ctx, cancel := context.WithCancel(t.Context())
		r := open(t, l, Subscription{Name: "s", Handle: func(c context.Context, tx *db.Tx, e Event) error {
			if err := note(c, tx, e); err != nil {
				return err
			}
			if ctx.Err() == nil && e.ID == "2" {
				cancel() // the process is told to end in the middle of a batch
				return errBad
			}
			return nil
		}})
		must(t, l, ev("1", "a"), ev("2", "a"))
		if _, err := r.runOnce(ctx); err == nil {
			t.Error("no error")
		}
		if got := handled(t, l); len(got) != 0 {
			t.Errorf("left behind: %v", got)
		}
		run(t, r)
		if got := handled(t, l); !slices.Equal(got, []string{"1", "2"}) || j.count("1") != 2 {
			t.Errorf("handled %v, first called %d times", got, j.count("1"))
		}
	})
}

func TestBatchIsOneCommitAndIdleIsNone(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *Log, _ *clock) {
		commits := 0
		r := open(t, l, Subscription{Name: "s", Handle: func(_ context.Context, tx *db.Tx, e Event) error {
			tx.Register("test", nil, func(context.Context, *db.Tx, any) error { commits++; return nil }).Set(e.ID)
			return nil
		}})
		var batch []New
		for i := range page {
			batch = append(batch, ev(fmt.Sprint(i), fmt.Sprint("s", i)))
		}
		must(t, l, batch...)
		if more, err := r.runOnce(t.Context()); more || err != nil {
			t.Errorf("after a whole page: more %v, %v", more, err)
		}
		if commits != 1 {
			t.Errorf("%d commits for one batch", commits)
		}
		writes := 0
		r.sub.Handle = func(context.Context, *db.Tx, Event) error { writes++; return nil }
		before := stored(t, l, "s")
		for range 5 {
			run(t, r)
		}
		if after := stored(t, l, "s"); after != before || writes != 0 {
			t.Errorf("idle reader wrote: %+v → %+v", before, after)
		}
	})
}

func TestStartAndStopAreSafeTwiceAndLeakNothing(t *testing.T) {
	// Not parallel: it counts goroutines.
	d := dbtest.SQLite(t)
	l := NewLog(d, newVault(t), nil, Options{})
	ignore := goleak.IgnoreCurrent()
	got := make(chan string, 100)
	sub := func(name string) Subscription {
		return Subscription{Name: name, Handle: func(_ context.Context, tx *db.Tx, e Event) error {
			tx.AfterCommit(func() { got <- name + e.ID })
			return nil
		}}
	}
	l.Stop()
	for round := range 5 {
		for range 2 {
			if err := l.Start(t.Context(), sub("a"), sub("b")); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Start(t.Context(), sub("c")); !fault.Is(err, fault.Conflict) {
			t.Errorf("another subscription while running: %v", err)
		}
		if err := l.Detach(t.Context(), "a"); !fault.Is(err, fault.Conflict) {
			t.Errorf("detach while running: %v", err)
		}
		must(t, l, ev(fmt.Sprint(round), "s"))
		seen := []string{<-got, <-got}
		slices.Sort(seen)
		if want := []string{fmt.Sprint("a", round), fmt.Sprint("b", round)}; !slices.Equal(seen, want) {
			t.Errorf("got %v, want %v", seen, want)
		}
		l.Stop()
		l.Stop()
	}
	goleak.VerifyNone(t, ignore)
	if err := l.Detach(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	if err := l.Detach(t.Context(), "a"); !fault.Is(err, fault.NotFound) {
		t.Errorf("detached twice: %v", err)
	}
	for _, bad := range [][]Subscription{{{Name: "x"}}, {{Handle: sub("x").Handle}}, {sub("x"), sub("x")}} {
		if err := l.Start(t.Context(), bad...); !fault.Is(err, fault.Internal) {
			t.Errorf("Start(%v): %v", bad, err)
		}
	}
}
