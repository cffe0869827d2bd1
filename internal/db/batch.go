package db

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ombud-run/ombud/internal/failpoint"
)

// batch is one transaction of the writer.
type batch struct {
	db     *DB
	s      *session
	ctx    context.Context // of every statement; no caller's
	cancel context.CancelFunc
	now    int64
	xid    string // PostgreSQL's transaction id, to settle a lost commit
	head   int64  // PostgreSQL: the counter of the log when its row was taken
	number int64  // PostgreSQL: what it leaves in the row of commits
	regs   []*Register
	after  []func()
	topics []string
	depth  int
	inside savepointState
	lost   bool // the transaction is no longer open: run its callers again
	undone bool // it is to be rolled back
}

// patience bounds the statements of a batch on PostgreSQL, so that a network
// that swallows everything does not hold the writer for ever. It is longer than
// the server's own limit of a statement. SQLite has no such limit: a context that
// can end costs a goroutine a statement there.
const patience = 45 * time.Second

func (b *batch) renew() {
	b.end()
	b.ctx, b.cancel = context.Background(), func() {}
	if b.db.postgres {
		b.ctx, b.cancel = context.WithTimeout(context.Background(), patience)
	}
}

func (b *batch) end() {
	if b.cancel != nil {
		b.cancel()
	}
}

// maxStale is how many connections are tried that broke while they were idle: a
// pool may hold several of them.
const maxStale = 8

// begin opens the writer's transaction, on a new connection if the old one is not
// fit for it.
func (d *DB) begin() (*batch, error) {
	b := &batch{db: d, now: d.clock()}
	for tries := 1; ; tries++ {
		b.renew()
		kept := d.writer != nil
		err := d.openTransaction(b)
		if err == nil {
			b.renew()
			return b, nil
		}
		err = d.dialect.classify(err)
		d.full.observe(err)
		again := d.writer != nil && (kept || d.writer.broken()) && tries < maxStale && d.seated() == nil
		d.dropWriter()
		if !again {
			b.end()
			return nil, err
		}
	}
}

func (d *DB) openTransaction(b *batch) error {
	if d.writer == nil {
		s, err := newSession(b.ctx, d.writePool, d.postgres)
		if err != nil {
			return err
		}
		if err := d.tune(b.ctx, s); err != nil {
			s.discard()
			return err
		}
		d.writer = s
		clear(d.kept) // it was known by another connection, perhaps to another server
	}
	b.s = d.writer
	b.s.mark, b.s.saved = nobody, false
	if !d.postgres {
		return b.s.control(b.ctx, beginSQLite)
	}
	if d.promise(b) {
		return nil
	}
	begin := beginPostgres
	if d.seat != nil {
		begin += beginSeated
	}
	results, err := b.s.simple(b.ctx, begin)
	if err != nil {
		return err
	}
	if len(results[1].Rows) != 1 {
		return missingHead()
	}
	row := results[1].Rows[0]
	b.xid, b.s.pid = string(row[0]), string(row[2])
	if b.head, err = strconv.ParseInt(string(row[1]), 10, 64); err != nil {
		return err
	}
	if d.seat == nil || len(results[2].Rows) == 1 && string(results[2].Rows[0][0]) == strconv.FormatInt(d.seat.fence, 10) {
		return nil
	}
	d.seat.lose()
	return d.seat.err()
}

// seated is nil while this node may write, for all it knows.
func (d *DB) seated() error {
	if d.seat == nil {
		return nil
	}
	return d.seat.err()
}

// tune keeps SQLite's record of what a savepoint changed in memory: a batch is
// short, and in a file it is two writes in three of all. Migrations run before,
// without it: an index of a large table is not built in memory.
func (d *DB) tune(ctx context.Context, s *session) error {
	if d.postgres {
		return nil
	}
	return s.control(ctx, "PRAGMA temp_store = MEMORY")
}

const (
	beginSQLite = "BEGIN IMMEDIATE"
	// beginPostgres takes the row of the log's counter at once: see the package
	// comment on order. READ COMMITTED whatever the server's default is: only so do
	// we see what the node before us committed while we waited for the row. The number
	// of the process is asked for because what stands between may tell one of its own.
	beginPostgres = `BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
		SELECT pg_current_xact_id()::text, value, pg_backend_pid() FROM heads WHERE name = '` + logCounter + `' FOR UPDATE`
	// logCounter numbers the events; its row is what orders the batches of all nodes.
	logCounter = "log"
	// beginSeated reads whose seat it is, in the same round trip. It is a statement of
	// its own: the one before may have waited for the row, and sees what was there
	// before it waited.
	beginSeated = `; SELECT fence FROM leases WHERE name = '` + seatName + `'`
)

// attempt runs the requests in b and answers them, unless the transaction was
// lost: then they are to be run again, one by one.
func (d *DB) attempt(b *batch, reqs []*request) (again bool) {
	defer b.end()
	shared := len(reqs) > 1
	b.runAll(reqs)
	tried, committed := false, false
	if !b.lost && anyOK(reqs) {
		tried = true
		a := d.finish(b)
		if committed = a.ok(); !committed {
			refuseAll(reqs, a)
		}
	} else {
		b.undone = true
	}
	stale := !committed && errors.Is(firstError(reqs), errStale)
	if stale {
		d.wary = waryFor
	}
	if stale || tried && !committed { // a rollback leaves what the last commit left
		clear(d.kept)
	}
	if b.undone {
		// A connection that breaks is not the fault of the one caller it broke under.
		again = stale || shared && b.lost || !shared && reqs[0].tries <= maxReruns && (b.s.broken() || contended(reqs[0].result.err))
		d.rollback(b)
		if again {
			if !stale {
				d.fail(firstError(reqs))
			}
			return true
		}
	}
	for _, r := range reqs {
		r.decided = true
	}
	if committed {
		b.keep()
		d.committed(b, len(reqs))
	}
	for _, r := range reqs {
		r.send(r.result)
	}
	return false
}

// maxReruns is how often a caller that is alone in its transaction runs again
// because the connection broke or another session was in its way.
const maxReruns = 2

// contended reports whether PostgreSQL gave up a transaction in favour of another one
// (a serialization failure, a deadlock): run again, it may go through.
func contended(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (e.Code == "40001" || e.Code == "40P01")
}

func (b *batch) runAll(reqs []*request) {
	for _, r := range reqs {
		r.tries++
		r.result = b.runOne(r, len(reqs) > 1)
		if b.lost = b.lost || contended(r.result.err); b.lost {
			return
		}
	}
}

func anyOK(reqs []*request) bool {
	for _, r := range reqs {
		if r.result.ok() {
			return true
		}
	}
	return false
}

func firstError(reqs []*request) error {
	for _, r := range reqs {
		if r.result.err != nil {
			return r.result.err
		}
	}
	return nil
}

// refuseAll gives the failure of a commit to all who thought they had succeeded.
func refuseAll(reqs []*request, a answer) {
	for _, r := range reqs {
		if r.result.ok() {
			r.result = a
		}
	}
}

// runOne runs one caller's function, in a savepoint if it has neighbours.
func (b *batch) runOne(r *request, savepoint bool) (a answer) {
	if err := r.ctx.Err(); err != nil { // looked at before fn starts and never after
		return answer{err: err}
	}
	snap := b.snapshot()
	if savepoint {
		if err := b.enter(); err != nil {
			b.lost = true
			return answer{err: b.db.dialect.classify(err)}
		}
	}
	tx := newTx(b)
	a = b.call(r, tx)
	tx.c.settleRows()
	if a.ok() || errors.Is(tx.c.err, errStale) {
		a.err = tx.c.err // fn swallowed the error of a statement
	}
	tx.c.end()
	if a.ok() {
		b.s.mark = nobody
		return a
	}
	b.restore(snap)
	if b.s.foreign && savepoint { // what a caller before it had queued
		b.lost = true
		return a
	}
	if savepoint && b.s.drop() {
		return a
	}
	if savepoint && !b.lost {
		// "No such savepoint" is how a transaction that rolled itself back shows.
		b.lost = b.s.control(b.ctx, "ROLLBACK TO caller") != nil
		b.inside = savepointEmpty
	}
	return a
}

// enter opens the savepoint of the next caller. The one of a caller that
// succeeded is given up only here, which saves a round trip a caller; the commit
// takes the last. The one of a caller that failed is empty and serves again. On
// PostgreSQL it is only owed.
func (b *batch) enter() error {
	if b.db.postgres {
		b.s.owe()
		return nil
	}
	before := b.inside
	b.inside = savepointUsed
	switch before {
	case savepointUsed:
		return b.s.control(b.ctx, "RELEASE caller", "SAVEPOINT caller")
	case savepointEmpty:
		return nil
	}
	return b.s.control(b.ctx, "SAVEPOINT caller")
}

// savepointState is what the savepoint "caller" holds.
type savepointState uint8

const (
	savepointNone  savepointState = iota
	savepointUsed                 // what a caller did
	savepointEmpty                // nothing
)

// call runs fn with a watch on how long it holds the batch.
func (b *batch) call(r *request, tx *Tx) (a answer) {
	start := time.Now()
	b.db.current.Store(r)
	b.db.inFn.Store(true)
	defer func() {
		if p := recover(); p != nil {
			a = answer{panicked: newPanic(p, funcName(r.fn))}
		}
		b.db.inFn.Store(false)
		if d := time.Since(start); d > slowCaller {
			b.db.log.Warn("transaction function is slow", "caller", funcName(r.fn), "ms", d.Milliseconds())
		}
	}()
	ctx := context.WithValue(context.WithoutCancel(r.ctx), insideKey{}, true)
	return answer{err: r.fn(ctx, tx)}
}

func newPanic(value any, caller string) *Panic {
	buf := make([]byte, 8<<10)
	return &Panic{Value: value, Stack: buf[:runtime.Stack(buf, false)], Caller: caller}
}

// finish flushes the registers and commits. When it fails, b.undone tells that
// the transaction is still to be rolled back; b.lost, that it may be run again.
func (d *DB) finish(b *batch) answer {
	a := d.flushAll(b)
	if a.ok() {
		a.err = d.announce(b)
	}
	if !a.ok() {
		b.undone, b.lost = true, true
		return a
	}
	failpoint.Hit("db.commit.before")
	if err := d.commit(b); err != nil {
		if refused, ok := errors.AsType[*laterError](err); ok && !b.s.broken() { // a statement before the commit
			b.undone, b.lost = true, true
			err = d.dialect.classify(refused.cause)
		}
		return answer{err: err}
	}
	failpoint.Hit("db.commit.after")
	return answer{}
}

func (d *DB) flushAll(b *batch) (a answer) {
	tx := newTx(b)
	d.inFn.Store(true)
	defer func() {
		if p := recover(); p != nil {
			a = answer{panicked: newPanic(p, "flush of a register")}
		}
		tx.c.end()
		d.inFn.Store(false)
	}()
	ctx := context.WithValue(context.Background(), insideKey{}, true)
	return answer{err: b.flush(ctx, tx)}
}

// committed counts the batch and gives its hints.
func (d *DB) committed(b *batch, callers int) {
	d.counts.batch(callers)
	d.watchWAL()
	d.current.Store(nil)
	d.inFn.Store(true)
	for _, fn := range b.after {
		d.runHint(fn)
	}
	d.inFn.Store(false)
	for _, topic := range b.topics {
		d.signals.wake(topic)
	}
}

// runHint keeps a defect in a hint from taking the writer with it: the rows are
// there, and whoever waits for the hint also polls.
func (d *DB) runHint(fn func()) {
	defer func() {
		if p := recover(); p != nil {
			d.log.Error("a hint after a commit panicked", "hint", funcName(fn), "panic", p)
		}
	}()
	fn()
}

// rollback ends a transaction that will not be committed. If even that fails, the
// connection goes, and the store rolls back when it notices.
func (d *DB) rollback(b *batch) {
	err := b.s.control(b.ctx, "ROLLBACK")
	if err != nil && d.postgres {
		d.dropWriter()
	}
	// On SQLite the error says that no transaction is open: it rolled itself back.
	// Should one be open after all, the next BEGIN fails and drops the connection.
}
