package db

import (
	"context"
	"fmt"
	"reflect"
	"runtime"
	"sync/atomic"
	"time"

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
	state atomic.Int32
	done  chan answer // holds one answer, so the writer never waits for a caller

	// The writer's own.
	result  answer
	tries   int
	decided bool // result is final
	sent    bool
}

const (
	waiting int32 = iota
	taken
	gone
)

type answer struct {
	err      error
	panicked *Panic
	exited   bool // fn ended its goroutine
}

func (a answer) ok() bool { return a.err == nil && a.panicked == nil && !a.exited }

// Panic is what InTx panics with when its function did: the function runs on
// the writer's goroutine, so the stack of InTx alone would not show where.
type Panic struct {
	Value  any    // what the function panicked with
	Stack  []byte // of the function
	Caller string // the function and its place
}

func (p *Panic) Error() string {
	return fmt.Sprintf("%v\n\nin the transaction function %s:\n%s", p.Value, p.Caller, p.Stack)
}

// Unwrap returns the value of the panic if it is an error.
func (p *Panic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// insideKey marks the context of a function of InTx or Read, so that a nested one
// is refused instead of waiting for itself.
type insideKey struct{}

// nested refuses InTx and Read inside one another. Inside InTx they would wait
// for themselves or not see what was just written; inside Read they would hold a
// snapshot across a commit, or wait for a second one that never gets free.
func (d *DB) nested(ctx context.Context, fn any) error {
	if ctx.Value(insideKey{}) == nil && !(d.inFn.Load() && onWriteLoop()) {
		return nil
	}
	return fault.New(fault.Internal, "nested transaction: %s runs inside another one", funcName(fn))
}

// InTx runs fn in the writer's transaction and returns when it is durable (nil)
// or certainly undone (an error); see the package comment for the exception and
// for what fn must not do. A panic in fn comes out of InTx as a *Panic.
func (d *DB) InTx(ctx context.Context, fn func(ctx context.Context, tx *Tx) error) error {
	if err := d.nested(ctx, fn); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := d.full.refuse(); err != nil {
		return err
	}
	if cause := d.condemned.Load(); cause != nil {
		return *cause
	}
	if err := d.seated(); err != nil {
		return err
	}
	r := &request{ctx: ctx, fn: fn, done: make(chan answer, 1)}
	select {
	case d.queue <- r:
	case <-ctx.Done():
		return ctx.Err()
	case <-d.closing:
		return errClosed()
	}
	a := d.await(r)
	if a.panicked != nil {
		panic(a.panicked)
	}
	if a.exited {
		runtime.Goexit()
	}
	return a.err
}

// await returns the writer's answer. Once the writer has taken the request, the
// end of the caller's context changes nothing: the rows may be there by then.
func (d *DB) await(r *request) answer {
	select {
	case a := <-r.done:
		return a
	case <-r.ctx.Done():
		if r.state.CompareAndSwap(waiting, gone) {
			return answer{err: r.ctx.Err()}
		}
		return <-r.done
	case <-d.closed: // the writer has gone and may not have seen us
		select {
		case a := <-r.done:
			return a
		default:
			return answer{err: errClosed()}
		}
	}
}

func errClosed() error { return fault.New(fault.Unavailable, "the store is closed") }

// writeLoop is the one goroutine that writes. It ends when closing is closed and
// nobody waits any more. todo is what a loop before it was doing when one of its
// functions ended the goroutine (runtime.Goexit, as by testing.T.Fatal): the loop
// cannot go on then, so a new one takes over.
//
//go:noinline
func (d *DB) writeLoop(todo []*request) {
	finished := false
	defer func() {
		if finished {
			close(d.closed)
			return
		}
		go d.writeLoop(d.salvage())
	}()
	clear(d.kept) // a loop before this one may have ended in the midst of a batch
	d.runBatch(todo)
	var reqs []*request
	for {
		clear(reqs) // what was answered may be collected
		reqs = reqs[:0]
		select {
		case r := <-d.queue:
			reqs = append(reqs, r)
		case <-d.closing:
			select {
			case r := <-d.queue:
				reqs = append(reqs, r)
			default:
				finished = true
				return
			}
		}
		reqs = d.drain(reqs)
		d.runBatch(d.take(reqs))
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

// take keeps the requests whose callers still wait.
func (d *DB) take(reqs []*request) []*request {
	live := reqs[:0]
	for _, r := range reqs {
		if r.state.CompareAndSwap(waiting, taken) {
			live = append(live, r)
		}
	}
	return live
}

// runBatch answers every request exactly once: all in one transaction or, if that
// was lost, each in its own.
func (d *DB) runBatch(todo []*request) {
	d.running = todo
	defer d.watchdog.Stop()
	size := len(todo)
	for len(todo) > 0 {
		part := todo[:min(size, len(todo))]
		if !d.anyLive(part) {
			todo = todo[len(part):]
			continue
		}
		d.watchdog.Reset(20 * slowCaller)
		b, err := d.begin()
		if err != nil { // not a fault of any caller, and nothing was run
			d.fail(err)
			for _, r := range todo {
				r.send(answer{err: err})
			}
			break
		}
		if d.attempt(b, part) {
			size = 1
			continue
		}
		todo = todo[len(part):]
	}
	d.running = nil
}

// anyLive reports whether somebody's context has not ended; otherwise it answers.
func (d *DB) anyLive(part []*request) bool {
	for _, r := range part {
		if r.ctx.Err() == nil {
			return true
		}
	}
	for _, r := range part {
		r.send(answer{err: r.ctx.Err()})
	}
	return false
}

func (r *request) send(a answer) {
	if !r.sent {
		r.sent = true
		r.done <- a
	}
}

// salvage settles what a writer's goroutine was doing when it ended inside a
// function, and returns the requests to run again.
func (d *DB) salvage() (again []*request) {
	d.inFn.Store(false)
	d.dropWriter() // rolls back
	current := d.current.Load()
	for _, r := range d.running {
		switch {
		case r.decided:
			r.send(r.result)
		case r.sent:
		case r == current:
			r.send(answer{exited: true})
		default:
			again = append(again, r)
		}
	}
	d.log.Error("a transaction function ended the writer's goroutine", "caller", currentName(current))
	d.running = nil
	d.current.Store(nil)
	return again
}

// warnStuck is the watchdog's: a batch has been running for a second.
func (d *DB) warnStuck() {
	d.log.Warn("a write batch does not end", "caller", currentName(d.current.Load()))
}

func currentName(r *request) string {
	if r == nil {
		return "none"
	}
	return funcName(r.fn)
}

// funcName names a function and its place, for messages.
func funcName(fn any) string {
	f := runtime.FuncForPC(reflect.ValueOf(fn).Pointer())
	if f == nil {
		return "unknown"
	}
	_, line := f.FileLine(f.Entry())
	return fmt.Sprintf("%s:%d", f.Name(), line)
}

// onWriteLoop reports whether a writer's goroutine runs this, that is, whether a
// function of InTx does, and would wait for itself. It looks for writeLoop at the
// bottom of the stack, which costs a microsecond; the goroutine's number, which
// only its printed stack shows, costs twenty.
func onWriteLoop() bool {
	var pcs [64]uintptr
	for skip := 0; ; skip += len(pcs) {
		n := runtime.Callers(skip, pcs[:])
		if n == len(pcs) {
			continue
		}
		for _, pc := range pcs[max(0, n-4):n] {
			if f := runtime.FuncForPC(pc - 1); f != nil && f.Entry() == writeLoopEntry {
				return true
			}
		}
		return false
	}
}

var writeLoopEntry = reflect.ValueOf((*DB).writeLoop).Pointer()
