package channel

import (
	"time"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/outbox"
)

// rate is when something was last said in a chat. It may be forgotten: a network has
// limits of its own.
type rate struct{ at []time.Time }

// maxRates is how many chats are kept in mind.
const maxRates = 4096

// keptBack is why an item must wait: quiet hours for what nobody waits for, or the limit of
// its chat.
func (l *line) keptBack(it outbox.Item) error {
	set, _ := l.settings()
	now := time.UnixMicro(l.c.DB.Time())
	if left := set.keptBack(now); left > 0 && it.Unasked {
		return &outbox.RetryAfter{After: min(left, 10*time.Minute), Err: fault.New(fault.Unavailable, "quiet hours: it is kept back for %s", left.Round(time.Second)), Kept: true}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.rates[it.Conversation]
	if r == nil {
		if len(l.rates) >= maxRates {
			clear(l.rates)
		}
		r = &rate{}
		l.rates[it.Conversation] = r
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
