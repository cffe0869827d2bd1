package outbox

import (
	"context"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
)

// bury makes a dead letter of an item that failed for good or is in doubt.
func (o *Outbox) bury(ctx context.Context, tx *db.Tx, it *Item) error {
	_, err := o.log.BuryTx(ctx, tx, eventlog.DeadLetter{
		Source: eventlog.FromDelivery, Name: it.Channel, Ref: it.ID, Title: string(it.State), Cause: it.Run, Class: it.ErrorClass, Error: it.Error,
		Attempts: int64(it.Attempts), First: it.since,
	})
	return err
}

// exhume settles the dead letter of an item that moves on, by whatever way it does.
func (o *Outbox) exhume(ctx context.Context, tx *db.Tx, it *Item) error {
	to := eventlog.LetterReplayed
	if it.State == Skipped {
		to = eventlog.LetterDropped
	}
	return o.log.SettleRefTx(ctx, tx, eventlog.FromDelivery, it.Channel, it.ID, to, "outbox")
}

// ResendTx sends an item again that failed, is in doubt or was skipped. If it may have
// arrived before it is marked as a possible repeat.
func (o *Outbox) ResendTx(ctx context.Context, tx *db.Tx, id, by, note string) error {
	_, err := o.decideTx(ctx, tx, id, Resend, by, note)
	return err
}

// SkipTx leaves an item unsent.
func (o *Outbox) SkipTx(ctx context.Context, tx *db.Tx, id, by, note string) error {
	_, err := o.decideTx(ctx, tx, id, Skip, by, note)
	return err
}
