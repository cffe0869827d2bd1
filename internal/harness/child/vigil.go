package child

import (
	"context"
	"sync"
	"time"
)

// vigil keeps the limits of a run. While a person is asked, neither runs.
type vigil struct {
	wall, quiet time.Duration // 0: no limit

	mu     sync.Mutex
	begun  time.Time
	last   time.Time // of a sign of life
	asking int       // permissions that wait for a person
	since  time.Time // the first of them was asked
	waited time.Duration
}

func newVigil(wall, quiet time.Duration) *vigil {
	now := time.Now()
	return &vigil{wall: wall, quiet: quiet, begun: now, last: now}
}

// touch is a sign of life.
func (v *vigil) touch() { v.ask(0) }

// ask counts the permissions that wait up or down.
func (v *vigil) ask(more int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	now, was := time.Now(), v.asking
	v.asking += more
	v.last = now
	switch {
	case was == 0 && v.asking > 0:
		v.since = now
	case was > 0 && v.asking == 0:
		v.waited += now.Sub(v.since)
	}
}

// left is how long it may still be silent, and work.
func (v *vigil) left() (quiet, wall time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := time.Now()
	if v.asking > 0 {
		return v.quiet, v.wall - (v.since.Sub(v.begun) - v.waited)
	}
	return v.quiet - now.Sub(v.last), v.wall - (now.Sub(v.begun) - v.waited)
}

// wait returns the limit that ran out, or "" once it is over.
func (v *vigil) wait(ctx context.Context, over <-chan struct{}) string {
	for {
		quiet, wall := v.left()
		switch {
		case v.wall > 0 && wall <= 0:
			return ReasonWall
		case v.quiet > 0 && quiet <= 0:
			return ReasonQuiet
		case v.quiet == 0:
			quiet = 0
		}
		next := max(quiet, 0)
		if v.wall > 0 && (next == 0 || wall < next) {
			next = wall
		}
		if next > 0 {
			next = max(next, lookEvery) // while a person is asked, what is left stays
		}
		look, stop := after(next)
		select {
		case <-over:
			stop()
			return ""
		case <-ctx.Done():
			stop()
			return ReasonCancelled
		case <-look:
			stop()
		}
	}
}

// lookEvery is how exactly the limits are kept.
const lookEvery = 50 * time.Millisecond

// after is a timer, or for no time none.
func after(d time.Duration) (<-chan time.Time, func()) {
	if d <= 0 {
		return nil, func() {}
	}
	t := time.NewTimer(d)
	return t.C, func() { t.Stop() }
}
