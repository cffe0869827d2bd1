package eventlog

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/vault"
)

// HandAgainTx gives the event of a dead letter to its handler once more, marked as out
// of order, because later events of its stream were handled long ago. The caller has
// settled the letter in the same transaction, which a failure undoes; HandedAgain tells
// that error from others.
//
// Errors: NotFound if the event is gone, Unavailable if the subscription does not run
// here, else the handler's.
func (l *Log) HandAgainTx(ctx context.Context, tx *db.Tx, d DeadLetter) error {
	raw, err := scanRow(tx.QueryRow(ctx, `SELECT `+columns+` FROM events WHERE position = $1`, d.Position))
	if errors.Is(err, sql.ErrNoRows) {
		return fault.New(fault.NotFound, "event %s of dead letter %s is not in the log any more", d.Ref, d.ID).
			WithHint("ombud dlq drop %s", d.ID)
	}
	if err != nil {
		return err
	}
	r := l.running(d.Name)
	if r == nil {
		return fault.New(fault.Unavailable, "subscription %q does not run here", d.Name).
			WithHint("if it will never run again: ombud dlq drop %s", d.ID)
	}
	it := l.items([]row{raw})[0]
	it.OutOfOrder = true
	if err := r.handle(ctx, tx, it, together); err != nil {
		return fmt.Errorf("replay %s: %w", d.ID, err)
	}
	return nil
}

// HandedAgain reports whether err is the failure of a handler that HandAgainTx called.
func HandedAgain(err error) bool {
	_, ok := errors.AsType[*handlerError](err)
	return ok
}

// FailedAgainTx notes in a dead letter, which waits on, that a replay of it failed.
func (l *Log) FailedAgainTx(ctx context.Context, tx *db.Tx, letter string, failure error) error {
	_, err := tx.Exec(ctx, `UPDATE dead_letters SET attempts = attempts + 1, last_at = $2, class = $3, error = $4 WHERE id = $1`,
		letter, tx.Now(), fault.ClassOf(failure), l.vault.Seal(vault.DeadLetterError, letter, []byte(errorText(failure))))
	return err
}
