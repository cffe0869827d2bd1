package child

import (
	"context"
	"sync"
	"time"
)

// vigil keeps the limits of a run.
type vigil struct {
	wall, quiet time.Duration // 0: no limit

	mu     sync.Mutex
	last   time.Time // of a sign of life
	asking int       // permissions that wait for a person
}

func newVigil(wall, quiet time.Duration) *vigil {
	return &vigil{wall: wall, quiet: quiet, last: time.Now()}
}

// touch is a sign of life.
func (v *vigil) touch() { v.ask(0) }

// ask counts the permissions that wait up or down. While one waits, silence is ours.
func (v *vigil) ask(more int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.asking += more
	v.last = time.Now()
}

// left is how long it may still be silent.
func (v *vigil) left() time.Duration {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.asking > 0 {
		return v.quiet
	}
	return v.quiet - time.Since(v.last)
}

// wait returns the limit that ran out, or "" once it is over.
func (v *vigil) wait(ctx context.Context, over <-chan struct{}) string {
	wall, stop := after(v.wall)
	defer stop()
	for {
		left := v.left()
		if v.quiet > 0 && left <= 0 {
			return ReasonQuiet
		}
		quiet, stop := after(max(left, 0))
		select {
		case <-over:
			stop()
			return ""
		case <-ctx.Done():
			stop()
			return ReasonCancelled
		case <-wall:
			stop()
			return ReasonWall
		case <-quiet:
			stop()
		}
	}
}

// after is a timer, or for no time none.
func after(d time.Duration) (<-chan time.Time, func()) {
	if d <= 0 {
		return nil, func() {}
	}
	t := time.NewTimer(d)
	return t.C, func() { t.Stop() }
}
