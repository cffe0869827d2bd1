package db

import (
	"context"
	"database/sql"
	"errors"
)

// maxStatements bounds the prepared statements of one connection. The program
// has a few hundred texts; more would be texts built from data, a defect.
const maxStatements = 1024

// session is one connection with its prepared statements.
type session struct {
	conn  *sql.Conn
	stmts map[string]*sql.Stmt
}

func newSession(ctx context.Context, pool *sql.DB) (*session, error) {
	conn, err := pool.Conn(ctx)
	if err != nil {
		return nil, err
	}
	return &session{conn: conn, stmts: map[string]*sql.Stmt{}}, nil
}

func (s *session) prepare(ctx context.Context, query string) (*sql.Stmt, error) {
	if st, ok := s.stmts[query]; ok {
		return st, nil
	}
	if len(s.stmts) >= maxStatements {
		s.closeStatements()
	}
	st, err := s.conn.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	s.stmts[query] = st
	return st, nil
}

func (s *session) exec(ctx context.Context, query string, args ...any) (int64, error) {
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

// control runs a transaction statement, which no driver needs prepared.
func (s *session) control(ctx context.Context, query string) error {
	_, err := s.conn.ExecContext(ctx, query)
	return err
}

func (s *session) closeStatements() {
	for _, st := range s.stmts {
		_ = st.Close() // the connection frees them at the latest
	}
	clear(s.stmts)
}

func (s *session) close() error {
	s.closeStatements()
	return s.conn.Close()
}

// Q is what a query needs: both a transaction and a read snapshot are one.
type Q interface {
	Query(ctx context.Context, query string, args ...any) (*Rows, error)
	QueryRow(ctx context.Context, query string, args ...any) *Row
}

// Rows are the rows of a query. They must be closed or read to their end before
// the next statement of the same transaction.
type Rows struct {
	*sql.Rows
	note func(error) error
}

// Err returns the error that ended the iteration, if any.
func (r *Rows) Err() error { return r.note(r.Rows.Err()) }

// Scan copies the current row.
func (r *Rows) Scan(dest ...any) error { return r.note(r.Rows.Scan(dest...)) }

// Row is the result of QueryRow.
type Row struct {
	row  *sql.Row
	err  error
	note func(error) error
}

// Scan copies the row. With no row it returns sql.ErrNoRows, which does not
// poison a transaction.
func (r *Row) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	err := r.row.Scan(dest...)
	if errors.Is(err, sql.ErrNoRows) {
		return err
	}
	return r.note(err)
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
