package outbox

import (
	"context"
	"errors"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
)

// DropAll skips everything that waits to be sent or was being sent when its daemon
// ended; a person can have each sent after all. It is for a held outbox: nothing of
// it may be under way. It returns how many.
func (o *Outbox) DropAll(ctx context.Context, by, note string) (n int, err error) {
	for _, state := range []State{Queued, Sending} {
		for {
			list, err := o.List(ctx, Filter{State: state, Limit: 1000})
			if err != nil || len(list) == 0 {
				if err != nil {
					return n, err
				}
				break
			}
			for _, it := range list {
				if err := o.drop(ctx, it.ID, by, note); err != nil {
					return n, err
				}
				n++
			}
		}
	}
	return n, nil
}

func (o *Outbox) drop(ctx context.Context, id, by, note string) error {
	err := o.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		it, err := o.move(ctx, tx, id, func(it *Item) error {
			if it.State != Queued && it.State != Sending {
				return errStale
			}
			it.PossibleRepeat = it.PossibleRepeat || it.State == Sending // should it be sent after all
			it.State, it.owner = Skipped, ""
			return nil
		})
		if err != nil {
			return err
		}
		return o.tell(ctx, tx, &it, KindDecided, by, DecidedData{Item: id, Decision: Skip, By: by, Note: note})
	})
	if errors.Is(err, errStale) {
		return nil
	}
	return err
}

// FailTx fails, as part of tx, everything of a channel that waits to be sent: nothing will be
// any more, for the reason given. What is under way ends as it ends. Of more than maxFailed
// the rest fails when it would be sent.
func (o *Outbox) FailTx(ctx context.Context, tx *db.Tx, channel string, reason error) error {
	ids, err := db.All(ctx, tx, db.Column[string], "SELECT id FROM outbox WHERE channel = $1 AND state = 'queued' ORDER BY seq LIMIT $2", channel, int64(maxFailed))
	for _, id := range ids {
		if err != nil {
			return err
		}
		var it Item
		it, err = o.move(ctx, tx, id, func(it *Item) error {
			it.State, it.ErrorClass, it.Error = Failed, fault.ClassOf(reason), reason.Error()
			return nil
		})
		if err == nil {
			err = o.tellEnd(ctx, tx, &it)
		}
	}
	return err
}

// maxFailed is how many items fail in one commit.
const maxFailed = 1000

// LostTx fails, as part of tx, an item that was delivered as far as its channel knew then.
// Conflict if it is not delivered.
func (o *Outbox) LostTx(ctx context.Context, tx *db.Tx, id string, reason error) error {
	it, err := o.move(ctx, tx, id, func(it *Item) error {
		if it.State != Delivered {
			return errStale
		}
		it.State, it.ErrorClass, it.Error, it.DeliveredAt, it.since = Failed, fault.ClassOf(reason), reason.Error(), 0, tx.Now()
		return nil
	})
	if err != nil {
		return err
	}
	return o.tellEnd(ctx, tx, &it)
}
