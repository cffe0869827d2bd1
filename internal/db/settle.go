package db

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"modernc.org/sqlite"

	"github.com/ombud-run/ombud/internal/fault"
)

// commit commits. What became of a batch on PostgreSQL whose connection is lost in this
// very moment is settled.
func (d *DB) commit(b *batch) error {
	err := b.commitMarked()
	if err == nil {
		return nil
	}
	if _, refused := errors.AsType[*laterError](err); refused && !b.s.broken() {
		return err
	}
	cause := d.dialect.classify(err)
	d.full.observe(cause)
	d.fail(cause)
	if !d.postgres {
		d.rollback(b)
		return commitSQLite(cause)
	}
	if b.s.refused(err) {
		d.rollback(b)
		return fault.New(fault.Unavailable, "commit: %w", cause)
	}
	pid := b.s.pid
	d.dropWriter()
	return d.settle(b, pid, cause)
}

// commitSQLite says what a failed COMMIT means. The frames of the transaction are
// written in order and the last one makes it valid, so a failed write undoes it.
// A failed flush comes after that: if the process dies before another commit
// overwrites the frames, recovery may find them whole.
func commitSQLite(cause error) error {
	if e, ok := errors.AsType[*sqlite.Error](cause); ok && (e.Code() == sqliteIOErrFsync || e.Code() == sqliteIOErrDirFsync) {
		return fault.New(fault.Unknown, "commit: the disk did not confirm the write: %w", cause)
	}
	return fault.New(fault.Unavailable, "commit: %w", cause)
}

// markName is the row in which each batch on PostgreSQL leaves a number of its own.
const markName = "commit"

// markCommit rides with the commit.
const (
	markStart  = "INSERT INTO heads (name, at, value) VALUES ('" + markName + "', 0, "
	markEnd    = ") ON CONFLICT (name) DO UPDATE SET value = excluded.value"
	markCommit = markStart + "$1" + markEnd
)

// commitMarked commits, and leaves the batch's number in the same round trip: by it is
// told later that it was committed. The number of a transaction does not tell: one that
// a crash of the server undid is given out again if nothing of it was on disk, and then
// the server speaks of another transaction.
func (b *batch) commitMarked() error {
	if !b.db.postgres {
		return b.s.commit(b.ctx, "")
	}
	b.number = rand.Int64()
	if len(b.s.queue) > 0 {
		b.s.queue = append(b.s.queue, queued{query: markCommit, args: []any{b.number}})
		return b.s.commit(b.ctx, "")
	}
	return b.s.commit(b.ctx, markStart+strconv.FormatInt(b.number, 10)+markEnd+"; ")
}

// settleLimit bounds how long a lost commit is asked about.
const settleLimit = 10 * time.Second

// settle finds out what became of a batch whose connection was lost while it committed:
// once the process that had it is gone, its number stands in the row, or does not. If
// another node may have written since, only what the server says to have undone is
// known.
func (d *DB) settle(b *batch, pid string, cause error) error {
	return d.ask(cause, func() string {
		ctx, cancel := context.WithTimeout(context.Background(), settleLimit/4)
		defer cancel()
		var working, number, fence int64
		// A replica may not have got to it yet.
		err := d.writePool.QueryRowContext(ctx, "SELECT count(*) + pg_is_in_recovery()::int FROM pg_stat_activity WHERE pid = $1::text::int", pid).Scan(&working)
		if err == nil && working == 0 { // asked after it: what it did is there now
			err = d.writePool.QueryRowContext(ctx, "SELECT COALESCE((SELECT value FROM heads WHERE name = '"+markName+
				"'), 0), COALESCE((SELECT fence FROM leases WHERE name = '"+seatName+"'), 0)").Scan(&number, &fence)
		}
		switch {
		case err != nil:
			d.log.Warn("ask about a lost commit", "error", err)
			return ""
		case working > 0:
			return ""
		case number == b.number:
			return "committed"
		case d.seat != nil && d.seat.fence == fence: // nobody else writes
			return "aborted"
		case b.xid != "" && d.transactionStatus(b.xid) == "aborted":
			return "aborted"
		}
		return "in doubt"
	})
}

// transactionStatus is the server's word on a transaction: committed, aborted,
// "in progress" while it has not noticed that we are gone, "" if it can not say.
func (d *DB) transactionStatus(xid string) string {
	ctx, cancel := context.WithTimeout(context.Background(), settleLimit/4)
	defer cancel()
	var status sql.NullString
	if err := d.writePool.QueryRowContext(ctx, `SELECT pg_xact_status($1::text::xid8)`, xid).Scan(&status); err != nil {
		d.log.Warn("ask about a lost commit", "error", err)
		return ""
	}
	return status.String
}

// ask asks status until it knows, the store closes or it has taken too long.
func (d *DB) ask(cause error, status func() string) error {
	deadline := time.NewTimer(settleLimit)
	defer deadline.Stop()
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for {
		switch status() {
		case "committed":
			return nil
		case "aborted":
			return fault.New(fault.Unavailable, "commit: the connection was lost and nothing was stored: %w", cause)
		case "in doubt":
			return outcomeUnknown(cause)
		}
		select {
		case <-again.C:
			continue
		case <-deadline.C:
		case <-d.closing:
		}
		return outcomeUnknown(cause)
	}
}

func outcomeUnknown(cause error) error {
	return fault.New(fault.Unknown, "commit: the connection was lost and the outcome is unknown: %w", cause)
}
