package db

import (
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
