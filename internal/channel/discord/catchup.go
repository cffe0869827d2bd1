package discord

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/channel"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/outbox"
)

// maxChannels bounds the cursor: those that were written in last stay.
const maxChannels = 500

// page is how many messages are read at once; two pages are read of a channel.
const page = 100

// disorder is how late a message may be told of that has an earlier id than another.
const disorder = 10 * time.Second

// cursor is the last message of each channel that was taken in. It is never changed.
type cursor struct{ last map[string]string }

// parseCursor reads what String wrote; what cannot be read is left out.
func parseCursor(text string) *cursor {
	c := &cursor{map[string]string{}}
	var m map[string]string
	if json.Unmarshal([]byte(text), &m) != nil {
		return c
	}
	for channel, id := range m {
		if snowflake(channel) && snowflake(id) {
			c = c.with(channel, id)
		}
	}
	return c
}

func (c *cursor) String() string {
	data, err := json.Marshal(c.last)
	if err != nil {
		return ""
	}
	return string(data)
}

func (c *cursor) channels() map[string]string { return c.last }

// with returns the cursor after a message; it never goes back.
func (c *cursor) with(channel, id string) *cursor {
	if old, ok := c.last[channel]; ok && !later(id, old) {
		return c
	}
	next := &cursor{maps.Clone(c.last)}
	next.last[channel] = id
	for len(next.last) > maxChannels {
		oldest := channel
		for ch, id := range next.last {
			if later(next.last[oldest], id) {
				oldest = ch
			}
		}
		delete(next.last, oldest)
	}
	return next
}

// later reports whether an id is of a later message than another.
func later(id, than string) bool { return compareIDs(id, than) > 0 }

func compareIDs(a, b string) int {
	a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
}

// behind are the channels that a new session has to read up on.
type behind struct {
	after  map[string]string    // channel → the last message that was taken in
	when   map[string]time.Time // when to try again, of those that failed
	seen   map[string]string    // the channels of the cursor when the session began
	mark   string               // about the last message that was taken in anywhere; "": none was
	guilds map[string]bool      // those still to come: they say which roles ombud has
	settle time.Time            // when they are no longer waited for
}

func (b *behind) begin(channels map[string]string, guilds []server, settle time.Time) {
	// What an earlier session left unread is in the cursor as it was.
	*b = behind{after: maps.Clone(channels), seen: channels, when: map[string]time.Time{}, guilds: map[string]bool{}, settle: settle}
	if len(channels) > 0 {
		last := slices.MaxFunc(slices.Collect(maps.Values(channels)), compareIDs)
		b.mark = fmt.Sprint(idAt(timeOf(last).Add(-disorder)))
	}
	for _, g := range guilds {
		b.guilds[g.ID] = true
	}
}

// arrived looks at the last messages of a guild's channels: where there is nothing new is
// nothing to read, and where somebody wrote for the first time since the last message that
// was taken in anywhere, there is.
func (b *behind) arrived(s server) {
	if !b.guilds[s.ID] {
		return // it was joined just now
	}
	delete(b.guilds, s.ID)
	for _, r := range slices.Concat(s.Channels, s.Threads) {
		switch {
		case !snowflake(r.ID) || !snowflake(r.Last):
		case b.has(r.ID):
			if !later(r.Last, b.after[r.ID]) {
				b.done(r.ID)
			}
		case b.mark != "" && later(r.Last, b.mark) && b.seen[r.ID] == "" && len(b.after) < 2*maxChannels:
			b.after[r.ID] = b.mark
		}
	}
}

func (b *behind) has(channel string) bool { _, ok := b.after[channel]; return ok }

func (b *behind) done(channel string) { delete(b.after, channel); delete(b.when, channel) }

// due is how long until there is a channel to read; 0: now.
func (b *behind) due(now time.Time) time.Duration {
	if len(b.after) == 0 {
		return time.Hour
	}
	if len(b.guilds) > 0 && now.Before(b.settle) {
		return b.settle.Sub(now)
	}
	return max(0, b.when[b.first()].Sub(now))
}

// first is the channel to read next.
func (b *behind) first() string {
	return slices.MinFunc(slices.Sorted(maps.Keys(b.after)), func(x, y string) int { return b.when[x].Compare(b.when[y]) })
}

// readUp takes in what was written in a channel since the last message. If that cannot be
// done now, the channel stays behind; if Discord says never, it is let go. An error is the
// store's, or that of the end of ctx: nothing of the channel may be taken in before it.
func (r *runner) readUp(ctx context.Context, channel string) error {
	err := r.readChannel(ctx, channel, r.behind.after[channel])
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if _, ok := errors.AsType[*unkept](err); ok {
		return err
	}
	switch {
	case err == nil:
		r.behind.done(channel)
		if r.told {
			r.up()
		}
	case fault.Is(err, fault.NotFound), fault.Is(err, fault.Denied), fault.Is(err, fault.Invalid):
		r.log.Info("a channel cannot be read up on", "channel", channel, "err", err)
		r.behind.done(channel)
	default:
		if e, ok := errors.AsType[*outbox.RetryAfter](err); ok {
			r.behind.when[channel] = time.Now().Add(e.After)
			return nil // that is no trouble
		}
		r.behind.when[channel] = time.Now().Add(r.set.retry)
		r.down(fault.New(fault.Unavailable, "what was written in channel %s meanwhile cannot be read: %w", channel, err))
	}
	return nil
}

func (r *runner) readChannel(ctx context.Context, channel, after string) error {
	in, err := r.places.room(ctx, channel)
	if err != nil {
		return err
	}
	list, err := r.missed(ctx, channel, after)
	if err != nil {
		return err
	}
	for _, m := range list {
		m.ChannelID = channel
		if !written(m) {
			continue
		}
		if err := r.take(ctx, m, in, true); err != nil {
			return err
		}
	}
	return nil
}

// missed returns what was written after a message, oldest first: all of it, or the first
// and the last hundred.
func (r *runner) missed(ctx context.Context, channel, after string) ([]message, error) {
	first, whole, err := r.history(ctx, channel, fmt.Sprintf("after=%s&limit=%d", after, page))
	if err != nil || whole || len(first) == 0 {
		return first, err
	}
	end := first[len(first)-1].ID
	last, whole, err := r.history(ctx, channel, fmt.Sprintf("limit=%d", page))
	if err != nil {
		return nil, err
	}
	if !whole && len(last) > 0 && later(last[0].ID, end) {
		r.log.Warn("more was written in a channel than is read up on", "channel", channel, "from", end, "to", last[0].ID)
	}
	last = slices.DeleteFunc(last, func(m message) bool { return !later(m.ID, end) })
	return append(first, last...), nil
}

// history reads messages, oldest first, without those whose shape is not known. whole says
// that there are no more.
func (a *Adapter) history(ctx context.Context, room, query string) (list []message, whole bool, err error) {
	var raw []json.RawMessage
	if err := a.api.call(ctx, http.MethodGet, "/channels/"+room+"/messages?"+query, nil, &raw); err != nil {
		return nil, false, err
	}
	list = slices.DeleteFunc(channel.Decoded[message](raw), func(m message) bool { return !snowflake(m.ID) })
	slices.SortFunc(list, func(a, b message) int { return compareIDs(a.ID, b.ID) })
	return list, len(raw) < page, nil
}
