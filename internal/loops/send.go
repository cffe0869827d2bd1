package loops

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/ombud-run/ombud/internal/act"
	"github.com/ombud-run/ombud/internal/agent"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/id"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/run"
)

// Whom a message can be sent to without a channel.
const (
	toOperator       = "operator" // the operator, in the conversation main
	localPrefix      = "local:"   // a conversation of the operator at this machine
	mainConversation = "main"
)

// readersOf is who reads what is sent to somebody; anybody where that is not known.
func readersOf(to string) label.Audience {
	switch {
	case to == toOperator, strings.HasPrefix(to, localPrefix):
		return label.OperatorOnly
	case id.Valid("conv", to):
		return label.Conversation(to)
	}
	return label.Anyone
}

// SendKind is the kind of run that sends where no channel is needed: to the operator, to
// a local conversation, or to any conversation there is, by its id.
func SendKind(d Deps) run.Kind {
	return run.Kind{Name: KindSend, Handle: func(ctx context.Context, r *run.Run) ([]byte, error) {
		var in Sending
		if err := json.Unmarshal(r.Input(), &in); err != nil {
			return nil, fault.New(fault.Internal, "input of %s: %w", r.ID(), err)
		}
		out, err := r.DoTx(ctx, run.StepSpec{Name: "send", Kind: "send"}, func(ctx context.Context, tx *db.Tx) run.Outcome {
			conv, err := d.recipient(ctx, tx, in.To)
			if err == nil {
				err = d.Agents.SayTx(ctx, tx, conv.ID, r.ID(), in.Text, in.Label)
			}
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

// recipient finds the conversation of a name. It never makes one: a name with a typing
// error would get an inbox that nobody reads.
func (d Deps) recipient(ctx context.Context, tx *db.Tx, to string) (agent.Conversation, error) {
	name, local := strings.CutPrefix(to, localPrefix)
	switch {
	case to == toOperator:
		return d.Agents.OpenTx(ctx, tx, agent.Local(mainConversation), agent.Default, mainConversation)
	case local, id.Valid("conv", to):
		return d.Agents.Conversation(ctx, tx, name)
	}
	return agent.Conversation{}, fault.New(fault.NotFound, "nobody is called %q: this version has no address book and no channel that knows names", to).
		WithHint("send to operator, to local:NAME, or to the id of a conversation (ombud conversations)")
}

// inMain is what the actor may do in the conversation main, where the operator is told.
func (k *Kit) inMain(ctx context.Context) (*act.Authority, error) {
	auth := *k.auth
	err := k.d.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		conv, err := k.d.recipient(ctx, tx, toOperator)
		auth.Conversation = conv.ID
		return err
	})
	return &auth, err
}
