//go:build unix

package db_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
)

// The server is restarted again and again while callers write, some of them in the
// middle of their commit. Nobody is told "stored" of what is not there, or "not
// stored" of what is; and when it is back, work goes on by itself, with the same seat.
func TestAServerThatRestartsUnderLoadLosesAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	s := dbtest.NewServer(t)
	n := sit(t, db.Options{DSN: s.DSN()}, db.SeatOptions{Home: "a", Name: "a", TTL: 8 * time.Second})
	stop := make(chan struct{})
	var mu sync.Mutex
	told := map[string]error{}
	var callers sync.WaitGroup
	for c := range 6 {
		callers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				key := fmt.Sprintf("%d-%d", c, i)
				err := n.d.InTx(context.Background(), func(ctx context.Context, tx *db.Tx) error {
					if _, err := tx.Next(ctx, "restarts"); err != nil {
						return err
					}
					_, err := tx.Exec(ctx, "INSERT INTO meta (key, value) VALUES ($1, $2)", key, "v")
					return err
				})
				mu.Lock()
				told[key] = err
				mu.Unlock()
				if err != nil {
					<-time.After(5 * time.Millisecond)
				}
			}
		})
	}
	stored := func() (ok int) {
		mu.Lock()
		defer mu.Unlock()
		for _, err := range told {
			if err == nil {
				ok++
			}
		}
		return ok
	}
	goesOn := func() {
		t.Helper()
		before := stored()
		for limit := time.After(time.Minute); stored() < before+50; {
			select {
			case <-time.After(5 * time.Millisecond):
			case <-limit:
				t.Fatal("work does not go on")
			}
		}
	}
	goesOn()
	for _, fast := range []bool{true, false, true, false} {
		s.Restart(fast)
		goesOn()
	}
	close(stop)
	callers.Wait()
	got := keys(t, n.d)
	refused, unknown := 0, 0
	var there int64
	for key, err := range told {
		switch {
		case err == nil && !got[key]:
			t.Errorf("%s: told stored, and is not", key)
		case fault.Is(err, fault.Unknown):
			unknown++
		case err != nil && !fault.Is(err, fault.Unavailable):
			t.Errorf("%s: told %v", key, err)
		case err != nil && got[key]:
			t.Errorf("%s: told %v, and is stored", key, err)
		case err != nil:
			refused++
		}
		if got[key] {
			there++
		}
	}
	var counted int64
	if err := n.d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) (err error) {
		counted, err = tx.Next(ctx, "restarts")
		return err
	}); err != nil || counted != there+1 {
		t.Errorf("the counter is at %d for %d rows: %v", counted, there, err)
	}
	select {
	case <-n.seat.Lost():
		t.Error("the seat was lost")
	default:
	}
	t.Logf("%d stored, %d refused, %d unknown", there, refused, unknown)
}

// A crash of the server gives the number of a transaction out again of which nothing was
// on disk, and what is then done under that number is another's. So it says nothing about
// the batch that had it before.
func TestANumberThatACrashGivesOutAgainIsNotTakenForTheBatch(t *testing.T) {
	t.Parallel()
	s := dbtest.NewServer(t)
	n := sit(t, db.Options{DSN: s.DSN()}, db.SeatOptions{Home: "a", Name: "a"})
	// The server itself must not bring to disk what nobody has committed yet.
	spend(t, s.DSN(), "ALTER SYSTEM SET wal_writer_delay = '10s'", "SELECT pg_reload_conf()")
	again := 0
	for round := 0; again == 0 && round < 3; round++ {
		key := fmt.Sprint("crash", round)
		if err := put(t.Context(), n.d, "before "+key); err != nil {
			t.Fatal(err)
		}
		var number int64
		goOn, told := underWay(n.d, func(ctx context.Context, tx *db.Tx) error {
			if err := insert(key)(ctx, tx); err != nil {
				return err
			}
			return tx.QueryRow(ctx, "SELECT pg_current_xact_id()::text::bigint").Scan(&number)
		}, nothing)
		s.Restart(false)
		next := spend(t, s.DSN(), "SELECT 1")
		if next <= number {
			again++
		}
		for next < number {
			next = spend(t, s.DSN(), "SELECT 1")
		}
		goOn()
		if err := <-told; !fault.Is(err, fault.Unavailable) {
			t.Errorf("round %d, number %d: told %v", round, number, err)
		}
		if keys(t, n.d)[key] {
			t.Errorf("round %d: it is stored", round)
		}
	}
	if again == 0 {
		t.Error("no number was given out again, so nothing is shown")
	}
}

// What is not there on a replica may come to it yet.
func TestALostCommitIsNotLookedForOnAReplica(t *testing.T) {
	t.Parallel()
	s := dbtest.NewServer(t)
	n := sit(t, db.Options{DSN: s.DSN()}, db.SeatOptions{Home: "a", Name: "a"})
	goOn, told := underWay(n.d, insert("lost"), nothing)
	spend(t, s.DSN(), "DO $$ BEGIN EXECUTE format('COPY (SELECT 1) TO %L', current_setting('data_directory') || '/standby.signal'); END $$")
	s.Restart(true)
	goOn()
	select {
	case err := <-told:
		t.Fatalf("told %v by a replica", err)
	case <-time.After(500 * time.Millisecond):
	}
	conn, err := pgx.Connect(t.Context(), s.DSN())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	if _, err := conn.Exec(t.Context(), "SELECT pg_promote()"); err != nil {
		t.Fatal(err)
	}
	if err := <-told; !fault.Is(err, fault.Unavailable) {
		t.Errorf("told %v", err)
	}
}

// spend runs statements on the server and commits a transaction; it returns its number.
func spend(t *testing.T, dsn string, statements ...string) (number int64) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	for _, q := range statements {
		if _, err := conn.Exec(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	if err := conn.QueryRow(t.Context(), "SELECT pg_current_xact_id()::text::bigint").Scan(&number); err != nil {
		t.Fatal(err)
	}
	return number
}

// One that waits leaves the active the time to come back before it takes its place.
func TestAWaitingNodeDoesNotUseARestartOfTheServer(t *testing.T) {
	t.Parallel()
	s := dbtest.NewServer(t)
	a := sit(t, db.Options{DSN: s.DSN()}, db.SeatOptions{Home: "a", Name: "a", TTL: 2 * time.Second})
	ctx, cancel := context.WithCancel(t.Context())
	told := make(chan db.Holder, 8)
	ended := make(chan error, 1)
	go func() {
		_, err := db.TakeSeat(ctx, db.SeatOptions{DSN: s.DSN(), Home: "b", Name: "b", TTL: 20 * time.Second, Waiting: waiting(told)})
		ended <- err
	}()
	<-told
	expire(t, s.DSN()) // as if the server had been away for long
	s.Restart(true)
	for range 3 {
		if err := put(t.Context(), a.d, fmt.Sprint(time.Now().UnixNano())); err != nil {
			t.Error(err)
		}
		<-time.After(time.Second) // it renews meanwhile
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("the seat was taken")
	}
}
