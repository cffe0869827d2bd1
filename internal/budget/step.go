package budget

import (
	"context"
	"database/sql"
	"errors"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
)

// OpenOf returns the open reservation of a step. NotFound if there is none.
func (b *Budget) OpenOf(ctx context.Context, q db.Q, run, step string) (rid string, err error) {
	err = q.QueryRow(ctx, "SELECT id FROM budget_reservations WHERE run = $1 AND step = $2 AND state = 'open' ORDER BY id LIMIT 1", run, step).Scan(&rid)
	if errors.Is(err, sql.ErrNoRows) {
		return "", fault.New(fault.NotFound, "step %s of run %s has reserved nothing", step, run)
	}
	return rid, err
}

// HeldBy returns how much an open reservation holds. NotFound if it is not open.
func (b *Budget) HeldBy(ctx context.Context, q db.Q, rid string) (amount int64, err error) {
	err = q.QueryRow(ctx, "SELECT amount FROM budget_reservations WHERE id = $1 AND state = 'open'", rid).Scan(&amount)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, fault.New(fault.NotFound, "reservation %s is not open", rid)
	}
	return amount, err
}

// Answer is what a model's answer cost and used. Provider and Model are those that
// answered, which after a fallback are not those that were asked.
type Answer struct {
	Provider, Model string
	Cost            int64 // millionths of a US dollar
	Known           bool
	Tokens          Tokens
}

// AnswerTx books the answer of a step that had reserved.
func (b *Budget) AnswerTx(ctx context.Context, tx *db.Tx, run, step string, a Answer) error {
	rid, err := b.OpenOf(ctx, tx, run, step)
	if err != nil {
		return err
	}
	if err := b.CommitTx(ctx, tx, rid, a.Cost, a.Known); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "UPDATE budget_reservations SET provider = $1, model = $2 WHERE id = $3", a.Provider, a.Model, rid); err != nil {
		return err
	}
	return b.TokensTx(ctx, tx, rid, a.Tokens)
}

// NoAnswerTx ends the reservation of a step that got no answer. The provider may
// have charged for it all the same, so with maybe it becomes possible cost.
func (b *Budget) NoAnswerTx(ctx context.Context, tx *db.Tx, run, step string, maybe bool) error {
	rid, err := b.OpenOf(ctx, tx, run, step)
	if err != nil {
		return err
	}
	if maybe {
		return b.PossibleTx(ctx, tx, rid)
	}
	return b.ReleaseTx(ctx, tx, rid)
}
