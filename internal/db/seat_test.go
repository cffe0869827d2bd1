package db_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
)

// node is a process that wants to be the active one of a store.
type node struct {
	seat *db.Seat
	d    *db.DB
}

// sit takes the seat and opens the store with it.
func sit(t *testing.T, o db.Options, s db.SeatOptions) *node {
	t.Helper()
	if s.DSN == "" {
		s.DSN = o.DSN
	}
	if s.TTL == 0 {
		s.TTL = time.Minute
	}
	seat, err := db.TakeSeat(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	o.LockFile, o.Seat = "", seat
	n := &node{seat, dbtest.Open(t, o)}
	t.Cleanup(func() {
		_ = n.d.Close()
		if err := seat.Release(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return n
}

// waiting is for a node that is to wait.
func waiting(ch chan db.Holder) func(db.Holder) { return func(h db.Holder) { ch <- h } }

// underWay begins a batch and returns when before was done in it; after is done when goOn
// is called. Both may be run again.
func underWay(d *db.DB, before, after func(context.Context, *db.Tx) error) (goOn func(), told <-chan error) {
	inside, rest, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	begun := sync.OnceFunc(func() { close(inside) })
	go func() {
		ended <- d.InTx(context.Background(), func(ctx context.Context, tx *db.Tx) error {
			err := before(ctx, tx)
			begun()
			if err != nil {
				return err
			}
			<-rest
			return after(ctx, tx)
		})
	}()
	<-inside
	return func() { close(rest) }, ended
}

func nothing(context.Context, *db.Tx) error { return nil }

// insert adds the row of a key.
func insert(key string) func(context.Context, *db.Tx) error {
	return func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.Exec(ctx, insertMeta, key, "v")
		return err
	}
}

// expire lets the lease of the active run out, as if it had been silent.
func expire(t *testing.T, dsn string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	if _, err := conn.Exec(t.Context(), "UPDATE leases SET expires = 1 WHERE name = 'ombud.active'"); err != nil {
		t.Fatal(err)
	}
}

func TestASecondNodeIsToldWhoIsActive(t *testing.T) {
	t.Parallel()
	o := dbtest.Options(t, dbtest.KindPostgres)
	a := sit(t, o, db.SeatOptions{Home: "a", Name: "machine a"})
	_, err := db.TakeSeat(t.Context(), db.SeatOptions{DSN: o.DSN, Home: "b", Name: "machine b"})
	if !fault.Is(err, fault.Unavailable) || err.Error() != "the store has an active daemon: machine a" {
		t.Errorf("told %v", err)
	}
	h, there, err := a.d.Active(t.Context())
	if err != nil || !there || h.Name != "machine a" || h.Fence != a.seat.Fence() || h.Since == 0 {
		t.Errorf("active: %+v %v %v", h, there, err)
	}
}

func TestAWaitingNodeTakesOverAtOnceFromOneThatLetsGo(t *testing.T) {
	t.Parallel()
	o := dbtest.Options(t, dbtest.KindPostgres)
	a := sit(t, o, db.SeatOptions{Home: "a", Name: "a"})
	told := make(chan db.Holder, 1)
	got := make(chan *node, 1)
	go func() {
		seat, err := db.TakeSeat(t.Context(), db.SeatOptions{DSN: o.DSN, Home: "b", Name: "b", TTL: time.Minute, Waiting: waiting(told)})
		if err != nil {
			t.Error(err)
		}
		got <- &node{seat: seat}
	}()
	if h := <-told; h.Name != "a" {
		t.Errorf("waits for %+v", h)
	}
	if err := a.d.Close(); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	if err := a.seat.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	b := <-got
	if b.seat == nil {
		return
	}
	if took := time.Since(begun); took > 3*time.Second {
		t.Errorf("it took %s", took)
	}
	if b.seat.Fence() <= a.seat.Fence() {
		t.Errorf("fence %d after %d", b.seat.Fence(), a.seat.Fence())
	}
	if err := b.seat.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// Neither its clock nor its lease says so: the node has not heard of it when its
// write is refused.
func TestAnActiveThatWasReplacedWritesNothing(t *testing.T) {
	t.Parallel()
	o := dbtest.Options(t, dbtest.KindPostgres)
	a := sit(t, o, db.SeatOptions{Home: "a", Name: "a"})
	if err := put(t.Context(), a.d, "a1"); err != nil {
		t.Fatal(err)
	}
	expire(t, o.DSN)
	if err := put(t.Context(), a.d, "a2"); err != nil {
		t.Errorf("a lease that ran out and was not taken: %v", err)
	}
	told := make(chan db.Holder, 1)
	b := sit(t, o, db.SeatOptions{Home: "b", Name: "b", TTL: 100 * time.Millisecond, Waiting: waiting(told)})
	if err := put(t.Context(), a.d, "a3"); !fault.Is(err, fault.Unavailable) {
		t.Errorf("told %v", err)
	}
	<-a.seat.Lost()
	if err := put(t.Context(), a.d, "a4"); !errors.Is(err, db.ErrReplaced) {
		t.Errorf("told %v", err)
	}
	if err := put(t.Context(), b.d, "b1"); err != nil {
		t.Error(err)
	}
	got := keys(t, b.d)
	for key, want := range map[string]bool{"a1": true, "a2": true, "a3": false, "a4": false, "b1": true} {
		if got[key] != want {
			t.Errorf("%s is stored: %v", key, got[key])
		}
	}
}

// A batch that is under way when the seat is taken is either before it, with all it
// wrote, or is not.
func TestASeatIsTakenBetweenTwoBatches(t *testing.T) {
	t.Parallel()
	o := dbtest.Options(t, dbtest.KindPostgres)
	a := sit(t, o, db.SeatOptions{Home: "a", Name: "a"})
	goOn, wrote := underWay(a.d, nothing, insert("under way"))
	expire(t, o.DSN)
	took := make(chan *db.Seat, 1)
	go func() {
		seat, err := db.TakeSeat(t.Context(), db.SeatOptions{DSN: o.DSN, Home: "b", Name: "b", TTL: 50 * time.Millisecond, Waiting: func(db.Holder) {}})
		if err != nil {
			t.Error(err)
		}
		took <- seat
	}()
	select {
	case <-took:
		t.Error("the seat was taken in the middle of a batch")
	case <-time.After(300 * time.Millisecond):
	}
	goOn()
	if err := <-wrote; err != nil {
		t.Errorf("the batch that was first: %v", err)
	}
	seat := <-took
	if err := put(t.Context(), a.d, "after"); !fault.Is(err, fault.Unavailable) {
		t.Errorf("told %v", err)
	}
	if got := keys(t, a.d); !got["under way"] || got["after"] {
		t.Errorf("stored %v", got)
	}
	if err := seat.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// A node that stops in the middle of a batch holds the row all batches need. The
// server ends its transaction, so that nobody waits for it for long.
func TestANodeThatStopsInsideABatchIsTakenOver(t *testing.T) {
	t.Parallel()
	o := dbtest.Options(t, dbtest.KindPostgres)
	a := sit(t, o, db.SeatOptions{Home: "a", Name: "a"})
	goOn, wrote := underWay(a.d, nothing, insert("stopped"))
	expire(t, o.DSN)
	begun := time.Now()
	seat, err := db.TakeSeat(t.Context(), db.SeatOptions{DSN: o.DSN, Home: "b", Name: "b", TTL: 50 * time.Millisecond, Waiting: func(db.Holder) {}})
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took > 9*time.Second {
		t.Errorf("it took %s", took)
	}
	goOn()
	if err := <-wrote; !fault.Is(err, fault.Unavailable) {
		t.Errorf("told %v", err)
	}
	if keys(t, a.d)["stopped"] {
		t.Error("it is stored")
	}
	if err := seat.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestTheNextProcessOfAHomeNeedNotWait(t *testing.T) {
	t.Parallel()
	o := dbtest.Options(t, dbtest.KindPostgres)
	a := sit(t, o, db.SeatOptions{Home: "home", Name: "first"})
	b := sit(t, o, db.SeatOptions{Home: "home", Name: "second"})
	if err := put(t.Context(), a.d, "k"); !fault.Is(err, fault.Unavailable) {
		t.Errorf("told %v", err)
	}
	if err := put(t.Context(), b.d, "k"); err != nil {
		t.Error(err)
	}
}

func TestAnActiveThatIsCutOffIsReplaced(t *testing.T) {
	t.Parallel()
	o := dbtest.Options(t, dbtest.KindPostgres)
	direct := o
	var p *proxy
	p, o.DSN = newProxy(t, o.DSN)
	a := sit(t, o, db.SeatOptions{Home: "a", Name: "a", TTL: 400 * time.Millisecond})
	p.refuse.Store(true)
	conn, err := pgx.Connect(t.Context(), direct.DSN)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	if _, err := conn.Exec(t.Context(), `SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
		WHERE datname = current_database() AND pid <> pg_backend_pid()`); err != nil {
		t.Fatal(err)
	}
	if err := put(t.Context(), a.d, "cut"); !fault.Is(err, fault.Unavailable) {
		t.Errorf("told %v", err)
	}
	b := sit(t, direct, db.SeatOptions{Home: "b", Name: "b", TTL: 400 * time.Millisecond, Waiting: func(db.Holder) {}})
	p.refuse.Store(false)
	<-a.seat.Lost() // it hears of it by itself
	if err := put(t.Context(), a.d, "back"); !fault.Is(err, fault.Unavailable) {
		t.Errorf("told %v", err)
	}
	if err := put(t.Context(), b.d, "b"); err != nil {
		t.Error(err)
	}
}

// Many nodes want the seat of an empty database at once, and each lets go again: one
// has it at a time, and every fence is new.
func TestNodesThatMeetAnEmptyDatabaseTakeTheSeatOneAfterTheOther(t *testing.T) {
	t.Parallel()
	dsn := dbtest.DSN(t, dbtest.KindPostgres)
	var mu sync.Mutex
	var holder int
	fences := map[int64]bool{}
	var nodes sync.WaitGroup
	for i := range 6 {
		nodes.Go(func() {
			for range 3 {
				seat, err := db.TakeSeat(t.Context(), db.SeatOptions{DSN: dsn, Home: fmt.Sprint("n", i), Name: fmt.Sprint(i), TTL: time.Minute, Waiting: func(db.Holder) {}})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if holder != 0 || fences[seat.Fence()] {
					t.Errorf("node %d has fence %d while %d has it", i+1, seat.Fence(), holder)
				}
				holder, fences[seat.Fence()] = i+1, true
				mu.Unlock()
				runtime.Gosched()
				mu.Lock()
				holder = 0
				mu.Unlock()
				if err := seat.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	nodes.Wait()
	if len(fences) != 18 {
		t.Errorf("%d fences", len(fences))
	}
}

// A standby of an older ombud is told while it waits, not when it is needed.
func TestASeatOfANewerSchemaIsRefused(t *testing.T) {
	t.Parallel()
	o := dbtest.Options(t, dbtest.KindPostgres)
	_ = dbtest.Open(t, db.WithMigrations(o, extra(t, "CREATE TABLE extra (\n  id TEXT PRIMARY KEY -- plain\n) /*strict*/;\n")))
	_, err := db.TakeSeat(t.Context(), db.SeatOptions{DSN: o.DSN, Home: "a", Name: "a", Waiting: func(db.Holder) {}})
	if !fault.Is(err, fault.Config) || fault.HintOf(err) == "" {
		t.Errorf("told %v", err)
	}
}

func TestAStoreThatIsOpenedToBeReadIsLeftAsItIs(t *testing.T) {
	t.Parallel()
	o := dbtest.Options(t, dbtest.KindPostgres)
	o.ReadOnly = true
	if _, err := db.Open(t.Context(), o); err == nil {
		t.Error("an empty database was opened to be read")
	}
	w := o
	w.ReadOnly = false
	a := sit(t, w, db.SeatOptions{Home: "a", Name: "a"})
	if err := put(t.Context(), a.d, "k"); err != nil {
		t.Fatal(err)
	}
	r := dbtest.Open(t, o)
	if !keys(t, r)["k"] {
		t.Error("it cannot be read")
	}
	if err := put(t.Context(), r, "r"); !fault.Is(err, fault.Conflict) {
		t.Errorf("told %v", err)
	}
}

// BenchmarkSeatedCommit measures what the proof of a seat costs a commit of one row.
func BenchmarkSeatedCommit(b *testing.B) {
	for _, seated := range []bool{false, true, false, true} {
		b.Run(fmt.Sprintf("seated=%v", seated), func(b *testing.B) {
			o := dbtest.Options(b, dbtest.KindPostgres)
			if seated {
				seat, err := db.TakeSeat(b.Context(), db.SeatOptions{DSN: o.DSN, Name: "bench"})
				if err != nil {
					b.Fatal(err)
				}
				defer func() { _ = seat.Release(context.Background()) }()
				o.Seat = seat
			}
			d := dbtest.Open(b, o)
			for i := 0; b.Loop(); i++ {
				if err := put(b.Context(), d, fmt.Sprint(i)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
