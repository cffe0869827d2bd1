package channel

import (
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
	rates map[string]*rate // by conversation
}

// KeptBack is why an item must wait: quiet hours for what nobody waits for, or the limit of
// its chat. If it returns nil, the item counts as said.
func (p *Pace) KeptBack(set Settings, it outbox.Item, now time.Time) error {
	if left := set.keptBack(now); left > 0 && it.Unasked {
		why := fault.New(fault.Unavailable, "quiet hours: it is kept back for %s", left.Round(time.Second))
		return &outbox.RetryAfter{After: min(left, time.Minute), Err: why, Kept: true, Aside: true}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.rates[it.Conversation]
	if r == nil {
		if p.rates == nil || len(p.rates) >= maxRates {
			p.rates = map[string]*rate{}
		}
		r = &rate{}
		p.rates[it.Conversation] = r
	}
	for len(r.at) > 0 && now.Sub(r.at[0]) >= time.Minute {
		r.at = r.at[1:]
	}
	if len(r.at) >= set.rate() {
		wait := time.Minute - now.Sub(r.at[0])
		return &outbox.RetryAfter{After: wait, Err: fault.New(fault.Unavailable, "%d messages a minute go to one chat", set.rate())}
	}
	r.at = append(r.at, now)
	return nil
}

// Unsaid takes back that an item was said: it was not handed to anybody.
func (p *Pace) Unsaid(it outbox.Item) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.rates[it.Conversation]; r != nil && len(r.at) > 0 {
		r.at = r.at[:len(r.at)-1]
	}
}

// keptBack is why an item must wait.
func (l *line) keptBack(it outbox.Item) error {
	set, _ := l.settings()
	return l.pace.KeptBack(set, it, time.UnixMicro(l.c.DB.Time()))
}

// maxStrangers is how many strangers the operator is told of in an hour: whoever has many
// accounts is not to fill their chat.
const maxStrangers = 10

// mayTellOfStranger reports whether the operator may be told of a sender. One they were told
// of within the hour is not told again, and does not count.
func (l *line) mayTellOfStranger(sender string) bool {
	now := time.UnixMicro(l.c.DB.Time())
	l.mu.Lock()
	defer l.mu.Unlock()
	for who, at := range l.strangers {
		if now.Sub(at) >= time.Hour || at.After(now) {
			delete(l.strangers, who)
		}
	}
	if _, told := l.strangers[sender]; told || len(l.strangers) >= maxStrangers {
		return false
	}
	l.strangers[sender] = now
	return true
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
	until := time.UnixMicro(l.c.DB.Time()).Add(after)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.gates) >= maxGates {
		clear(l.gates) // a network that is asked too early says so again
	}
	if until.After(l.gates[at]) {
		l.gates[at] = until
	}
}

// shutFor is how long nothing may go to a chat, 0 if something may.
func (l *line) shutFor(at Place) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	left := l.gates[at].Sub(time.UnixMicro(l.c.DB.Time()))
	if left <= 0 {
		delete(l.gates, at)
		return 0
	}
	return left
}
