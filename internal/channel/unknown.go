package channel

import (
	"slices"
	"sync"
	"time"
)

// Bounds of what people nobody knows make ombud say within an hour: whoever has many accounts
// is not to fill the operator's chat, nor to make ombud fill theirs.
const (
	maxStrangers  = 10 // whom the operator is told of
	wrongOfSender = 5  // wrong codes of one sender that are answered
	wrongOfAll    = 20 // wrong codes of all senders that are
)

// Unknown keeps what people nobody knows can make ombud say within bounds. The zero value is
// ready; it is safe for concurrent use. It may be forgotten: then they begin anew.
type Unknown struct {
	mu        sync.Mutex
	strangers map[string]time.Time // when the operator was told of one
	wrong     []guess
	told      time.Time // when the operator was told of wrong codes
}

// guess is a wrong code that was answered.
type guess struct {
	sender string
	at     time.Time
}

// recent reports whether at is within the hour before now. A clock that was put back ends it.
func recent(at, now time.Time) bool { return now.Sub(at) < time.Hour && !at.After(now) }

// MayTell reports whether the operator may be told of a stranger. One they were told of
// within the hour is not told again, and does not count.
func (u *Unknown) MayTell(sender string, now time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	for who, at := range u.strangers {
		if !recent(at, now) {
			delete(u.strangers, who)
		}
	}
	if _, told := u.strangers[sender]; told || len(u.strangers) >= maxStrangers {
		return false
	}
	if u.strangers == nil {
		u.strangers = map[string]time.Time{}
	}
	u.strangers[sender] = now
	return true
}

// Wrong counts a wrong pairing code. answer says whether its sender may be told that it is;
// tell, whether the operator is to be told that they are not.
func (u *Unknown) Wrong(sender string, now time.Time) (answer, tell bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.wrong = slices.DeleteFunc(u.wrong, func(g guess) bool { return !recent(g.at, now) })
	own := 0
	for _, g := range u.wrong {
		if g.sender == sender {
			own++
		}
	}
	if own < wrongOfSender && len(u.wrong) < wrongOfAll {
		u.wrong = append(u.wrong, guess{sender, now})
		return true, false
	}
	tell = !recent(u.told, now)
	if tell {
		u.told = now
	}
	return false, tell
}
