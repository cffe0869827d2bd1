package agent

import (
	"context"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
)

// IntakeTx takes in, as part of tx, a message that comes from within, such as what a
// schedule says. in.Cause is the event it comes from. What led to it decides whether it
// may come while the instance is held: Refuse is not asked.
func (a *Agents) IntakeTx(ctx context.Context, tx *db.Tx, in Inbound) (Accepted, error) {
	if in.Cause == "" || in.Sender == "" {
		return Accepted{}, fault.New(fault.Internal, "a message from within has a cause and a sender")
	}
	if err := a.ready(&in); err != nil {
		return Accepted{}, err
	}
	out, conflict, err := a.intakeTx(ctx, tx, in)
	if err == nil && conflict {
		err = errConflict
	}
	return out, err
}
