package db

import "sync"

// signals wakes watchers of a topic. A signal is a hint and carries nothing: each
// watcher's channel holds one, more are dropped, and the watcher also polls.
type signals struct {
	mu       sync.Mutex
	watchers map[string]map[chan struct{}]bool
}

func newSignals() *signals { return &signals{watchers: map[string]map[chan struct{}]bool{}} }

// Watch returns a channel that receives after commits which notified topic, on
// any node. It is never closed; stop must be called when done with it.
func (d *DB) Watch(topic string) (<-chan struct{}, func()) {
	ch := make(chan struct{}, 1)
	d.signals.mu.Lock()
	defer d.signals.mu.Unlock()
	if d.signals.watchers[topic] == nil {
		d.signals.watchers[topic] = map[chan struct{}]bool{}
	}
	d.signals.watchers[topic][ch] = true
	return ch, func() {
		d.signals.mu.Lock()
		defer d.signals.mu.Unlock()
		delete(d.signals.watchers[topic], ch)
		if len(d.signals.watchers[topic]) == 0 {
			delete(d.signals.watchers, topic)
		}
	}
}

func (s *signals) wake(topic string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ch := range s.watchers[topic] {
		poke(ch)
	}
}

func (s *signals) wakeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, chs := range s.watchers {
		for ch := range chs {
			poke(ch)
		}
	}
}

func poke(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
