package supervise

import (
	"sync"

	"github.com/ombud-run/ombud/internal/guard"
)

// Tail keeps the end of what is written to it, at most so many bytes. It is safe for
// concurrent use, and never fails.
type Tail struct {
	Most int

	mu  sync.Mutex
	end []byte
}

// Write takes a piece.
func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end = append(t.end, p[max(0, len(p)-t.Most):]...)
	if over := len(t.end) - t.Most; over > 0 {
		t.end = append(t.end[:0], t.end[over:]...)
	}
	return len(p), nil
}

// String is what is kept, as it was written, without half a character at its borders.
func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return guard.Whole(string(t.end))
}
