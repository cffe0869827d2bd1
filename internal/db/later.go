package db

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/ombud-run/ombud/internal/fault"
)

// queued is a statement that waits for the next thing its connection has to do.
type queued struct {
	query string
	args  []any
	miss  error
	into  *string // where the text goes that it answers, if any
}

// Later runs a statement of which nothing has to be known before the commit. On
// PostgreSQL it rides with what the transaction does next, at the latest with the
// commit, so that many cost one round trip; their order stays. With a miss it has to
// change a row: else the transaction is refused with that error, now or at its end. A
// statement that fails is told at the end of the function or by InTx.
func (tx *Tx) Later(ctx context.Context, miss error, query string, args ...any) error {
	if !tx.b.db.postgres {
		n, err := tx.Exec(ctx, query, args...)
		if err == nil && n == 0 && miss != nil {
			err = tx.c.note(miss)
		}
		return err
	}
	if err := tx.c.usable(); err != nil {
		return err
	}
	return tx.c.note(tx.b.s.later(miss, query, args))
}

// later queues a statement of PostgreSQL.
func (s *session) later(miss error, query string, args []any) error {
	text, known := s.texts[query]
	if !known {
		if isControl(query) {
			return fault.New(fault.Internal, "the statement %q belongs to the store, not to a transaction's function", query)
		}
		// The division fails where no row was changed, before a commit behind it is done.
		text = "WITH changed AS (" + query + " RETURNING 1) SELECT 1 / count(*) FROM changed"
		s.texts[query] = text
	}
	if miss == nil {
		text = query
	}
	s.queue = append(s.queue, queued{query: text, args: args, miss: miss})
	return nil
}

// laterError is a statement that was queued and refused; nothing behind it was done.
type laterError struct{ cause error }

func (e *laterError) Error() string { return e.cause.Error() }
func (e *laterError) Unwrap() error { return e.cause }

// divisionByZero is how a statement shows that missed its row.
const divisionByZero = "22012"

// drain sends what is queued, and control statements behind it, in one round trip.
func (s *session) drain(ctx context.Context, control ...string) error {
	if len(s.queue) == 0 && len(control) == 0 {
		return nil
	}
	todo := s.queue
	s.queue = nil
	b := &pgx.Batch{}
	for _, q := range todo {
		b.Queue(q.query, q.args...)
	}
	for _, c := range control {
		b.Queue(c)
	}
	var failed error
	raw := s.conn.Raw(func(dc any) error {
		results := dc.(*stdlib.Conn).Conn().SendBatch(ctx, b)
		for i := range b.QueuedQueries {
			var tag pgconn.CommandTag
			var err error
			if i < len(todo) && todo[i].into != nil {
				var n int64
				err = results.QueryRow().Scan(todo[i].into, &n)
			} else {
				tag, err = results.Exec()
			}
			if failed = told(err, tag, i, todo, control); failed != nil {
				break
			}
		}
		if err := results.Close(); failed == nil {
			failed = err
		}
		return nil
	})
	return errors.Join(failed, raw)
}

// told is what the answer to the statement i of a batch means.
func told(err error, tag pgconn.CommandTag, i int, todo []queued, control []string) error {
	refused, answered := errors.AsType[*pgconn.PgError](err)
	switch {
	case err == nil && i >= len(todo) && control[i-len(todo)] == "COMMIT" && tag.String() != "COMMIT":
		return errRolledBack
	case err == nil:
		return nil
	case i < len(todo) && answered && refused.Code == divisionByZero && todo[i].miss != nil:
		return &laterError{todo[i].miss}
	case i < len(todo) && answered:
		return &laterError{err}
	}
	return err
}

// forget drops what is queued and belongs to what is rolled back. It reports whether
// that was all.
func (s *session) forget(query string) bool {
	if !strings.HasPrefix(query, "ROLLBACK") {
		return false
	}
	all := s.promised()
	s.queue = nil
	return all
}
