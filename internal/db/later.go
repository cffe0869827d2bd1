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

	control bool // it steers the transaction
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

// nobody is session.mark while no caller's own savepoint is owed.
const nobody = -1

// owe says that the next caller of a batch begins. Its savepoint is sent with the
// first of its statements that is waited for, if there is one: what it only queues can
// be dropped without.
func (s *session) owe() { s.mark, s.foreign = len(s.queue), false }

// drop takes back what a caller has queued, if nothing of it was sent.
func (s *session) drop() bool {
	if s.mark == nobody {
		return false
	}
	s.queue, s.mark = s.queue[:s.mark], nobody
	return true
}

// due is what is sent now: what is queued, a savepoint where it is owed, and control.
// The first of them are of callers before this one.
func (s *session) due(control []string) (all []queued, others int) {
	if s.mark == nobody {
		all = s.queue
	} else {
		others = s.mark
		all = append(all, s.queue[:s.mark]...)
		if s.saved {
			all = append(all, queued{query: "RELEASE caller", control: true})
		}
		all = append(all, queued{query: "SAVEPOINT caller", control: true})
		all = append(all, s.queue[s.mark:]...)
		s.saved = true
	}
	s.queue, s.mark = nil, nobody
	for _, c := range control {
		all = append(all, queued{query: c, control: true})
	}
	return all, others
}

// drain sends what is queued, and control statements behind it, in one round trip.
func (s *session) drain(ctx context.Context, control ...string) error {
	if len(s.queue) == 0 && len(control) == 0 && s.mark == nobody {
		return nil
	}
	all, others := s.due(control)
	b := &pgx.Batch{}
	for _, q := range all {
		b.Queue(q.query, q.args...)
	}
	var failed error
	raw := s.conn.Raw(func(dc any) error {
		results := dc.(*stdlib.Conn).Conn().SendBatch(ctx, b)
		for i, q := range all {
			if failed = q.answer(results); failed != nil {
				s.foreign = i < others
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

// answer reads what the server says to a statement of a batch.
func (q queued) answer(results pgx.BatchResults) (err error) {
	var tag pgconn.CommandTag
	if q.into != nil {
		var n int64
		err = results.QueryRow().Scan(q.into, &n)
	} else {
		tag, err = results.Exec()
	}
	refused, answered := errors.AsType[*pgconn.PgError](err)
	switch {
	case err == nil && q.control && q.query == "COMMIT" && tag.String() != "COMMIT":
		return errRolledBack
	case err == nil || q.control || !answered:
		return err
	case refused.Code == divisionByZero && q.miss != nil:
		return &laterError{q.miss}
	}
	return &laterError{err}
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
