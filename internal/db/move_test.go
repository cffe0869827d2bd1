package db_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
)

// moving is a store on SQLite with rows of every sort, and where it is to go.
type moving struct {
	t    *testing.T
	from *db.DB
	to   db.Options
}

func setupMove(t *testing.T) *moving {
	t.Helper()
	m := &moving{t, dbtest.SQLite(t), dbtest.Options(t, dbtest.KindPostgres)}
	m.write(func(ctx context.Context, tx *db.Tx) error {
		for i := range 40 { // some pieces
			entry := strings.Repeat("é", 150_000)
			if _, err := tx.Exec(ctx, "INSERT INTO audit (chain, seq, at, entry, hash, mac) VALUES ($1, $2, $3, $4, $5, $6)",
				"Zürich", i, int64(-i)<<40, entry, []byte{}, bytes.Repeat([]byte{byte(i), 0, 255}, 100_000)); err != nil {
				return err
			}
		}
		for _, name := range []string{"a", "Z", "ä", "日本", "_"} {
			if _, err := tx.Exec(ctx, "INSERT INTO meta (key, value) VALUES ($1, $2)", name, strings.Repeat(name, 9)); err != nil {
				return err
			}
			if _, err := tx.Next(ctx, name); err != nil {
				return err
			}
		}
		for range 7 {
			if _, err := tx.Next(ctx, "lease.fence"); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, "INSERT INTO leases (name, owner, fence, expires) VALUES ('l', 'o', 7, 8)")
		return err
	})
	return m
}

func (m *moving) write(fn func(context.Context, *db.Tx) error) {
	m.t.Helper()
	if err := m.from.InTx(m.t.Context(), fn); err != nil {
		m.t.Fatal(err)
	}
}

func (m *moving) seat() *db.Seat {
	m.t.Helper()
	seat, err := db.TakeSeat(m.t.Context(), db.SeatOptions{DSN: m.to.DSN, Home: "mover", Name: "the move", TTL: time.Minute, Moving: true})
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _ = seat.Release(context.Background()) })
	return seat
}

func (m *moving) begin() {
	m.t.Helper()
	if finished, err := db.BeginMove(m.t.Context(), m.to.DSN, "source"); err != nil || finished {
		m.t.Fatal(finished, err)
	}
}

func quiet(string, int64) {}

func TestAMoveGoesOnWhereItWasCutOff(t *testing.T) {
	t.Parallel()
	m := setupMove(t)
	var copied []string
	for cuts := 1; ; cuts++ {
		m.begin()
		seat := m.seat()
		ctx, cancel := context.WithCancel(t.Context())
		pieces := 0
		tables, err := m.from.CopyTo(ctx, seat, func(table string, rows int64) {
			copied = append(copied, fmt.Sprint(table, " ", rows))
			if pieces++; pieces == 4 {
				cancel()
			}
		})
		cancel()
		if err := seat.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err == nil {
			t.Logf("moved in %d attempts: %d tables", cuts, len(tables))
			break
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if _, err := db.Open(t.Context(), m.to); !fault.Is(err, fault.Config) {
			t.Errorf("a database that is half moved was opened: %v", err)
		}
		if _, err := db.TakeSeat(t.Context(), db.SeatOptions{DSN: m.to.DSN, Home: "daemon", Name: "d"}); !fault.Is(err, fault.Config) {
			t.Errorf("a daemon starts on it: %v", err)
		}
	}
	seen := map[string]bool{}
	for _, c := range copied {
		if seen[c] {
			t.Errorf("copied twice: %s", c)
		}
		seen[c] = true
	}
	// What was written since is noticed.
	m.write(func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE meta SET value = 'later' WHERE key = 'Z'")
		return err
	})
	seat := m.seat()
	if _, err := m.from.CopyTo(t.Context(), seat, quiet); err != nil {
		t.Fatal(err)
	}
	if err := m.from.FinishMove(t.Context(), seat, "source"); err != nil {
		t.Fatal(err)
	}
	if finished, err := db.BeginMove(t.Context(), m.to.DSN, "source"); err != nil || !finished {
		t.Errorf("begun again: %v, %v", finished, err)
	}
	if _, err := db.BeginMove(t.Context(), m.to.DSN, "another"); !fault.Is(err, fault.Conflict) {
		t.Errorf("another store was moved over it: %v", err)
	}
	fence := seat.Fence()
	if err := seat.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	n := sit(t, m.to, db.SeatOptions{Home: "d", Name: "d"})
	if n.seat.Fence() <= max(fence, 7) {
		t.Errorf("fence %d after %d and 7", n.seat.Fence(), fence)
	}
	var later string
	var next, rows int64
	err := n.d.Read(t.Context(), func(ctx context.Context, q db.Q) (err error) {
		if later, err = db.Meta(ctx, q, "Z"); err != nil {
			return err
		}
		return q.QueryRow(ctx, "SELECT count(*) FROM audit WHERE length(mac) = 300000 AND length(hash) = 0").Scan(&rows)
	})
	if err == nil {
		err = n.d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) (err error) {
			next, err = tx.Next(ctx, "日本")
			return err
		})
	}
	if err != nil || later != "later" || next != 2 || rows != 40 {
		t.Errorf("%q, %d, %d rows: %v", later, next, rows, err)
	}
}

// The tables are made one migration after the other.
func TestAMoveGoesOnWhereItsTablesWereBeingMade(t *testing.T) {
	t.Parallel()
	m := setupMove(t)
	steps, err := db.Migrations()
	if err != nil {
		t.Fatal(err)
	}
	m.begin()
	half := db.WithMigrations(m.to, steps[:len(steps)/2])
	half.Moving = true
	d, err := db.Open(t.Context(), half)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	m.begin()
	seat := m.seat()
	if _, err := m.from.CopyTo(t.Context(), seat, quiet); err != nil {
		t.Fatal(err)
	}
	if err := m.from.FinishMove(t.Context(), seat, "source"); err != nil {
		t.Fatal(err)
	}
}

func TestAMoveIsRefusedByADatabaseThatHoldsAnything(t *testing.T) {
	t.Parallel()
	for _, there := range []string{"CREATE TABLE mine (n INT)", "CREATE VIEW mine AS SELECT 1"} {
		dsn := dbtest.PostgresDSN(t)
		conn, err := pgx.Connect(t.Context(), dsn)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(t.Context(), there); err != nil {
			t.Fatal(err)
		}
		_ = conn.Close(t.Context())
		if _, err := db.BeginMove(t.Context(), dsn, "source"); !fault.Is(err, fault.Conflict) {
			t.Errorf("%s: %v", there, err)
		}
	}
	o := dbtest.Options(t, dbtest.KindPostgres)
	_ = dbtest.Open(t, o)
	if _, err := db.BeginMove(t.Context(), o.DSN, "source"); !fault.Is(err, fault.Conflict) {
		t.Errorf("a store of another: %v", err)
	}
}

func TestAMoveThatWasReplacedWritesNothing(t *testing.T) {
	t.Parallel()
	m := setupMove(t)
	m.begin()
	seat := m.seat()
	expire(t, m.to.DSN)
	other := m.seat() // of the same home
	if _, err := m.from.CopyTo(t.Context(), seat, quiet); !errors.Is(err, db.ErrReplaced) {
		t.Errorf("told %v", err)
	}
	if _, err := m.from.CopyTo(t.Context(), other, quiet); err != nil {
		t.Error(err)
	}
}
