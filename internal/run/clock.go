package run

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Clock counts how long something is worked on, without the time in which a person is
// asked. It is safe for concurrent use.
type Clock struct {
	began time.Time

	mu     sync.Mutex
	asking int       // questions that are open
	since  time.Time // the first of them was put
	asked  time.Duration
	bounds map[*bound]struct{} // what ends by it
}

// NewClock returns a clock that runs.
func NewClock() *Clock { return &Clock{began: time.Now(), bounds: map[*bound]struct{}{}} }

// Ask stops the clock until done is called, which may be called twice. Questions may
// overlap.
func (c *Clock) Ask() (done func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asking++; c.asking == 1 {
		c.since = time.Now()
		for b := range c.bounds {
			b.timer.Stop()
		}
	}
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.asking--; c.asking == 0 {
			c.asked += time.Since(c.since)
			for b := range c.bounds {
				b.timer.Reset(max(0, b.most-c.worked()))
			}
		}
	})
}

// Asked is how long persons were asked.
func (c *Clock) Asked() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.askedFor()
}

func (c *Clock) askedFor() time.Duration {
	if c.asking > 0 {
		return c.asked + time.Since(c.since)
	}
	return c.asked
}

// Worked is how long the clock ran.
func (c *Clock) Worked() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.worked()
}

func (c *Clock) worked() time.Duration { return time.Since(c.began) - c.askedFor() }

// Bound returns a context that ends with cause when the clock has run for so long. It is
// otherwise what context.WithTimeoutCause returns.
func (c *Clock) Bound(ctx context.Context, most time.Duration, cause error) (context.Context, context.CancelFunc) {
	inner, cancel := context.WithCancelCause(ctx)
	b := &bound{Context: inner, clock: c, most: most, done: make(chan struct{})}
	c.mu.Lock()
	defer c.mu.Unlock()
	b.timer = time.AfterFunc(max(0, most-c.worked()), func() { b.look(cancel, cause) })
	if c.asking > 0 {
		b.timer.Stop()
	}
	c.bounds[b] = struct{}{}
	context.AfterFunc(inner, func() {
		close(b.done)
		c.mu.Lock()
		defer c.mu.Unlock()
		b.timer.Stop()
		delete(c.bounds, b)
	})
	return b, func() { cancel(context.Canceled) }
}

// bound is a context with a deadline that moves. Its done channel is its own: contexts
// made from it ask Err why it ended, and not what it is made of.
type bound struct {
	context.Context
	clock *Clock
	most  time.Duration
	timer *time.Timer // stopped while the clock stands still
	over  atomic.Bool
	done  chan struct{}
}

// look ends it if its time is over. A question that was put as its timer fired will have
// that set again.
func (b *bound) look(cancel context.CancelCauseFunc, cause error) {
	b.clock.mu.Lock()
	over := b.clock.worked() >= b.most
	b.clock.mu.Unlock()
	if over {
		b.over.Store(b.Context.Err() == nil)
		cancel(cause)
	}
}

// Deadline implements context.Context: when it ends if nobody is asked from now on.
func (b *bound) Deadline() (time.Time, bool) {
	at := time.Now().Add(b.most - b.clock.Worked())
	if outer, ok := b.Context.Deadline(); ok && outer.Before(at) {
		at = outer
	}
	return at, true
}

// Done implements context.Context.
func (b *bound) Done() <-chan struct{} { return b.done }

// AfterFunc lets contexts be made from it without a goroutine for each.
func (b *bound) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(b.Context, f) }

// Err implements context.Context.
func (b *bound) Err() error {
	err := b.Context.Err()
	if err != nil && b.over.Load() {
		return context.DeadlineExceeded
	}
	return err
}
