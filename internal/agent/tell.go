package agent

import (
	"context"

	"github.com/ombud-run/ombud/internal/act"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/policy"
)

// KindWithheld is the event of an answer that was kept from a conversation.
const KindWithheld = "comms.withheld"

// warnedData is the payload of act.KindWarned for a message.
type warnedData struct {
	Event   string   `json:"event"`
	Phrases []string `json:"phrases"`
}

// warnOf notes that what somebody wrote reads like orders. Nothing is decided by it.
func (a *Agents) warnOf(ctx context.Context, tx *db.Tx, in Inbound, conv Conversation, event string) error {
	if in.Source.Trusted() || len(in.orders) == 0 {
		return nil
	}
	_, err := a.Log.AppendTx(ctx, tx, eventlog.New{
		Stream: "conversation:" + conv.ID, Kind: act.KindWarned, Actor: "ombud", Cause: event, Trace: event, Expect: eventlog.Any,
		Data: warnedData{Event: event, Phrases: in.orders},
	})
	return err
}

// withheldData is its payload.
type withheldData struct {
	Run string `json:"run"`
	Why string `json:"why"`
}

const withheldText = "I cannot answer this here."

// mayTell decides whether what has a label may be told to the conversation of a
// turn: an answer is no call, but it tells what the turn holds to whoever reads it.
func (a *Agents) mayTell(in TurnInput, from label.Label) policy.Decision {
	return a.Act.Tell(from, policy.Destination{Emits: true, Readers: in.Audience, Name: "this conversation"})
}

// withhold takes the answer out of the reply. It stays in the record of the turn,
// for the operator.
func (a *Answer) withhold(why policy.Decision) {
	a.Withheld, a.Reply, a.Why = a.Reply, withheldText, why.String()
	if a.Outcome == Completed {
		a.Outcome = Escalated
	}
}

func (a *Agents) tellWithheld(ctx context.Context, tx *db.Tx, conv Conversation, runID, why string) error {
	_, err := a.Log.AppendTx(ctx, tx, eventlog.New{
		Stream: "conversation:" + conv.ID, Kind: KindWithheld, Actor: "ombud", Cause: runID, Trace: runID, Expect: eventlog.Any,
		Data: withheldData{Run: runID, Why: why},
	})
	return err
}
