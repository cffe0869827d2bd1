package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/ombud-run/ombud/internal/failpoint"
	"github.com/ombud-run/ombud/internal/fault"
)

// Moving a store from SQLite to PostgreSQL:
//
//	empty ── BeginMove ──▶ begun ── CopyTo, as often as it takes ──▶ copied ── FinishMove ──▶ a store
//
// A database that is begun has the table ombud_move: how many rows of which table
// are there. The rows of a piece and that number are one commit, so whatever ends the
// process, the next goes on behind the last piece. Until FinishMove drops the table no
// daemon starts on it. The source is only read.
const (
	moveTable = "ombud_move"
	movedKey  = "store.moved" // of meta: where the rows came from
	leftKey   = "store.left"  // of meta of the source: where they are now

	movePiece = 4 << 20 // bytes of rows in a commit
)

var errHalfMoved = fault.New(fault.Config, "a store is being moved to this database and not all of it is there").
	WithHint("go on with ombud store migrate where the store is")

// ownRows are rows that belong to a store and are not moved: the counter of fences is
// raised at the end, the others are of the target itself.
func ownRows(table string) string {
	switch table {
	case "heads":
		return "name NOT IN ('lease.fence', '" + markName + "')"
	case "leases":
		return "name <> '" + seatName + "'"
	case "meta":
		return "key NOT IN ('" + seatKey + "', '" + movedKey + "', '" + leftKey + "')"
	}
	return "1 = 1"
}

// BeginMove makes an empty database one that a store is being moved to. finished tells
// that this source was moved there already. Anything else that is there is a Conflict.
func BeginMove(ctx context.Context, dsn, source string) (finished bool, err error) {
	conn, err := connectPlain(ctx, dsn)
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) (err error) {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", migrationLock); err != nil {
			return err
		}
		finished, err = beginMove(ctx, tx, source)
		return err
	})
	return finished, classifyPostgres(err)
}

func beginMove(ctx context.Context, tx pgx.Tx, source string) (finished bool, err error) {
	rows, err := tx.Query(ctx, "SELECT table_name::text FROM information_schema.tables WHERE table_schema = current_schema()")
	if err != nil {
		return false, err
	}
	there, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return false, err
	}
	var from string
	switch {
	case len(there) == 0:
		if _, err := tx.Exec(ctx, "CREATE TABLE "+moveTable+" (name TEXT PRIMARY KEY, rows BIGINT NOT NULL, note TEXT NOT NULL)"); err != nil {
			return false, err
		}
		_, err := tx.Exec(ctx, "INSERT INTO "+moveTable+" (name, rows, note) VALUES ('', 0, $1)", source)
		return false, err
	case slices.Contains(there, moveTable):
		err = tx.QueryRow(ctx, "SELECT note FROM "+moveTable+" WHERE name = ''").Scan(&from)
	case slices.Contains(there, "meta") && slices.Contains(there, "heads"):
		finished = true
		err = tx.QueryRow(ctx, "SELECT value FROM meta WHERE key = '"+movedKey+"'").Scan(&from)
	}
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return false, err
	}
	if from != source {
		return false, fault.New(fault.Conflict, "the database is not empty: it has table %s", there[0]).
			WithHint("make an empty database for this store")
	}
	return finished, nil
}

// connectPlain opens a connection for one piece of work.
func connectPlain(ctx context.Context, dsn string) (*pgx.Conn, error) {
	cfg, err := postgresConfig(dsn)
	if err != nil {
		return nil, err
	}
	cfg.RuntimeParams["statement_timeout"] = "0"
	conn, err := pgx.ConnectConfig(ctx, cfg)
	return conn, classifyPostgres(err)
}

// MovedTable is one table that was moved and compared.
type MovedTable struct {
	Name   string
	Rows   int64
	SHA256 []byte // of all rows in the order of the key
}

// CopyTo copies what is not there yet of an open store on SQLite to a database that
// BeginMove made ready and that seat is of, then compares every table by its count and
// the hash of its rows. A table that differs, since the source was written to between
// two attempts, is copied anew, once. Nobody may write to d meanwhile.
func (d *DB) CopyTo(ctx context.Context, seat *Seat, report func(table string, rows int64)) (out []MovedTable, err error) {
	m := &mover{seat: seat, report: report}
	if m.snap, err = d.Snapshot(ctx); err != nil {
		return nil, err
	}
	defer m.snap.Close()
	if m.conn, err = connectPlain(ctx, seat.o.DSN); err != nil {
		return nil, err
	}
	defer func() { _ = m.conn.Close(context.WithoutCancel(ctx)) }()
	tables, err := m.snap.Tables(ctx)
	if err != nil {
		return nil, err
	}
	for _, again := range []bool{false, true} {
		for _, t := range tables {
			if err := m.copy(ctx, t); err != nil {
				return nil, fmt.Errorf("move table %s: %w", t.Name, classifyPostgres(d.dialect.classify(err)))
			}
		}
		var differ []string
		if out, differ, err = m.compare(ctx, tables); err != nil {
			return nil, classifyPostgres(d.dialect.classify(err))
		}
		switch {
		case len(differ) == 0:
			return out, nil
		case again:
			return nil, fault.New(fault.Verification, "the tables %s are not what they are in the source", strings.Join(differ, ", ")).
				WithHint("nothing was switched; make a new, empty database and try again")
		}
		for _, name := range differ {
			if err := m.clear(ctx, name); err != nil {
				return nil, classifyPostgres(err)
			}
		}
	}
	return out, nil
}

// FinishMove makes the copy a store: fences go on above those of the source, and it
// says where it came from. seat is still held.
func (d *DB) FinishMove(ctx context.Context, seat *Seat, source string) error {
	var fence int64
	err := d.Read(ctx, func(ctx context.Context, q Q) error {
		err := q.QueryRow(ctx, "SELECT value FROM heads WHERE name = 'lease.fence'").Scan(&fence)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	conn, err := connectPlain(ctx, seat.o.DSN)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	m := &mover{seat: seat, conn: conn}
	err = m.inTx(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "UPDATE heads SET value = GREATEST(value, $1) WHERE name = 'lease.fence'", fence); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "INSERT INTO meta (key, value) VALUES ('"+movedKey+"', $1) ON CONFLICT (key) DO UPDATE SET value = excluded.value", source); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "DROP TABLE "+moveTable)
		return err
	})
	if err == nil {
		failpoint.Hit("move.finished")
	}
	return classifyPostgres(err)
}

// Leave marks an open store on SQLite as one whose rows are worked with elsewhere since
// they were moved; to is shown to people. An empty one takes the mark away.
func (d *DB) Leave(ctx context.Context, to string) error {
	return d.InTx(ctx, func(ctx context.Context, tx *Tx) error {
		if to == "" {
			_, err := tx.Exec(ctx, "DELETE FROM meta WHERE key = $1", leftKey)
			return err
		}
		return SetMeta(ctx, tx, leftKey, to)
	})
}

// LeftFor tells where the rows of an open store are worked with since they were moved;
// "" is here.
func (d *DB) LeftFor(ctx context.Context) (to string, err error) {
	if d.postgres {
		return "", nil
	}
	err = d.Read(ctx, func(ctx context.Context, q Q) error {
		to, err = Meta(ctx, q, leftKey)
		return err
	})
	return to, err
}
