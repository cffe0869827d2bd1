package channel

import (
	"slices"
	"sync"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/outbox"
)

// rate is when something was last said in a chat. It may be forgotten: a network has
// limits of its own.
type rate struct{ at []time.Time }

// maxRates is how many chats are kept in mind.
const maxRates = 4096

// Pace keeps what goes out of a channel within its settings. The zero value is ready; it
// is safe for concurrent use.
type Pace struct {
	mu    sync.Mutex
	rates map[string]*rate // by chat
}

// Quiet is why an item must wait: quiet hours, for what nobody waits for.
func (p *Pace) Quiet(set Settings, it outbox.Item, now time.Time) error {
	left := set.keptBack(now)
	if left <= 0 || !it.Unasked {
		return nil
	}
	why := fault.New(fault.Unavailable, "quiet hours: it is kept back for %s", left.Round(time.Second))
	return &outbox.RetryAfter{After: min(left, time.Minute), Err: why, Kept: true, Aside: true}
}

// Say counts a message, as the network counts them, that is about to go to a chat.
// If as many went there within a minute as its settings let, it is not counted and the
// error says how long to wait.
func (p *Pace) Say(set Settings, chat string, now time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.rates[chat]
	if r == nil {
		if p.rates == nil || len(p.rates) >= maxRates {
			p.rates = map[string]*rate{}
		}
		r = &rate{}
		p.rates[chat] = r
	}
	// What was said later than now was said before the clock was put back.
	r.at = slices.DeleteFunc(r.at, func(at time.Time) bool { return now.Sub(at) >= time.Minute || at.After(now) })
	if len(r.at) >= set.rate() {
		return &outbox.RetryAfter{After: time.Minute - now.Sub(r.at[len(r.at)-set.rate()]), Err: fault.New(fault.Unavailable, "%d messages a minute go to one chat", set.rate())}
	}
	r.at = append(r.at, now)
	return nil
}

// Unsaid takes back what was counted last: it did not go to anybody.
func (p *Pace) Unsaid(chat string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.rates[chat]; r != nil && len(r.at) > 0 {
		r.at = r.at[:len(r.at)-1]
	}
}

// keptBack is why an item must wait. One that was begun is not left half said.
func (l *line) keptBack(it outbox.Item, list []piece) error {
	if slices.ContainsFunc(list, func(p piece) bool { return p.state != waiting }) {
		return nil
	}
	set, _ := l.settings()
	return l.pace.Quiet(set, it, time.UnixMicro(l.c.DB.Time()))
}

// mayGo counts a piece that is about to go to a chat, or says how long it must wait.
func (l *line) mayGo(chat string) error {
	set, _ := l.settings()
	return l.pace.Say(set, chat, time.UnixMicro(l.c.DB.Time()))
}

// gate is a time in which a chat is left alone.
type gate struct{ from, until time.Time }

// left is how long it still is, 0 if it is over or the clock was put back behind its begin.
func (g gate) left(now time.Time) time.Duration {
	if now.Before(g.from) {
		return 0
	}
	return max(0, g.until.Sub(now))
}

// maxGates is how many chats that asked to wait are kept in mind.
const maxGates = 4096

// shut keeps everything from a chat whose network asked to wait: what goes out and what is
// only shown count together there.
func (l *line) shut(at Place, err error) {
	after, asked := outbox.Wait(err)
	if !asked || after <= 0 {
		return
	}
	now := time.UnixMicro(l.c.DB.Time())
	g := gate{now, now.Add(after)}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.gates) >= maxGates {
		clear(l.gates) // a network that is asked too early says so again
	}
	if old := l.gates[at]; old.left(now) < after {
		l.gates[at] = g
	}
}

// shutFor is how long nothing may go to a chat, 0 if something may.
func (l *line) shutFor(at Place) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	left := l.gates[at].left(time.UnixMicro(l.c.DB.Time()))
	if left <= 0 {
		delete(l.gates, at)
	}
	return left
}
