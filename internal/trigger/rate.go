package trigger

import (
	"sync"
	"time"
)

// rates bound the calls of each route. They are kept in memory only: after a restart each
// begins full.
type rates struct {
	mu sync.Mutex
	m  map[string]*bucket
}

type bucket struct {
	left float64
	at   time.Time
}

// take takes one of the calls of a route; false if none is left, and for how long.
func (r *rates) take(path string, perMinute int, now time.Time) (wait time.Duration, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.m == nil {
		r.m = map[string]*bucket{}
	}
	most := float64(perMinute)
	b := r.m[path]
	if b == nil {
		b = &bucket{left: most, at: now}
		r.m[path] = b
	}
	if passed := now.Sub(b.at); passed > 0 {
		b.left, b.at = min(most, b.left+passed.Minutes()*most), now
	}
	if b.left < 1 {
		return time.Duration((1 - b.left) / most * float64(time.Minute)), false
	}
	b.left--
	return 0, true
}

// room bounds the bodies that are in memory at once.
type room struct {
	mu   sync.Mutex
	used int64
}

// maxBodies is how many bytes of bodies are taken in at once.
const maxBodies = 64 << 20

func (r *room) enter(n int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.used+n > maxBodies {
		return false
	}
	r.used += n
	return true
}

func (r *room) leave(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used -= n
}
