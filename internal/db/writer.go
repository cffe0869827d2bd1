package db

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/ombud-run/ombud/internal/failpoint"
	"github.com/ombud-run/ombud/internal/fault"
)

// slowCaller is how long a caller's function may hold the batch before it is
// named in the log.
const slowCaller = 50 * time.Millisecond

// request is one caller waiting in InTx. Its state moves once, from waiting to
// taken (by the writer) or to gone (by the caller whose context ended).
type request struct {
	ctx   context.Context
	fn    func(context.Context, *Tx) error
	pc    uintptr // who called InTx, resolved only when it must be named
	state atomic.Int32
	done  chan answer // holds one answer, so the writer never waits for a caller
}

const (
	waiting int32 = iota
	taken
	gone
)

type answer struct {
	err      error
	panicked *panicked
}

// panicked carries a panic of a caller's function back to its caller.
type panicked struct {
	value any
	stack []byte
}

// InTx runs fn in the writer's transaction and returns when it is durable (nil)
// or certainly undone (an error); see the package comment for the one exception
// and for what fn must not do. A panic in fn comes out of InTx.
func (d *DB) InTx(ctx context.Context, fn func(ctx context.Context, tx *Tx) error) error {
	if ctx.Value(nestedKey{}) != nil || d.onWriter() {
		return fault.New(fault.Internal, "nested transaction: %s calls InTx inside InTx", callerName(callerPC()))
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := d.full.refuse(); err != nil {
		return err
	}
	r := &request{ctx: ctx, fn: fn, pc: callerPC(), done: make(chan answer, 1)}
	select {
	case d.queue <- r:
	case <-ctx.Done():
		return ctx.Err()
	case <-d.closing:
		return errClosed()
	}
	var a answer
	select {
	case a = <-r.done:
	case <-ctx.Done():
		if r.state.CompareAndSwap(waiting, gone) {
			return ctx.Err()
		}
		a = <-r.done
	case <-d.closed: // the writer has gone and may not have seen us
		select {
		case a = <-r.done:
		default:
			return errClosed()
		}
	}
	if a.panicked != nil {
		panic(fmt.Sprintf("%v\n\nin the transaction of %s:\n%s", a.panicked.value, callerName(r.pc), a.panicked.stack))
	}
	return a.err
}

func errClosed() error { return fault.New(fault.Unavailable, "the store is closed") }

// writeLoop is the one goroutine that writes. It ends when closing is closed and
// nobody waits any more.
func (d *DB) writeLoop() {
	defer close(d.closed)
	d.writerID.Store(goroutineID())
	var reqs []*request
	for {
		reqs = reqs[:0]
		select {
		case r := <-d.queue:
			reqs = append(reqs, r)
		case <-d.closing:
			select {
			case r := <-d.queue:
				reqs = append(reqs, r)
			default:
				return
			}
		}
		reqs = d.drain(reqs)
		d.runBatch(reqs)
	}
}

// drain adds whoever waits, up to the batch size. It yields once, so that callers
// just woken by the last commit can come back and share the next one.
func (d *DB) drain(reqs []*request) []*request {
	yielded := false
	for len(reqs) < d.maxBatch {
		select {
		case r := <-d.queue:
			reqs = append(reqs, r)
			continue
		default:
		}
		if yielded || d.lastBatch <= 1 {
			break
		}
		yielded = true
		runtime.Gosched()
	}
	d.lastBatch = len(reqs)
	return reqs
}

// batch is one transaction of the writer.
type batch struct {
	db     *DB
	s      *session
	now    int64
	xid    string // PostgreSQL's transaction id, to settle a lost commit
	regs   []*Register
	after  []func()
	topics []string
	depth  int
	lost   bool // the transaction is no longer open
}

// runBatch answers every request exactly once.
func (d *DB) runBatch(reqs []*request) {
	live := reqs[:0]
	for _, r := range reqs {
		if !r.state.CompareAndSwap(waiting, taken) {
			continue
		}
		if err := r.ctx.Err(); err != nil {
			r.done <- answer{err: err}
			continue
		}
		live = append(live, r)
	}
	if len(live) == 0 {
		return
	}
	if again := d.tryBatch(live); len(again) > 0 {
		for _, r := range again {
			d.tryBatch([]*request{r})
		}
	}
}

// tryBatch runs the requests in one transaction. If the transaction was lost it
// returns those to run again, one by one; a batch of one is always answered.
func (d *DB) tryBatch(reqs []*request) (again []*request) {
	b, err := d.begin()
	if err != nil {
		if len(reqs) > 1 {
			return reqs
		}
		reqs[0].done <- answer{err: err}
		return nil
	}
	d.inFn.Store(true)
	defer d.inFn.Store(false)
	answers := make([]answer, len(reqs))
	for i, r := range reqs {
		answers[i] = b.runOne(r, len(reqs) > 1)
		if b.lost {
			break
		}
	}
	single := len(reqs) == 1
	switch {
	case b.lost && !single:
		d.rollback(b)
		return reqs
	case b.lost || single && (answers[0].err != nil || answers[0].panicked != nil):
		d.rollback(b)
	default:
		if err := d.finish(b); err != nil {
			if !single && b.lost {
				return reqs
			}
			for i := range answers {
				if answers[i].err == nil && answers[i].panicked == nil {
					answers[i].err = err
				}
			}
		}
	}
	for i, r := range reqs {
		r.done <- answers[i]
	}
	return nil
}

// runOne runs one caller's function, in a savepoint if it has neighbours.
func (b *batch) runOne(r *request, savepoint bool) (a answer) {
	ctx := context.WithValue(context.WithoutCancel(r.ctx), nestedKey{}, true)
	snap := b.snapshot()
	if savepoint {
		if err := b.s.control(ctx, "SAVEPOINT caller"); err != nil {
			b.lost = true
			return answer{err: b.db.dialect.classify(err)}
		}
	}
	tx := &Tx{b: b}
	a = b.call(ctx, r, tx)
	if a.err == nil && a.panicked == nil && tx.err != nil {
		a.err = tx.err // fn swallowed the error of a statement
	}
	if a.err == nil && a.panicked == nil {
		if !savepoint {
			return a
		}
		if err := b.s.control(ctx, "RELEASE caller"); err == nil {
			return a
		}
		b.lost = true
		return a
	}
	b.db.full.observe(a.err)
	b.restore(snap)
	if savepoint && !b.lost {
		// "No such savepoint" is how a transaction that rolled itself back shows.
		if b.s.control(ctx, "ROLLBACK TO caller") != nil || b.s.control(ctx, "RELEASE caller") != nil {
			b.lost = true
		}
	}
	return a
}

// call runs fn with a watch on how long it holds the batch.
func (b *batch) call(ctx context.Context, r *request, tx *Tx) (a answer) {
	start := time.Now()
	watch := time.AfterFunc(20*slowCaller, func() {
		b.db.log.Warn("transaction function does not return", "caller", callerName(r.pc))
	})
	defer func() {
		watch.Stop()
		if d := time.Since(start); d > slowCaller {
			b.db.log.Warn("transaction function is slow", "caller", callerName(r.pc), "ms", d.Milliseconds())
		}
		if p := recover(); p != nil {
			buf := make([]byte, 8<<10)
			a = answer{panicked: &panicked{p, buf[:runtime.Stack(buf, false)]}}
		}
	}()
	return answer{err: r.fn(ctx, tx)}
}

// finish flushes the registers, commits, and gives the hints. When it fails, lost
// tells whether the transaction is certainly undone and may be run again.
func (d *DB) finish(b *batch) error {
	ctx := context.WithValue(context.Background(), nestedKey{}, true)
	tx := &Tx{b: b}
	for i := 0; i < len(b.regs); i++ { // a flush may add registers
		r := b.regs[i]
		if r.state != regDirty {
			continue
		}
		r.tx, r.state = tx, regLoaded
		err := r.flush(ctx, tx, r.value)
		if err == nil {
			err = tx.err
		}
		if err != nil {
			d.full.observe(err)
			b.lost = true
			d.rollback(b)
			return fmt.Errorf("flush %s: %w", r.name, err)
		}
	}
	if err := d.announce(ctx, b); err != nil {
		b.lost = true
		d.rollback(b)
		return err
	}
	failpoint.Hit("db.commit.before")
	if err := d.commit(ctx, b); err != nil {
		return err
	}
	failpoint.Hit("db.commit.after")
	for _, fn := range b.after {
		fn()
	}
	for _, topic := range b.topics {
		d.signals.wake(topic)
	}
	return nil
}

// onWriter reports whether this is the writer's goroutine, that is, whether the
// caller is inside a function of InTx and would wait for itself.
func (d *DB) onWriter() bool {
	return d.inFn.Load() && goroutineID() == d.writerID.Load()
}

// goroutineID reads the number of this goroutine from its stack's first line.
func goroutineID() int64 {
	var buf [40]byte
	line := buf[:runtime.Stack(buf[:], false)]
	line = bytes.TrimPrefix(line, []byte("goroutine "))
	if i := bytes.IndexByte(line, ' '); i > 0 {
		line = line[:i]
	}
	n, err := strconv.ParseInt(string(line), 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// callerPC is where the exported method that calls it was called from.
func callerPC() uintptr {
	var pcs [1]uintptr
	runtime.Callers(3, pcs[:])
	return pcs[0]
}

func callerName(pc uintptr) string {
	frame, _ := runtime.CallersFrames([]uintptr{pc}).Next()
	return frame.Function + ":" + strconv.Itoa(frame.Line)
}
