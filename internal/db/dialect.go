package db

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"

	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"

	"github.com/ombud-run/ombud/internal/fault"
)

// dialect is all that differs between the two stores. Everything else is one SQL
// text for both.
type dialect struct {
	lockRow   string // suffix of a SELECT that must hold its row to the commit
	claim     string // suffix of the SELECT of rows a node claims
	beginRead string
	classify  func(error) error
}

var sqliteDialect = dialect{
	beginRead: "BEGIN DEFERRED",
	classify:  classifySQLite,
}

var postgresDialect = dialect{
	lockRow:   " FOR UPDATE",
	claim:     " FOR UPDATE SKIP LOCKED",
	beginRead: "BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY",
	classify:  classifyPostgres,
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

	sqliteIOErrFsync    = sqliteIOErr | 4<<8
	sqliteIOErrDirFsync = sqliteIOErr | 5<<8
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
	if e, ok := errors.AsType[*pgconn.ConnectError](err); ok && !errors.Is(err, context.Canceled) {
		return unconnected(e)
	}
	e, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || len(e.Code) != 5 {
		return classifyAny(err)
	}
	switch e.Code {
	case "55P03": // lock not available
		return fault.New(fault.Unavailable, "store: %w", err)
	case "XX001", "XX002": // data, index corrupted
		return fault.New(fault.Verification, "the database is damaged: %w", err).
			WithHint("stop every daemon that uses it and restore a backup")
	}
	switch e.Code[:2] {
	case "23": // integrity constraint violation
		return fault.New(fault.Conflict, "store: %w", err)
	case "08", "25", "40", "53", "57", "58": // connection, state, rollback, resources, operator, system
		return fault.New(fault.Unavailable, "store: %w", err)
	case "28": // authorisation
		return fault.New(fault.Config, "store: %w", err)
	}
	return classifyAny(err)
}

// classifyAny knows what both stores may return: ours, a context's, the network's.
func classifyAny(err error) error {
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return err
	}
	if errors.Is(err, context.Canceled) {
		return err
	}
	_, network := errors.AsType[net.Error](err)
	switch {
	case network, pgconn.Timeout(err), pgconn.SafeToRetry(err),
		errors.Is(err, driver.ErrBadConn), errors.Is(err, sql.ErrConnDone),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
		return fault.New(fault.Unavailable, "store: %w", err)
	}
	return err
}
