package db

import (
	"context"
	"database/sql"
	"errors"

	"github.com/ombud-run/ombud/internal/fault"
)

// nestedKey marks the context a function of InTx gets, so that an InTx below it
// is refused instead of waiting for itself.
type nestedKey struct{}

// Tx is one caller's part of the writer's current transaction. It is valid only
// inside the function it was given to, on the goroutine that runs it.
//
// Its methods take a context for its values: a caller's cancellation never
// reaches a statement, because it would roll back the whole batch.
type Tx struct {
	b   *batch
	err error // the first statement error: the transaction is poisoned
}

func (tx *Tx) note(err error) error {
	if err == nil {
		return nil
	}
	err = tx.b.db.dialect.classify(err)
	if tx.err == nil {
		tx.err = err
	}
	return err
}

func (tx *Tx) usable() error {
	if tx.err != nil {
		return fault.New(fault.Internal, "statement after a failed one in the same transaction: %w", tx.err)
	}
	return nil
}

// Exec runs a statement and returns the number of rows it changed.
func (tx *Tx) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	if err := tx.usable(); err != nil {
		return 0, err
	}
	n, err := tx.b.s.exec(context.WithoutCancel(ctx), query, args...)
	return n, tx.note(err)
}

// Query runs a query. Close its rows before the next statement.
func (tx *Tx) Query(ctx context.Context, query string, args ...any) (*Rows, error) {
	if err := tx.usable(); err != nil {
		return nil, err
	}
	ctx = context.WithoutCancel(ctx)
	st, err := tx.b.s.prepare(ctx, query)
	if err != nil {
		return nil, tx.note(err)
	}
	rows, err := st.QueryContext(ctx, args...)
	if err != nil {
		return nil, tx.note(err)
	}
	return &Rows{Rows: rows, note: tx.note}, nil
}

// QueryRow runs a query for one row.
func (tx *Tx) QueryRow(ctx context.Context, query string, args ...any) *Row {
	if err := tx.usable(); err != nil {
		return &Row{err: err}
	}
	ctx = context.WithoutCancel(ctx)
	st, err := tx.b.s.prepare(ctx, query)
	if err != nil {
		return &Row{err: tx.note(err)}
	}
	return &Row{row: st.QueryRowContext(ctx, args...), note: tx.note}
}

// Savepoint runs fn so that its failure, or that of one of its statements, undoes
// what fn did and nothing else. The failure is returned and the transaction can
// go on, unless the failure took all of it: then everything after fails too.
func (tx *Tx) Savepoint(ctx context.Context, fn func(ctx context.Context, tx *Tx) error) (err error) {
	if err := tx.usable(); err != nil {
		return err
	}
	snap := tx.b.snapshot()
	if err := tx.b.s.control(context.WithoutCancel(ctx), "SAVEPOINT inner_"+tx.b.depthName()); err != nil {
		return tx.note(err)
	}
	tx.b.depth++
	defer func() {
		tx.b.depth--
		name := "inner_" + tx.b.depthName()
		if p := recover(); p != nil {
			_ = tx.b.s.control(context.WithoutCancel(ctx), "ROLLBACK TO "+name) // the outer savepoint decides
			tx.b.restore(snap)
			panic(p)
		}
		if err == nil && tx.err == nil {
			err = tx.note(tx.b.s.control(context.WithoutCancel(ctx), "RELEASE "+name))
			return
		}
		if err == nil {
			err = tx.err
		}
		tx.err = nil
		tx.b.restore(snap)
		if rb := tx.b.s.control(context.WithoutCancel(ctx), "ROLLBACK TO "+name); rb != nil {
			// The savepoint is gone, so the whole transaction is: nothing may follow.
			_ = tx.note(err)
			tx.b.lost = true
		}
	}()
	return fn(ctx, tx)
}

// Now is the time of this transaction in Unix microseconds, the same for all of
// it. On one node it never goes back, whatever the system clock does.
func (tx *Tx) Now() int64 { return tx.b.now }

// Clock is the store's own clock in Unix microseconds: the server's on
// PostgreSQL, Now on SQLite. Leases and time-to-live are reckoned with it, so
// that two nodes with different clocks agree.
func (tx *Tx) Clock(ctx context.Context) (int64, error) {
	if !tx.b.db.Postgres() {
		return tx.b.now, nil
	}
	var now int64
	err := tx.QueryRow(ctx, "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint").Scan(&now)
	return now, err
}

// Next returns the next value of the named counter, starting at 1. Values have no
// gaps, and their order is the order of commits on all nodes.
func (tx *Tx) Next(ctx context.Context, name string) (int64, error) {
	r := tx.Register("head:"+name, func(ctx context.Context, tx *Tx) (any, error) {
		var v int64
		err := tx.QueryRow(ctx, "SELECT value FROM heads WHERE name = $1"+tx.b.db.dialect.lockRow, name).Scan(&v)
		if errors.Is(err, sql.ErrNoRows) {
			return int64(0), nil
		}
		return v, err
	}, func(ctx context.Context, tx *Tx, v any) error {
		_, err := tx.Exec(ctx, `INSERT INTO heads (name, value, at) VALUES ($1, $2, $3)
			ON CONFLICT (name) DO UPDATE SET value = excluded.value, at = excluded.at`, name, v, tx.Now())
		return err
	})
	v, err := r.Get(ctx)
	if err != nil {
		return 0, err
	}
	n := v.(int64) + 1
	r.Set(n)
	return n, nil
}

// AfterCommit runs fn on the writer's goroutine once the rows are durable: a hint
// for somebody who also polls. It must not block.
func (tx *Tx) AfterCommit(fn func()) { tx.b.after = append(tx.b.after, fn) }

// Notify wakes the watchers of topic, on every node, after the commit.
func (tx *Tx) Notify(topic string) { tx.b.topics = append(tx.b.topics, topic) }
