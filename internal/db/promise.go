package db

import (
	"context"
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

// settlePromised finds out what became of a batch whose connection was lost in the one
// round trip it had: once the process that had it is gone, the counter of the log
// stands where it stood before, or where the batch has put it.
func (d *DB) settlePromised(b *batch, pid int64, cause error) error {
	after := b.head
	if r := b.register(registerKey{"head", logCounter}); r != nil && r.state != regEmpty {
		after = r.value.(int64)
	}
	return d.ask(cause, func() string {
		ctx, cancel := context.WithTimeout(context.Background(), settleLimit/4)
		defer cancel()
		var working, head, fence int64
		err := d.writePool.QueryRowContext(ctx, "SELECT count(*) FROM pg_stat_activity WHERE pid = $1", pid).Scan(&working)
		if err == nil && working == 0 { // asked after it: what it did is there now
			err = d.writePool.QueryRowContext(ctx, "SELECT value, COALESCE((SELECT fence FROM leases WHERE name = '"+seatName+
				"'), 0) FROM heads WHERE name = '"+logCounter+"'").Scan(&head, &fence)
		}
		alone := d.seat != nil && d.seat.fence == fence // nobody else has moved it
		switch {
		case err != nil:
			d.log.Warn("ask about a lost commit", "error", err)
			return ""
		case working > 0:
			return ""
		case after != b.head && head == b.head:
			return "aborted"
		case after != b.head && head == after && alone:
			return "committed"
		}
		return "in doubt"
	})
}
