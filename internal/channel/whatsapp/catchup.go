package whatsapp

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/ombud-run/ombud/internal/channel"
	"github.com/ombud-run/ombud/internal/fault"
)

const (
	window  = 12 * time.Hour // how far back is looked: who was away for a week does not want last week answered
	most    = 200            // messages taken at once
	overlap = time.Minute    // messages are not told in the order of their times
	fresh   = 20 * time.Second
)

// load is the committed cursor. ok is false if there was none ever.
func (a *wacli) load(ctx context.Context, in channel.Intake) (at time.Time, ok bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.loaded {
		text, err := in.Cursor(ctx)
		if err != nil {
			return time.Time{}, false, err
		}
		if t, err := time.Parse(time.RFC3339, text); err == nil && t.After(a.cursor) {
			a.cursor = t
		}
		a.loaded = true
	}
	return a.cursor, !a.cursor.IsZero(), nil
}

// mark moves the cursor to a message, and never back. It is "" while an older message is
// owed: the cursor must not pass that.
func (a *wacli) mark(at time.Time) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.owed.IsZero() {
		return ""
	}
	if at.After(a.cursor) {
		a.cursor = at
	}
	return a.cursor.UTC().Format(time.RFC3339)
}

// owe notes a message that is to be looked for in wacli's list.
func (a *wacli) owe(at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.owing++
	if a.owed.IsZero() || at.Before(a.owed) {
		a.owed = at
	}
}

// toCatchUp reports whether a message is owed, or the hook was silent for long.
func (a *wacli) toCatchUp() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.owed.IsZero() || time.Since(a.heard) >= silence
}

// catchUp takes what wacli has and we have not. What fails is tried again in a minute.
func (a *wacli) catchUp(ctx context.Context, in channel.Intake) {
	if err := a.missed(ctx, in); err != nil && ctx.Err() == nil {
		a.owe(time.Now())
		a.log.WarnContext(ctx, "what WhatsApp said meanwhile could not be taken in; it is tried again", "error", err)
	}
}

func (a *wacli) missed(ctx context.Context, in channel.Intake) error {
	cursor, ok, err := a.load(ctx, in)
	if err != nil {
		return err
	}
	now := time.Now().UTC()
	if !ok { // the first start ever: history is not news
		a.settled(now, 0)
		return in.Advance(ctx, a.mark(now))
	}
	a.mu.Lock()
	from, owing := cursor, a.owing
	if !a.owed.IsZero() && a.owed.Before(from) {
		from = a.owed
	}
	a.mu.Unlock()
	from = from.Add(-overlap)
	if floor := now.Add(-window); from.Before(floor) {
		from = floor
	}
	found, later, err := a.find(ctx, from, now)
	if err != nil {
		return err
	}
	a.settled(now, owing)
	for _, m := range found {
		m.Cursor = a.mark(m.At)
		if err := in.Take(ctx, m); err != nil {
			a.owe(m.At)
			return err
		}
	}
	if !later.IsZero() {
		a.owe(later)
	}
	return nil
}

// settled says that wacli's list was read, so that what was owed before is owed no more. What
// came to be owed since owing was read may not be in it.
func (a *wacli) settled(now time.Time, owing int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.heard = now
	if a.owing == owing {
		a.owed = time.Time{}
	}
}

// find is what others said from a time on in chats that are not locked, the oldest first.
// later is the time of the oldest message that is better told by the hook, if there is
// one: only there is it said who a message of a group mentions, and the hook tries for a
// quarter of a minute.
func (a *wacli) find(ctx context.Context, from, now time.Time) (found []channel.Received, later time.Time, err error) {
	rows, err := a.list(ctx, from)
	if err != nil || len(rows) == 0 {
		return nil, later, err
	}
	open, err := a.unlocked(ctx)
	if err != nil {
		return nil, later, err
	}
	me := a.self()
	for _, r := range rows {
		chat, ok := open[normal(r.ChatJID)]
		if !ok {
			continue
		}
		m, ok := r.received(chat, me, now)
		switch {
		case !ok || m.Own:
		case m.Group && !m.MentionsMe && !m.QuotesMe && now.Sub(m.At) < fresh:
			if later.IsZero() || m.At.Before(later) {
				later = m.At
			}
		default:
			found = append(found, m)
		}
	}
	slices.SortStableFunc(found, func(a, b channel.Received) int { return cmp.Compare(a.At.UnixNano(), b.At.UnixNano()) })
	left := max(0, len(found)-most)
	if left > 0 || len(rows) >= maxRows {
		a.log.WarnContext(ctx, "more was said on WhatsApp than is taken in afterwards: older messages are left out", "left_out_at_least", left, "from", from)
	}
	return found[left:], later, nil
}

// unlocked are the chats that wacli's owner opened to programs. Its list of messages has
// those of all chats, its hook has not.
func (a *wacli) unlocked(ctx context.Context) (map[string]chatRow, error) {
	e, err := a.exec(ctx, maxList, "api", "GET", "/chats?filter=unlocked&limit=5000")
	if err != nil {
		return nil, err
	}
	var l struct {
		Chats channel.Rows[chatRow] `json:"chats"`
	}
	if e.killed != nil || e.code != 0 || e.over || json.Unmarshal(e.out, &l) != nil {
		return nil, fault.New(fault.Unavailable, "wacli does not say which chats are locked, so none is looked at (code %d)", e.code)
	}
	open := map[string]chatRow{}
	for _, c := range l.Chats {
		if !c.Locked {
			c.JID = normal(c.JID)
			open[c.JID] = c
		}
	}
	return open, nil
}
