package loops

import (
	"context"
	"encoding/json"

	"github.com/ombud-run/ombud/internal/act"
	"github.com/ombud-run/ombud/internal/agent"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/run"
)

// SendKind is the kind of run that sends a message.
func SendKind(d Deps) run.Kind {
	return run.Kind{Name: KindSend, Handle: func(ctx context.Context, r *run.Run) ([]byte, error) {
		var in Sending
		if err := json.Unmarshal(r.Input(), &in); err != nil {
			return nil, fault.New(fault.Internal, "input of %s: %w", r.ID(), err)
		}
		out, err := r.DoTx(ctx, run.StepSpec{Name: "send", Kind: "send"}, func(ctx context.Context, tx *db.Tx) run.Outcome {
			_, err := d.Agents.SendTx(ctx, tx, agent.Sending{To: in.To, Text: in.Text, Cause: r.ID(), By: in.Subject, Label: in.Label})
			if err != nil {
				return run.Fail(err)
			}
			return run.Succeed(nil)
		})
		if err != nil {
			return nil, err
		}
		return nil, out.Err
	}}
}

// inMain is what the actor may do in the conversation main, where the operator is told.
func (k *Kit) inMain(ctx context.Context) (*act.Authority, error) {
	auth := *k.auth
	err := k.d.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		conv, err := k.d.Agents.RecipientTx(ctx, tx, agent.ToOperator)
		auth.Conversation = conv.ID
		return err
	})
	return &auth, err
}
