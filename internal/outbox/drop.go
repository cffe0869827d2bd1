package outbox

import (
	"context"
	"errors"

	"github.com/ombud-run/ombud/internal/db"
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
