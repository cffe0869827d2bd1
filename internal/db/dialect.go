package db

import (
	"context"
	"database/sql/driver"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"

	"github.com/ombud-run/ombud/internal/fault"
)

// dialect is all that differs between the two stores. Everything else is one SQL
// text for both.
type dialect struct {
	lockRow    string // suffix of a SELECT that must hold its row to the commit
	claim      string // suffix of the SELECT of rows a node claims
	beginWrite string
	beginRead  string
	classify   func(error) error
}

var sqliteDialect = dialect{
	beginWrite: "BEGIN IMMEDIATE",
	beginRead:  "BEGIN DEFERRED",
	classify:   classifySQLite,
}

var postgresDialect = dialect{
	lockRow:    " FOR UPDATE",
	claim:      " FOR UPDATE SKIP LOCKED",
	beginWrite: "BEGIN",
	beginRead:  "BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY",
	classify:   classifyPostgres,
}

// ClaimSuffix ends the inner SELECT of a statement by which a node claims rows:
// UPDATE … WHERE id IN (SELECT … LIMIT k + ClaimSuffix) RETURNING ….
func (d *DB) ClaimSuffix() string { return d.dialect.claim }

// SQLite primary result codes we tell apart.
const (
	sqliteBusy       = 5
	sqliteNoMem      = 7
	sqliteReadOnly   = 8
	sqliteInterrupt  = 9
	sqliteIOErr      = 10
	sqliteCorrupt    = 11
	sqliteFull       = 13
	sqliteCantOpen   = 14
	sqliteConstraint = 19
	sqliteNotADB     = 26
)

func classifySQLite(err error) error {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		switch e.Code() & 0xff {
		case sqliteConstraint:
			return fault.New(fault.Conflict, "store: %w", err)
		case sqliteCorrupt, sqliteNotADB:
			return fault.New(fault.Verification, "the database file is damaged: %w", err).
				WithHint("stop the daemon, keep the damaged file, and restore a backup in its place")
		case sqliteFull, sqliteIOErr, sqliteBusy, sqliteNoMem, sqliteCantOpen, sqliteReadOnly, sqliteInterrupt:
			return fault.New(fault.Unavailable, "store: %w", err)
		}
	}
	return classifyAny(err)
}

// classifyPostgres goes by SQLSTATE classes, never by message text.
func classifyPostgres(err error) error {
	e, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return classifyAny(err)
	}
	switch {
	case e.Code[:2] == "23": // integrity constraint violation
		return fault.New(fault.Conflict, "store: %w", err)
	case e.Code[:2] == "53", e.Code[:2] == "57", e.Code[:2] == "08", e.Code[:2] == "40", e.Code[:2] == "25", e.Code == "55P03":
		return fault.New(fault.Unavailable, "store: %w", err)
	case e.Code == "XX001", e.Code == "XX002":
		return fault.New(fault.Verification, "the database is damaged: %w", err)
	case e.Code[:2] == "28", e.Code == "3D000":
		return fault.New(fault.Config, "store: %w", err)
	}
	return classifyAny(err)
}

func classifyAny(err error) error {
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return err
	}
	_, connect := errors.AsType[*pgconn.ConnectError](err)
	if connect || errors.Is(err, driver.ErrBadConn) || pgconn.Timeout(err) || pgconn.SafeToRetry(err) {
		return fault.New(fault.Unavailable, "store: %w", err)
	}
	return err
}

// begin opens the writer's transaction. On PostgreSQL it takes the row of the
// log's counter at once: see the package comment on order.
func (d *DB) begin() (*batch, error) {
	ctx := context.Background()
	b := &batch{db: d, now: d.clock()}
	for attempt := 0; ; attempt++ {
		s, err := d.writerSession(ctx)
		if err != nil {
			return nil, d.dialect.classify(err)
		}
		b.s = s
		if err = s.control(ctx, d.dialect.beginWrite); err == nil && d.Postgres() {
			err = s.conn.QueryRowContext(ctx, `SELECT pg_current_xact_id()::text FROM heads WHERE name = 'log' FOR UPDATE`).Scan(&b.xid)
		}
		if err == nil {
			return b, nil
		}
		d.full.observe(d.dialect.classify(err))
		d.dropWriter()
		if attempt > 0 {
			return nil, d.dialect.classify(err)
		}
	}
}

// rollback ends a transaction that will not be committed. If even that fails, the
// connection goes, and the store rolls back when it notices.
func (d *DB) rollback(b *batch) {
	err := b.s.control(context.Background(), "ROLLBACK")
	if err != nil && d.Postgres() {
		d.dropWriter()
	}
	// On SQLite the error says that no transaction is open: it rolled itself back.
}

// commit commits. On PostgreSQL a connection lost in this very moment is settled
// by asking the server what became of the transaction.
func (d *DB) commit(ctx context.Context, b *batch) error {
	err := b.s.control(ctx, "COMMIT")
	if err == nil {
		return nil
	}
	err = d.dialect.classify(err)
	d.full.observe(err)
	if !d.Postgres() {
		d.rollback(b)
		return fault.New(fault.Unavailable, "commit: %w", err)
	}
	if _, answered := errors.AsType[*pgconn.PgError](err); answered && !fault.Is(err, fault.Unavailable) {
		d.rollback(b)
		return fault.New(fault.Unavailable, "commit: %w", err)
	}
	d.dropWriter()
	return d.settle(ctx, b.xid, err)
}

// settleTries bounds how long a lost commit is asked about, about six seconds.
const settleTries = 12

func (d *DB) settle(ctx context.Context, xid string, cause error) error {
	for i := range settleTries {
		if i > 0 {
			select {
			case <-time.After(500 * time.Millisecond):
			case <-d.abandon:
				i = settleTries
			}
		}
		s, err := d.writerSession(ctx)
		if err != nil {
			continue
		}
		var status *string
		if err := s.conn.QueryRowContext(ctx, `SELECT pg_xact_status($1::xid8)`, xid).Scan(&status); err != nil {
			d.dropWriter()
			continue
		}
		if status == nil {
			break // too old to be known
		}
		switch *status {
		case "committed":
			return nil
		case "aborted":
			return fault.New(fault.Unavailable, "commit: the connection was lost and nothing was stored: %w", cause)
		}
	}
	return fault.New(fault.Unknown, "commit: the connection was lost and the outcome is unknown: %w", cause)
}
