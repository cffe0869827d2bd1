package agent

import "sync"

// Note is something to see of a turn in progress.
type Note struct {
	Text    string // a piece of the reply as it is written
	Restart bool   // forget the text so far
	Status  string // what the turn does now, for a person
}

// liveBuffer is how many notes wait for a slow reader.
const liveBuffer = 512

// Live hands the notes of running turns to whoever watches. A watcher's channel
// holds liveBuffer notes; when it is full further ones are dropped, because a note
// is a hint and the reply is in the store. Live never closes a channel.
type Live struct {
	mu       sync.Mutex
	watchers map[string]map[chan Note]bool // by run
}

func newLive() *Live { return &Live{watchers: map[string]map[chan Note]bool{}} }

// Watch returns the notes of a run from now on. stop must be called.
func (l *Live) Watch(run string) (notes <-chan Note, stop func()) {
	ch := make(chan Note, liveBuffer)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.watchers[run] == nil {
		l.watchers[run] = map[chan Note]bool{}
	}
	l.watchers[run][ch] = true
	return ch, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.watchers[run], ch)
		if len(l.watchers[run]) == 0 {
			delete(l.watchers, run)
		}
	}
}

func (l *Live) send(run string, n Note) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for ch := range l.watchers[run] {
		select {
		case ch <- n:
		default:
		}
	}
}
