package eventlog

import (
	"context"
	"time"
)

// Tail calls fn for every event after a position that f chooses, in order and as
// they come, until ctx ends or fn returns an error, which it returns. It keeps no
// position of its own: a caller that comes back says where it was.
func (l *Log) Tail(ctx context.Context, after int64, f Filter, fn func(Event) error) error {
	wake, unwatch := l.db.Watch(Topic)
	defer unwatch()
	poll := time.NewTicker(l.poll)
	defer poll.Stop()
	for {
		items, upTo, top, err := l.next(ctx, after, f)
		if err != nil {
			return err
		}
		for _, it := range items {
			if it.err != nil {
				return it.err
			}
			if err := fn(it.Event); err != nil {
				return err
			}
		}
		after = upTo
		if upTo < top {
			continue
		}
		select {
		case <-wake:
		case <-poll.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
