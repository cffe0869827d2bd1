package db

import (
	"context"
	"fmt"
	"runtime"
)

// Test hooks: what tests of the package's outside need of its inside.

// Render is how a migration's text becomes one store's statements.
var Render = render

// SetMaxPages bounds the SQLite file as a full disk would, for the writer only:
// to its present size and room more pages.
func (d *DB) SetMaxPages(ctx context.Context, room int) error {
	return d.InTx(ctx, func(_ context.Context, tx *Tx) error {
		var pages int
		if err := tx.b.s.conn.QueryRowContext(tx.b.ctx, "PRAGMA page_count").Scan(&pages); err != nil {
			return err
		}
		_, err := tx.b.s.conn.ExecContext(tx.b.ctx, fmt.Sprintf("PRAGMA max_page_count=%d", pages+room))
		return err
	})
}

// WriterPragma reads a setting of the writer's connection.
func (d *DB) WriterPragma(ctx context.Context, name string) (value string, err error) {
	err = d.InTx(ctx, func(_ context.Context, tx *Tx) error {
		return tx.b.s.conn.QueryRowContext(tx.b.ctx, "PRAGMA "+name).Scan(&value)
	})
	return value, err
}

// ReaderPragmas opens every reader's connection and reads a setting of each.
func (d *DB) ReaderPragmas(ctx context.Context, name string) (values []string, err error) {
	var held []*session
	defer func() {
		for _, s := range held {
			d.readers <- s
		}
	}()
	for range cap(d.readers) {
		s := <-d.readers
		if s == nil {
			if s, err = newSession(ctx, d.readPool, d.postgres); err != nil {
				held = append(held, nil)
				return nil, err
			}
		}
		held = append(held, s)
		var v string
		if err := s.conn.QueryRowContext(ctx, "PRAGMA "+name).Scan(&v); err != nil {
			return nil, err
		}
		values = append(values, v)
	}
	return values, nil
}

// BackendPID is the number of the writer's server process on PostgreSQL.
func (tx *Tx) BackendPID(ctx context.Context) (pid int, err error) {
	err = tx.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&pid)
	return pid, err
}

// WithMigrations opens a store as a program with other migrations would.
func WithMigrations(o Options, steps []Migration) Options {
	o.migrations = steps
	return o
}

// SetWALWarning lowers the size of the write-ahead log that is told.
func (d *DB) SetWALWarning(ctx context.Context, size int64) error {
	return d.InTx(ctx, func(context.Context, *Tx) error {
		d.counts.walWarn = size
		return nil
	})
}

// AwaitWaiting returns when n callers wait for the writer.
func (d *DB) AwaitWaiting(n int) {
	for len(d.queue) < n {
		runtime.Gosched()
	}
}

// Abort fails the transaction on PostgreSQL without anybody noticing.
func (tx *Tx) Abort() { _, _ = tx.b.s.simple(tx.b.ctx, "SELECT 1/0") }
