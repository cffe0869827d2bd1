package trigger

import (
	"context"
	"fmt"

	"github.com/ombud-run/ombud/internal/db"
)

// Pause keeps a target from being started by any trigger until Resume, whatever becomes
// of its definition meanwhile. What is under way or in line goes on. Pausing a paused one
// does nothing.
func (t *Triggers) Pause(ctx context.Context, target, by string) (Standing, error) {
	return t.change(ctx, target, func(ctx context.Context, tx *db.Tx, s *Standing) error {
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
func (t *Triggers) Resume(ctx context.Context, target, by string) (Standing, error) {
	return t.change(ctx, target, func(ctx context.Context, tx *db.Tx, s *Standing) error {
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
}

func (t *Triggers) change(ctx context.Context, target string, fn func(ctx context.Context, tx *db.Tx, s *Standing) error) (s Standing, err error) {
	err = t.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if s, err = t.GetIn(ctx, tx, target); err != nil {
			return err
		}
		if err := fn(ctx, tx, &s); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "UPDATE targets SET paused_by = $1, withheld = $2, withheld_at = $3 WHERE name = $4", s.PausedBy, s.Withheld, s.WithheldAt, s.Name)
		return err
	})
	return s, err
}
