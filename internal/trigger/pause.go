package trigger

import (
	"context"
	"fmt"

	"github.com/ombud-run/ombud/internal/db"
)

// Pause keeps a target from being started by any trigger until Resume, whatever becomes
// of its definition meanwhile. What is under way or in line goes on. Pausing a paused one
// does nothing.
func (t *Triggers) Pause(ctx context.Context, target, by string) (s Standing, err error) {
	err = t.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		s, err = t.PauseTx(ctx, tx, target, by)
		return err
	})
	return s, err
}

// PauseTx is Pause within a transaction of the caller's.
func (t *Triggers) PauseTx(ctx context.Context, tx *db.Tx, target, by string) (Standing, error) {
	return t.changeTx(ctx, tx, target, func(s *Standing) error {
		if s.PausedBy != "" {
			return nil
		}
		s.PausedBy, s.Withheld, s.WithheldAt = by, 0, 0
		_, err := t.tell(ctx, tx, "paused", by, s.Name, "", struct{}{})
		return err
	})
}

// resumed is the payload of trigger.resumed.
type resumed struct {
	Withheld int64 `json:"withheld"`
}

// Resume lets a target be started again, and tells what came while it was paused: that
// is gone by.
func (t *Triggers) Resume(ctx context.Context, target, by string) (s Standing, err error) {
	err = t.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		s, err = t.changeTx(ctx, tx, target, func(s *Standing) error {
			if s.PausedBy == "" {
				return nil
			}
			event, err := t.tell(ctx, tx, "resumed", by, s.Name, "", resumed{s.Withheld})
			if err == nil && s.Withheld > 0 {
				err = t.opt.Tell(ctx, tx, event, fmt.Sprintf("%s goes on. While it was paused %d triggers started nothing.", s.Name, s.Withheld))
			}
			s.PausedBy, s.Withheld, s.WithheldAt = "", 0, 0
			return err
		})
		return err
	})
	return s, err
}

func (t *Triggers) changeTx(ctx context.Context, tx *db.Tx, target string, change func(s *Standing) error) (s Standing, err error) {
	if s, err = t.GetIn(ctx, tx, target); err != nil {
		return s, err
	}
	if err := change(&s); err != nil {
		return s, err
	}
	_, err = tx.Exec(ctx, "UPDATE targets SET paused_by = $1, withheld = $2, withheld_at = $3 WHERE name = $4", s.PausedBy, s.Withheld, s.WithheldAt, s.Name)
	return s, err
}
