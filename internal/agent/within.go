package agent

import (
	"context"
	"strings"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/id"
)

// IntakeTx takes in, as part of tx, a message that comes from within, such as what a
// schedule says. in.Cause is the event it comes from. What led to it decides whether it
// may come while the instance is held: Refuse is not asked.
func (a *Agents) IntakeTx(ctx context.Context, tx *db.Tx, in Inbound) (Accepted, error) {
	in.Text = guard.CleanText(in.Text)
	switch {
	case in.Cause == "" || in.Sender == "":
		return Accepted{}, fault.New(fault.Internal, "a message from within has a cause and a sender")
	case strings.TrimSpace(in.Text) == "":
		return Accepted{}, fault.New(fault.Invalid, "the message is empty")
	case len(in.Text) > a.cfg.MaxMessage:
		return Accepted{}, fault.New(fault.Invalid, "the message has %d bytes; at most %d are taken", len(in.Text), a.cfg.MaxMessage)
	}
	if in.Agent == "" {
		in.Agent = Default
	}
	if in.Key == "" {
		in.Key = id.New("key")
	}
	in.orders = guard.Phrases(in.SenderName + "\n" + in.Text)
	out, conflict, err := a.intakeTx(ctx, tx, in)
	if err == nil && conflict {
		err = errConflict
	}
	return out, err
}
