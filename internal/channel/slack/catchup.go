package slack

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/ombud-run/ombud/internal/channel"
	"github.com/ombud-run/ombud/internal/outbox"
)

const (
	missedMost  = 200 // messages read of one channel, the newest
	missedPages = 20
	threadsMost = 10 // threads read of one channel

	catchUpWithin = time.Minute

	// Sockets and retries mix the order: what is older than what was taken in last may be
	// missing. What was taken in is the same again.
	overlap = time.Minute
)

// after is the cursor behind a message.
func (c cursor) after(ch, thread, ts string) cursor {
	c = cursor{maps.Clone(c.Channels), maps.Clone(c.Threads)}
	put(c.Channels, ch, ts, maxChannels)
	c.spoke(ch, thread, ts)
	return c
}

// nextBehind is the channel to catch up with next: the one that was used last.
func (r *run) nextBehind() (ch string) {
	for c := range r.behind {
		if ch == "" || later(r.cursor.Channels[c], r.cursor.Channels[ch]) {
			ch = c
		}
	}
	return ch
}

// catchUp takes in what was written in a channel behind the cursor, oldest first. What
// fails is tried again later; a channel that ombud may not read is left.
func (r *run) catchUp(ctx context.Context, ch string, within time.Duration) {
	look, cancel := context.WithTimeout(ctx, within)
	missed, err := r.missed(look, ch)
	cancel()
	switch limited, ok := errors.AsType[*outbox.RetryAfter](err); {
	case err == nil:
	case ok:
		r.pause = r.pace.now().Add(limited.After)
		return
	case unreadable[codeOf(err)]:
		r.log.WarnContext(ctx, "slack shows no history of a channel", "channel", ch, "error", err)
		delete(r.behind, ch)
		return
	default:
		r.log.WarnContext(ctx, "slack history was not read", "channel", ch, "error", err)
		r.pause = r.pace.now().Add(r.pace.again)
		return
	}
	delete(r.behind, ch) // so that each message moves the cursor
	for _, m := range missed {
		if err := r.take(ctx, m); err != nil {
			r.log.WarnContext(ctx, "slack message was not taken in", "error", err)
			return
		}
	}
}

// unreadable are the refusals after which a channel is left: it is gone, or not ombud's.
var unreadable = map[string]bool{"channel_not_found": true, "not_in_channel": true, "missing_scope": true, "is_archived": true}

// missed reads what came behind the cursor: in the channel, and in the threads that
// somebody spoke in lately.
func (r *run) missed(ctx context.Context, ch string) (all []message, err error) {
	at, _ := micros(r.cursor.Channels[ch]) // the cursor has no other
	oldest := stamp(at - overlap.Microseconds())
	if far := stamp(r.pace.now().Add(-horizon).UnixMicro()); later(far, oldest) {
		oldest = far
	}
	all, err = r.since(ctx, channel.Place{Chat: ch}, oldest)
	if err != nil {
		return nil, err
	}
	for _, root := range r.roots(ch, all) {
		replies, err := r.since(ctx, channel.Place{Chat: ch, Thread: root}, oldest)
		if err != nil && codeOf(err) != "thread_not_found" {
			return nil, err
		}
		all = append(all, replies...)
	}
	slices.SortFunc(all, func(a, b message) int { return compare(a.TS, b.TS) })
	return slices.CompactFunc(all, func(a, b message) bool { return a.TS == b.TS }), nil
}

// since reads what somebody wrote after oldest, the newest of it if it is too much. Slack
// may give few a page.
func (r *run) since(ctx context.Context, at channel.Place, oldest string) (all []message, err error) {
	for cursor, n := "", 0; ; n++ {
		p, err := r.page(ctx, at, oldest, cursor)
		if err != nil {
			return nil, err
		}
		for _, m := range p.Messages {
			if m.written() && later(m.TS, oldest) {
				all = append(all, m)
			}
		}
		cursor = p.NextCursor
		if cursor == "" {
			return all, nil
		}
		if len(all) >= missedMost || n+1 >= missedPages {
			r.log.WarnContext(ctx, "slack has more messages than are read after a pause", "channel", at.Chat, "read", len(all))
			return all, nil
		}
	}
}

// roots are the threads to read: those that began lately, and those that are known.
func (r *run) roots(ch string, lately []message) (roots []string) {
	for _, m := range lately {
		if _, ok := micros(m.LatestReply); ok && len(roots) < threadsMost {
			roots = append(roots, m.TS)
		}
	}
	far := stamp(r.pace.now().Add(-2 * horizon).UnixMicro())
	for _, root := range r.cursor.threads(ch, far, threadsMost) {
		if !slices.Contains(roots, root) && len(roots) < threadsMost {
			roots = append(roots, root)
		}
	}
	return roots
}
