package child

import (
	"strings"
	"sync"

	"github.com/ombud-run/ombud/internal/fault"
)

const (
	maxNote  = 4 << 10 // bytes of its text
	maxAhead = 256     // notes that wait for a slow listener; what does not fit is counted
)

// teller tells the news of a run in order, without ever waiting for who hears it.
type teller struct {
	ahead   chan Note // closed by stop
	omitted int
	telling sync.WaitGroup
}

func newTeller(tell func(Note)) *teller {
	t := &teller{}
	if tell == nil {
		return t
	}
	t.ahead = make(chan Note, maxAhead)
	t.telling.Go(func() {
		for n := range t.ahead {
			tell(n)
		}
	})
	return t
}

// say is called by one goroutine at a time.
func (t *teller) say(n Note) {
	if t.ahead == nil {
		return
	}
	n.Text = fault.Cut(strings.ToValidUTF8(n.Text, "\uFFFD"), maxNote)
	n.Omitted = t.omitted
	select {
	case t.ahead <- n:
		t.omitted = 0
	default:
		t.omitted++
	}
}

// stop returns when all has been told.
func (t *teller) stop() {
	if t.ahead != nil {
		close(t.ahead)
	}
	t.telling.Wait()
}
