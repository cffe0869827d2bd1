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
}

// NewClock returns a clock that runs.
func NewClock() *Clock { return &Clock{began: time.Now()} }

// Ask stops the clock until done is called, which may be called twice. Questions may
// overlap.
func (c *Clock) Ask() (done func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asking++; c.asking == 1 {
		c.since = time.Now()
	}
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.asking--; c.asking == 0 {
			c.asked += time.Since(c.since)
		}
	})
}

// Asked is how long persons were asked.
func (c *Clock) Asked() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asking > 0 {
		return c.asked + time.Since(c.since)
	}
	return c.asked
}

// Worked is how long the clock ran.
func (c *Clock) Worked() time.Duration { return time.Since(c.began) - c.Asked() }

// Bound returns a context that ends with cause when the clock has run for so long. It is
// otherwise what context.WithTimeoutCause returns.
func (c *Clock) Bound(ctx context.Context, most time.Duration, cause error) (context.Context, context.CancelFunc) {
	inner, cancel := context.WithCancelCause(ctx)
	b := &bound{Context: inner, clock: c, most: most, done: make(chan struct{})}
	context.AfterFunc(inner, func() { close(b.done) })
	look := func() bool {
		if c.Worked() < most {
			return false
		}
		b.over.Store(inner.Err() == nil)
		cancel(cause)
		return true
	}
	var timer *time.Timer
	var mu sync.Mutex // a timer of no length is heard before it is there
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(max(0, most-c.Worked()), func() {
		if !look() {
			mu.Lock()
			defer mu.Unlock()
			timer.Reset(max(most-c.Worked(), standstill))
		}
	})
	context.AfterFunc(inner, func() {
		mu.Lock()
		defer mu.Unlock()
		timer.Stop()
	})
	return b, func() { cancel(context.Canceled) }
}

// standstill is how soon a clock that stands still is looked at again: what is left of its
// time does not shrink while a person is asked.
const standstill = 20 * time.Millisecond

// bound is a context with a deadline that moves. Its done channel is its own: contexts
// made from it ask Err why it ended, and not what it is made of.
type bound struct {
	context.Context
	clock *Clock
	most  time.Duration
	over  atomic.Bool
	done  chan struct{}
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
