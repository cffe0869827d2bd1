package db

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/ombud-run/ombud/internal/fault"
)

// maxStatements bounds the prepared statements of one connection. The program
// has a few hundred texts; more would be texts built from data, a defect.
const maxStatements = 1024

// session is one connection with its prepared statements.
type session struct {
	conn     *sql.Conn
	postgres bool
	stmts    map[string]*sql.Stmt
	controls map[string]*sql.Stmt // SQLite only: BEGIN, SAVEPOINT … are a handful of texts
	queue    []queued             // PostgreSQL only: to be sent with what comes next
	mark     int                  // how much of queue is of callers before the present one; or nobody
	saved    bool                 // the server has the savepoint "caller"
	foreign  bool                 // what failed last was queued by a caller before
	pid      string               // of the server's process, PostgreSQL's writer only
	texts    map[string]string    // of queued statements, as they are sent when they must change a row
}

func newSession(ctx context.Context, pool *sql.DB, postgres bool) (*session, error) {
	conn, err := pool.Conn(ctx)
	if err != nil {
		return nil, err
	}
	return &session{conn: conn, postgres: postgres, stmts: map[string]*sql.Stmt{}, controls: map[string]*sql.Stmt{}, texts: map[string]string{}, mark: nobody}, nil
}

func (s *session) prepare(ctx context.Context, query string) (*sql.Stmt, error) {
	if st, ok := s.stmts[query]; ok {
		return st, nil
	}
	if isControl(query) {
		return nil, fault.New(fault.Internal, "the statement %q belongs to the store, not to a transaction's function", query)
	}
	if len(s.stmts) >= maxStatements {
		closeAll(s.stmts)
	}
	st, err := s.conn.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	s.stmts[query] = st
	return st, nil
}

// isControl reports whether a statement would end, open or change a transaction
// or its connection behind the writer's back.
func isControl(query string) bool {
	fields := strings.Fields(query)
	if len(fields) == 0 {
		return false
	}
	switch strings.ToUpper(strings.TrimRight(fields[0], ";")) {
	case "BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT", "SAVEPOINT", "RELEASE", "ATTACH", "DETACH", "PRAGMA", "SET", "VACUUM":
		return true
	}
	return false
}

func (s *session) exec(ctx context.Context, query string, args ...any) (int64, error) {
	if err := s.drain(ctx); err != nil {
		return 0, err
	}
	st, err := s.prepare(ctx, query)
	if err != nil {
		return 0, err
	}
	res, err := st.ExecContext(ctx, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// control runs statements that steer the transaction; on PostgreSQL all of them
// in one round trip.
func (s *session) control(ctx context.Context, queries ...string) error {
	if s.postgres {
		if s.forget(queries[0]) {
			return nil
		}
		if len(s.queue) > 0 || s.mark != nobody {
			return s.drain(ctx, queries...)
		}
		_, err := s.simple(ctx, strings.Join(queries, ";"))
		return err
	}
	for _, query := range queries {
		st, ok := s.controls[query]
		if !ok {
			var err error
			if st, err = s.conn.PrepareContext(ctx, query); err != nil {
				return err
			}
			s.controls[query] = st
		}
		if _, err := st.ExecContext(ctx); err != nil {
			return err
		}
	}
	return nil
}

// simple runs statements by PostgreSQL's simple protocol and returns what each
// of them answered.
func (s *session) simple(ctx context.Context, query string) (results []*pgconn.Result, err error) {
	raw := s.conn.Raw(func(dc any) error {
		results, err = dc.(*stdlib.Conn).Conn().PgConn().Exec(ctx, query).ReadAll()
		return nil
	})
	return results, errors.Join(err, raw)
}

// commit commits, on PostgreSQL behind what is queued, or behind one statement that takes
// no values, in one round trip. PostgreSQL answers the COMMIT of a transaction that failed
// before with "ROLLBACK" and no error, which must not pass for success.
func (s *session) commit(ctx context.Context, last string) error {
	if !s.postgres {
		return s.control(ctx, "COMMIT")
	}
	if s.mark = nobody; len(s.queue) > 0 {
		return s.drain(ctx, "COMMIT")
	}
	results, err := s.simple(ctx, last+"COMMIT")
	if err != nil {
		return err
	}
	if tag := results[len(results)-1].CommandTag.String(); tag != "COMMIT" {
		return errRolledBack
	}
	return nil
}

// refused reports whether an error of commit is PostgreSQL's word that nothing was
// stored; else the answer was lost.
func (s *session) refused(err error) bool {
	_, answered := errors.AsType[*pgconn.PgError](err)
	return errors.Is(err, errRolledBack) || answered && !s.broken()
}

var errRolledBack = errors.New("the server rolled the transaction back")

// broken reports whether the connection is gone. SQLite's never is.
func (s *session) broken() bool {
	if !s.postgres {
		return false
	}
	closed := false
	err := s.conn.Raw(func(dc any) error {
		closed = dc.(*stdlib.Conn).Conn().IsClosed()
		return nil
	})
	return closed || err != nil
}

func closeAll(stmts map[string]*sql.Stmt) {
	for _, st := range stmts {
		_ = st.Close() // the connection frees them at the latest
	}
	clear(stmts)
}

func (s *session) close() error {
	closeAll(s.stmts)
	closeAll(s.controls)
	return s.conn.Close()
}

// discard closes a connection that cannot be trusted any more, so that the pool
// does not hand it out again. On SQLite the statements must go before their
// connection; on PostgreSQL each would be one more question to a server that may
// not answer, and goes with the connection.
func (s *session) discard() {
	if !s.postgres {
		closeAll(s.stmts)
		closeAll(s.controls)
	}
	_ = s.conn.Raw(func(any) error { return errBroken }) // makes the pool throw it away
	_ = s.close()                                        // reports just that
}

// cursor runs the statements of one transaction function or one read. It keeps
// the two stores alike where they differ most: after an error nothing more is
// run (PostgreSQL would refuse, SQLite would go on, perhaps without a
// transaction), and only one query is open at a time (PostgreSQL's connection
// is busy until then).
type cursor struct {
	s        *session
	classify func(error) error
	observe  func(error) // may be nil
	err      error       // the first statement error: nothing may follow
	open     *Rows
}

func (c *cursor) note(err error) error {
	if err == nil {
		return nil
	}
	err = c.classify(err)
	if c.err == nil {
		c.err = err
		if c.observe != nil {
			c.observe(err)
		}
	}
	return err
}

func (c *cursor) usable() error {
	if errors.Is(c.err, errOver) {
		return errOver
	}
	if c.err != nil {
		return fault.New(fault.Internal, "statement after a failed one in the same transaction: %w", c.err)
	}
	if c.open != nil {
		return c.note(fault.New(fault.Internal, "statement while the rows of another are open: %s", c.open.query))
	}
	return nil
}

func (c *cursor) exec(ctx context.Context, query string, args ...any) (int64, error) {
	if err := c.usable(); err != nil {
		return 0, err
	}
	n, err := c.s.exec(ctx, query, args...)
	return n, c.note(err)
}

func (c *cursor) query(ctx context.Context, query string, args ...any) (*Rows, error) {
	if err := c.usable(); err != nil {
		return nil, err
	}
	if err := c.s.drain(ctx); err != nil {
		return nil, c.note(err)
	}
	st, err := c.s.prepare(ctx, query)
	if err != nil {
		return nil, c.note(err)
	}
	rows, err := st.QueryContext(ctx, args...) //nolint:rowserrcheck // Rows.Close notes it
	if err != nil {
		return nil, c.note(err)
	}
	c.open = &Rows{rows: rows, c: c, query: query}
	return c.open, nil
}

func (c *cursor) queryRow(ctx context.Context, query string, args ...any) *Row {
	rows, err := c.query(ctx, query, args...)
	return &Row{rows: rows, err: err}
}

// settleRows closes rows that were left open. Leaving them open after success is
// a defect that PostgreSQL would punish later and elsewhere.
func (c *cursor) settleRows() {
	if c.open == nil {
		return
	}
	query := c.open.query
	_ = c.open.Close() // noted
	_ = c.note(fault.New(fault.Internal, "rows left open: %s", query))
}

// end makes the cursor refuse use after its function has returned.
func (c *cursor) end() {
	if c.err == nil {
		c.err = errOver
	}
}

var errOver = fault.New(fault.Internal, "the transaction is over")

// Q is what a query needs: both a transaction and a read snapshot are one.
type Q interface {
	Query(ctx context.Context, query string, args ...any) (*Rows, error)
	QueryRow(ctx context.Context, query string, args ...any) *Row
}

// Rows are the rows of a query. They must be closed or read to their end before
// the next statement of the same transaction.
type Rows struct {
	rows  *sql.Rows
	c     *cursor
	query string
}

// Next moves to the next row. At the end, also by an error, the rows are closed.
func (r *Rows) Next() bool {
	if r.rows.Next() {
		return true
	}
	r.released()
	_ = r.c.note(r.rows.Err()) // even if the caller forgets to ask Err
	return false
}

// Err returns the error that ended the iteration, if any.
func (r *Rows) Err() error { return r.c.note(r.rows.Err()) }

// Scan copies the current row. Its error poisons the transaction.
func (r *Rows) Scan(dest ...any) error { return r.c.note(r.rows.Scan(dest...)) }

// Columns returns the names of the columns.
func (r *Rows) Columns() ([]string, error) { return r.rows.Columns() }

// Close closes the rows. It may be called more than once.
func (r *Rows) Close() error {
	r.released()
	return r.c.note(r.rows.Close())
}

func (r *Rows) released() {
	if r.c.open == r {
		r.c.open = nil
	}
}

// Row is the result of QueryRow. It must be scanned.
type Row struct {
	rows *Rows
	err  error
}

// Scan copies the row. With no row it returns sql.ErrNoRows, which does not
// poison a transaction.
func (r *Row) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return sql.ErrNoRows
	}
	if err := r.rows.Scan(dest...); err != nil {
		_ = r.rows.Close() // the first error is the one to tell
		return err
	}
	return r.rows.Close()
}

// All runs a query and scans every row with scan. The rows are closed when it
// returns, so the next statement may follow.
func All[T any](ctx context.Context, q Q, scan func(*Rows) (T, error), query string, args ...any) ([]T, error) {
	rows, err := q.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // Err below tells what went wrong
	var out []T
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, rows.Err()
}

// Column scans rows of one column, for use with All.
func Column[T any](r *Rows) (T, error) {
	var v T
	err := r.Scan(&v)
	return v, err
}

// missingHead says that the store lacks the row every write batch holds.
func missingHead() error {
	return fault.New(fault.Verification, "the row 'log' of table heads is missing").
		WithHint("the store was changed by hand; restore a backup")
}
