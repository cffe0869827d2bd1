package db

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
)

// Tx is one caller's part of the writer's current transaction. It is valid only
// inside the function it was given to, on the goroutine that runs it.
//
// Its methods take a context by custom only: a caller's cancellation never
// reaches a statement, because it would roll back the whole batch.
type Tx struct {
	b *batch
	c cursor
}

var _ Q = (*Tx)(nil)

func newTx(b *batch) *Tx {
	return &Tx{b: b, c: cursor{s: b.s, classify: b.db.dialect.classify, observe: b.db.full.observe}}
}

// Exec runs a statement and returns the number of rows it changed.
func (tx *Tx) Exec(_ context.Context, query string, args ...any) (int64, error) {
	return tx.c.exec(tx.b.ctx, query, args...)
}

// Query runs a query. Close its rows before the next statement.
func (tx *Tx) Query(_ context.Context, query string, args ...any) (*Rows, error) {
	return tx.c.query(tx.b.ctx, query, args...)
}

// QueryRow runs a query for one row, which must be scanned.
func (tx *Tx) QueryRow(_ context.Context, query string, args ...any) *Row {
	return tx.c.queryRow(tx.b.ctx, query, args...)
}

// Savepoint runs fn so that its failure, or that of one of its statements, undoes
// what fn did and nothing else. The failure is returned and the transaction can
// go on, unless the failure took all of it: then everything after fails too. A
// panic of fn goes on after the same.
func (tx *Tx) Savepoint(ctx context.Context, fn func(ctx context.Context, tx *Tx) error) (err error) {
	if err := tx.c.usable(); err != nil {
		return err
	}
	name := "inner_" + strconv.Itoa(tx.b.depth)
	snap := tx.b.snapshot()
	if err := tx.b.s.control(tx.b.ctx, "SAVEPOINT "+name); err != nil {
		return tx.c.note(err)
	}
	tx.b.depth++
	returned := false
	defer func() {
		tx.b.depth--
		tx.c.settleRows()
		if err == nil {
			err = tx.c.err // fn swallowed it
		}
		if returned && err == nil {
			err = tx.c.note(tx.b.s.drain(tx.b.ctx)) // what was queued fails in here
		}
		if returned && err == nil {
			err = tx.c.note(tx.b.s.control(tx.b.ctx, "RELEASE "+name))
			return
		}
		tx.b.restore(snap)
		if rb := tx.b.s.control(tx.b.ctx, "ROLLBACK TO "+name, "RELEASE "+name); rb != nil {
			// The savepoint is gone, so the whole transaction is: nothing may follow.
			_ = tx.c.note(rb)
			tx.b.lost = true
			return
		}
		tx.c.err = nil
	}()
	err = fn(ctx, tx)
	returned = true
	return err
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
	r := tx.b.register(registerKey{"head", name})
	if r == nil {
		r = tx.addRegister(registerKey{"head", name}, func(ctx context.Context, tx *Tx) (any, error) {
			if name == logCounter && tx.b.db.postgres {
				return tx.b.head, nil // read when its row was taken
			}
			var v int64
			err := tx.QueryRow(ctx, "SELECT value FROM heads WHERE name = $1"+tx.b.db.dialect.lockRow, name).Scan(&v)
			if errors.Is(err, sql.ErrNoRows) {
				return int64(0), nil
			}
			return v, err
		}, func(ctx context.Context, tx *Tx, v any) error {
			return tx.Later(ctx, nil, `INSERT INTO heads (name, value, at) VALUES ($1, $2, $3)
				ON CONFLICT (name) DO UPDATE SET value = excluded.value, at = excluded.at`, name, v, tx.Now())
		})
		r.own = tx.b.db.alone()
	}
	r.tx = tx
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
