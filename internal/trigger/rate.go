package trigger

import (
	"errors"
	"io"
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

// room bounds the bodies that are in memory at once. What counts is what came, not what
// was announced, and no route has more than half: those who have proved nothing yet do not
// fill it for all.
type room struct {
	mu     sync.Mutex
	used   int64
	routes map[string]int64
}

const (
	maxBodies = 64 << 20      // how many bytes of bodies are in memory at once
	maxOfOne  = maxBodies / 2 // of one route
)

func (r *room) enter(path string, n int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.used+n > maxBodies || r.routes[path]+n > maxOfOne {
		return false
	}
	if r.routes == nil {
		r.routes = map[string]int64{}
	}
	r.used += n
	r.routes[path] += n
	return true
}

func (r *room) leave(path string, n int64) {
	if n == 0 {
		return // nothing came
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used -= n
	if r.routes[path] -= n; r.routes[path] <= 0 {
		delete(r.routes, path)
	}
}

var errFull = errors.New("too much is sent at once")

// incoming is a body that takes room as it comes, until it leaves.
type incoming struct {
	from io.Reader
	room *room
	path string
	n    int64
}

func (b *incoming) Read(p []byte) (int, error) {
	n, err := b.from.Read(p)
	if n > 0 {
		if !b.room.enter(b.path, int64(n)) {
			return 0, errFull
		}
		b.n += int64(n)
	}
	return n, err
}

func (b *incoming) leave() { b.room.leave(b.path, b.n) }
