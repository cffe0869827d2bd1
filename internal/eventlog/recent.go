package eventlog

import "sync"

// What recent keeps at most.
const (
	recentEvents = 2048
	recentBytes  = 2 << 20
)

// recent is the end of the log in memory, as this node appended it, so that many
// subscriptions do not each read and decrypt what was just written. It is a
// stretch without gaps; an event of another node in between starts it anew, and
// readers that are further behind read the store. Its events are committed.
type recent struct {
	mu     sync.Mutex
	events []Event
	bytes  int
}

// add appends committed events. It runs on the store's writer goroutine: the lock
// is held for copies only.
func (r *recent) add(events []Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range events {
		if n := len(r.events); n > 0 && r.events[n-1].Position+1 != e.Position {
			r.events, r.bytes = nil, 0
		}
		r.events = append(r.events, e)
		r.bytes += len(e.Data)
		for len(r.events) > recentEvents || r.bytes > recentBytes {
			r.bytes -= len(r.events[0].Data)
			r.events[0] = Event{} // lets go of the payload
			r.events = r.events[1:]
		}
	}
}

// forget drops everything: an event in it may have been erased.
func (r *recent) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events, r.bytes = nil, 0
}

// after returns at most limit chosen events after a position, up to where it has
// looked, and its own end. ok is false where only the store can tell: before its
// beginning and at its end.
func (r *recent) after(position int64, limit int, f Filter) (chosen []item, upTo, top int64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(r.events)
	if n == 0 || position+1 < r.events[0].Position || position >= r.events[n-1].Position {
		return nil, 0, 0, false
	}
	top = r.events[n-1].Position
	for _, e := range r.events[position+1-r.events[0].Position:] {
		upTo = e.Position
		if f.Match(e) {
			if chosen = append(chosen, item{Event: e}); len(chosen) == limit {
				break
			}
		}
	}
	return chosen, upTo, top, true
}
