package db

import (
	"context"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
)

// A batch on PostgreSQL begins with the row of the log's counter, which it has to
// read and to lock. A node that made the last commit knows what it would read: it
// queues the beginning, with statements that fail if the row or the seat is another,
// and a batch of which nothing is asked before its commit is one round trip. A promise
// that was wrong is undone by the server and its callers run again, the careful way.
const (
	beginPromised = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
	// The counter's row is locked before it is compared again, so that what another
	// node committed while we waited shows.
	promisedHead = `SELECT pg_current_xact_id()::text, 1 / count(*) FROM
		(SELECT 1 FROM heads WHERE name = '` + logCounter + `' AND value = $1 FOR UPDATE) AS head`
	promisedSeat = "SELECT 1 / count(*) FROM leases WHERE name = '" + seatName + "' AND fence = $1"
)

// errStale says that another node has written since.
var errStale = fault.New(fault.Unavailable, "another node has written to the store meanwhile")

// waryFor is how many batches promise nothing after a promise that was wrong.
const waryFor = 16

// fresh is how old the last commit may be. After that the connection may have ended
// unnoticed, and what became of a commit sent into it could not be told.
const fresh = time.Second

// promise queues the beginning of a batch, if what it would read is known.
func (d *DB) promise(b *batch) bool {
	head, known := d.kept[registerKey{"head", logCounter}].(int64)
	if d.wary > 0 {
		d.wary--
		return false
	}
	if !known || time.Since(d.lastCommit) > fresh {
		return false
	}
	b.head = head
	b.s.queue = append(b.s.queue, queued{query: beginPromised},
		queued{query: promisedHead, args: []any{head}, miss: errStale, into: &b.xid})
	if d.seat != nil {
		b.s.queue = append(b.s.queue, queued{query: promisedSeat, args: []any{d.seat.fence}, miss: errStale})
	}
	return true
}

// promised reports whether the beginning has not been sent.
func (s *session) promised() bool { return len(s.queue) > 0 && s.queue[0].query == beginPromised }

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
