package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/ombud-run/ombud/internal/fault"
)

// Snapshot is the store as it was at one commit, held for as long as it takes to
// read all of it while others write. It has a connection of its own, so that no
// reader waits for it.
//
// On SQLite the open read keeps the write-ahead log from being recycled: the log
// grows by what is written meanwhile and is cut back afterwards. A slow reader
// watches Stats.WALBytes. On PostgreSQL it keeps dead rows from being cleaned up.
type Snapshot struct {
	db   *DB
	pool *sql.DB
	s    *session

	Schema int64 // version of the schema
	Size   int64 // bytes: of SQLite's file, exactly; of PostgreSQL's tables, about
}

// Snapshot begins one. Close it.
func (d *DB) Snapshot(ctx context.Context) (_ *Snapshot, err error) {
	s := &Snapshot{db: d}
	defer func() {
		if err != nil {
			s.Close()
			err = d.dialect.classify(err)
		}
	}()
	if d.postgres {
		s.pool, err = openPostgres(d.dsn, map[string]string{"statement_timeout": "0", "idle_in_transaction_session_timeout": "0"})
	} else {
		s.pool, err = sql.Open("sqlite", sqliteDSN(d.path, true))
	}
	if err != nil {
		return nil, err
	}
	s.pool.SetMaxOpenConns(1)
	if s.s, err = newSession(ctx, s.pool, d.postgres); err != nil {
		return nil, err
	}
	if err := s.s.control(ctx, d.dialect.beginRead); err != nil {
		return nil, err
	}
	// The first read fixes what is seen; SQLite's BEGIN alone does not.
	if err := s.s.conn.QueryRowContext(ctx, "SELECT max(version_id) FROM goose_db_version").Scan(&s.Schema); err != nil {
		return nil, err
	}
	size := "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
	if d.postgres {
		size = `SELECT COALESCE(sum(pg_table_size(c.oid)), 0)::bigint FROM pg_class c
			WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace`
	}
	return s, s.s.conn.QueryRowContext(ctx, size).Scan(&s.Size)
}

// Close ends it.
func (s *Snapshot) Close() {
	if s.s != nil {
		s.s.discard()
		s.s = nil
	}
	if s.pool != nil {
		_ = s.pool.Close() // nothing was written
	}
}

// Read runs fn on the snapshot. It does not nest.
func (s *Snapshot) Read(ctx context.Context, fn func(ctx context.Context, q Q) error) (err error) {
	q := &snapshotReader{cursor{s: s.s, classify: func(err error) error {
		if ended := ctx.Err(); ended != nil {
			return ended
		}
		return s.db.dialect.classify(err)
	}}}
	defer func() {
		q.c.settleRows()
		if err == nil {
			err = q.c.err // fn swallowed it
		}
		q.c.end()
	}()
	return fn(ctx, q)
}

// Pages gives SQLite's file from its first byte to its last, a page at a time; the
// slice is good until fn returns. Written one after the other the pages are a
// database, without a log.
func (s *Snapshot) Pages(ctx context.Context, fn func(page []byte) error) error {
	if s.db.postgres {
		return fault.New(fault.Internal, "pages of a PostgreSQL store")
	}
	rows, err := s.s.conn.QueryContext(ctx, "SELECT data FROM sqlite_dbpage")
	if err != nil {
		return s.db.dialect.classify(err)
	}
	defer func() { _ = rows.Close() }() // Err below tells what went wrong
	var given int64
	for rows.Next() {
		var page sql.RawBytes
		if err := rows.Scan(&page); err != nil {
			return s.db.dialect.classify(err)
		}
		given += int64(len(page))
		if err := fn(page); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return s.db.dialect.classify(err)
	}
	if given != s.Size {
		return fault.New(fault.Verification, "the database file has %d bytes of pages and says it has %d", given, s.Size)
	}
	return nil
}

// Table is a table of the store. Columns are in the order of its rows.
type Table struct {
	Name    string   `json:"name"`
	Columns []string `json:"columns"`
}

// Tables are those of ombud, without the one that counts migrations.
func (s *Snapshot) Tables(ctx context.Context) ([]Table, error) {
	t, err := tablesOf(ctx, s.s.conn, s.db.postgres)
	return t, s.db.dialect.classify(err)
}

// querier is a connection or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

func tablesOf(ctx context.Context, q querier, postgres bool) (tables []Table, err error) {
	query := `SELECT t.name, c.name FROM sqlite_schema t JOIN pragma_table_info(t.name) c
		WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite%' AND t.name <> 'goose_db_version' ORDER BY t.name, c.cid`
	if postgres {
		query = `SELECT c.table_name, c.column_name FROM information_schema.columns c
			JOIN information_schema.tables t ON t.table_schema = c.table_schema AND t.table_name = c.table_name
			WHERE c.table_schema = current_schema() AND t.table_type = 'BASE TABLE' AND t.table_name NOT IN ('goose_db_version', '` + moveTable + `')
			ORDER BY c.table_name COLLATE "C", c.ordinal_position`
	}
	rows, err := q.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // Err below tells what went wrong
	for rows.Next() {
		var table, column string
		if err := rows.Scan(&table, &column); err != nil {
			return nil, err
		}
		if n := len(tables); n == 0 || tables[n-1].Name != table {
			tables = append(tables, Table{Name: table})
		}
		last := &tables[len(tables)-1]
		last.Columns = append(last.Columns, column)
	}
	return tables, rows.Err()
}

// Rows gives every row of a table: nil, int64, string and []byte, which are all the
// types there are. The row is good until fn returns.
func (s *Snapshot) Rows(ctx context.Context, t Table, fn func(row []any) error) error {
	rows, err := s.s.conn.QueryContext(ctx, "SELECT "+quoted(t.Columns)+" FROM "+quoted([]string{t.Name})) //nolint:gosec // names from the catalogue, quoted
	if err != nil {
		return s.db.dialect.classify(err)
	}
	defer func() { _ = rows.Close() }() // Err below tells what went wrong
	row, into := make([]any, len(t.Columns)), make([]any, len(t.Columns))
	for i := range row {
		into[i] = &row[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return s.db.dialect.classify(err)
		}
		for i, v := range row {
			if b, is := v.([]byte); is && b == nil { // how SQLite's driver gives an empty one, and not how it takes it
				row[i] = []byte{}
			}
		}
		if err := fn(row); err != nil {
			return err
		}
	}
	return s.db.dialect.classify(rows.Err())
}

func quoted(names []string) string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = `"` + strings.ReplaceAll(n, `"`, `""`) + `"`
	}
	return strings.Join(out, ", ")
}

// Load makes an empty store of the given schema and lets fill put rows into it, all
// in one transaction: after an error or a kill it is as empty as before, except class
// Unknown: the connection to PostgreSQL was lost while it committed. On PostgreSQL it
// refuses, as Conflict, a database that holds anything.
func Load(ctx context.Context, o Options, schema int64, fill func(ctx context.Context, l *Loader) error) (err error) {
	steps, err := Migrations()
	if err != nil {
		return err
	}
	if newest := steps[len(steps)-1].Version; schema > newest || schema < 1 {
		return newerSchema(schema, newest)
	}
	for steps[len(steps)-1].Version > schema {
		steps = steps[:len(steps)-1]
	}
	o.migrations = steps
	d := newDB(o)
	defer d.release()
	if err := d.openPools(o.DSN); err != nil {
		return err
	}
	if err := d.checkStore(ctx); err != nil {
		return d.dialect.classify(err)
	}
	if err := d.migrate(ctx, o.DSN, o.BackupDir); err != nil {
		return d.dialect.classify(err)
	}
	return d.dialect.classify(d.load(ctx, o.DSN, fill))
}

func (d *DB) load(ctx context.Context, dsn string, fill func(ctx context.Context, l *Loader) error) (err error) {
	pool := d.writePool
	if d.postgres {
		if pool, err = openPostgres(dsn, map[string]string{"statement_timeout": "0", "idle_in_transaction_session_timeout": "0"}); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, pool.Close()) }()
	}
	l := &Loader{db: d, columns: map[string][]string{}}
	if l.s, err = newSession(ctx, pool, d.postgres); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			l.s.discard() // rolls back
			return
		}
		err = l.s.close()
	}()
	begin := beginSQLite
	if d.postgres {
		begin = "BEGIN; LOCK TABLE heads IN ACCESS EXCLUSIVE MODE"
	}
	if err := l.s.control(ctx, begin); err != nil {
		return err
	}
	if err := l.empty(ctx); err != nil {
		return err
	}
	if err := fill(ctx, l); err != nil {
		return err
	}
	if err := l.s.commit(ctx, ""); err != nil {
		if d.postgres && !l.s.refused(err) {
			return fault.New(fault.Unknown, "commit: the connection was lost and the outcome is unknown: %w", d.dialect.classify(err))
		}
		return err
	}
	return nil
}

// Loader puts rows into a store that is being made.
type Loader struct {
	db      *DB
	s       *session
	columns map[string][]string // of each table
}

// empty makes sure that nothing is there but what the migrations put there, and
// removes that.
func (l *Loader) empty(ctx context.Context) error {
	tables, err := tablesOf(ctx, l.s.conn, l.db.postgres)
	if err != nil {
		return err
	}
	for _, t := range tables {
		l.columns[t.Name] = t.Columns
		var n int64
		query := "SELECT count(*) FROM (SELECT 1 FROM " + quoted([]string{t.Name}) + " LIMIT 2) AS rows_of_it"
		if err := l.s.conn.QueryRowContext(ctx, query).Scan(&n); err != nil {
			return err
		}
		if n > 1 || n == 1 && t.Name != "heads" {
			return fault.New(fault.Conflict, "the database is not empty: it has rows in table %s", t.Name).
				WithHint("make an empty database and let store name it")
		}
		if n == 1 {
			if _, err := l.s.conn.ExecContext(ctx, "DELETE FROM "+quoted([]string{t.Name})); err != nil { //nolint:gosec // names from the catalogue, quoted
				return err
			}
		}
	}
	return nil
}

// Rows puts rows into a table.
func (l *Loader) Rows(ctx context.Context, t Table, rows [][]any) error {
	known := l.columns[t.Name]
	if len(known) == 0 {
		return fault.New(fault.Verification, "this ombud knows no table %q in that schema", t.Name)
	}
	for _, c := range t.Columns {
		if !slices.Contains(known, c) {
			return fault.New(fault.Verification, "this ombud knows no column %q of table %q in that schema", c, t.Name)
		}
	}
	if l.db.postgres {
		return l.copy(ctx, t, rows)
	}
	marks := make([]string, len(t.Columns))
	for i := range marks {
		marks[i] = fmt.Sprintf("$%d", i+1)
	}
	insert, err := l.s.prepare(ctx, "INSERT INTO "+quoted([]string{t.Name})+" ("+quoted(t.Columns)+") VALUES ("+strings.Join(marks, ", ")+")")
	if err != nil {
		return err
	}
	for _, row := range rows {
		if _, err := insert.ExecContext(ctx, row...); err != nil {
			return err
		}
	}
	return nil
}

func (l *Loader) copy(ctx context.Context, t Table, rows [][]any) (err error) {
	raw := l.s.conn.Raw(func(dc any) error {
		_, err = dc.(*stdlib.Conn).Conn().CopyFrom(ctx, pgx.Identifier{t.Name}, t.Columns, pgx.CopyFromRows(rows))
		return nil
	})
	return errors.Join(err, raw)
}

// Sound lets SQLite check its whole file, the indexes too; see Integrity.
func (d *DB) Sound(ctx context.Context) error { return d.integrity(ctx, "PRAGMA integrity_check(1)") }

// Lock takes the lock of an instance for work without a daemon on files that no
// store is open on. Running if a daemon has it.
func Lock(path string) (unlock func(), err error) {
	l, err := lockFile(path)
	if err != nil {
		return nil, err
	}
	return l.unlock, nil
}

// SyncFile flushes a file and the directory that names it.
func SyncFile(path string) error { return syncFile(path) }

// SyncDir flushes a directory, so that its names are on disk.
func SyncDir(path string) error { return syncFile(filepath.Join(path, ".")) }

// NewestSchema is the schema this ombud works with.
func NewestSchema() (int64, error) {
	steps, err := Migrations()
	if err != nil {
		return 0, err
	}
	return steps[len(steps)-1].Version, nil
}

func newerSchema(have, newest int64) error {
	return fault.New(fault.Config, "the store has schema %d, this ombud knows up to %d", have, newest).
		WithHint("install the ombud that wrote it, or a newer one")
}
