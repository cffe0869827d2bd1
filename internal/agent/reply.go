package agent

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/ombud-run/ombud/internal/act"
	"github.com/ombud-run/ombud/internal/approval"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/outbox"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/run"
)

// finish records the answer, the history and the message to be sent in the commit
// that ends the turn. An answer that holds what the readers of the conversation may
// not read is kept from them.
func (t *turn) finish(ctx context.Context, outcome Outcome, text string) error {
	answer := Answer{
		Outcome: outcome, Reply: guard.CleanText(text), Calls: len(t.ran), Approvals: t.parked,
		Provider: t.last.Provider, Model: t.last.Model, Label: label.Join(t.label, label.Of(label.Own, t.in.Audience)),
	}
	if told := t.a.mayTell(t.in, answer.Label); told.Effect != policy.Allow {
		answer.withhold(told)
	}
	result, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	t.compact(ctx)
	spec := run.StepSpec{Name: "reply", Kind: "reply"}
	return t.r.Finish(ctx, spec, result, func(ctx context.Context, tx *db.Tx) error {
		conv, err := t.a.conversationByID(ctx, tx, t.in.Conversation)
		if err != nil {
			return err
		}
		if err := t.a.addHistoryTx(ctx, tx, conv.ID, t.r.ID(), t.entries(answer)...); err != nil {
			return err
		}
		if answer.Withheld != "" {
			if err := t.a.tellWithheld(ctx, tx, conv, t.r.ID(), answer.Why); err != nil {
				return err
			}
		}
		return t.a.outTx(ctx, tx, conv, outbox.Message{Run: t.r.ID(), Text: answer.Reply, ReplyTo: t.in.Ref})
	})
}

// entries are what the turn adds to the history. Of an answer that was withheld
// nothing is added: neither what it holds nor its label, so that a stranger who
// asks once for what is not his has not ended the conversation by it.
func (t *turn) entries(answer Answer) []entry {
	asked := heard(t.in)
	if answer.Withheld != "" {
		return []entry{asked, {Role: roleAssistant, Body: entryBody{Text: answer.Reply, Label: label.Of(label.Own, t.in.Audience)}}}
	}
	var tools []string
	for _, res := range t.ran {
		tools = append(tools, string(res.Status)+": "+res.Summary)
	}
	return []entry{asked, {Role: roleAssistant, Body: entryBody{Text: answer.Reply, Tools: tools, Label: answer.Label}}}
}

// heard is the message of a turn as its history keeps it.
func heard(in TurnInput) entry {
	return entry{Role: roleUser, At: in.At, Body: entryBody{Text: in.Text, From: in.SenderName, Label: in.label()}}
}

// turnEnded tells the conversation of a turn that ended without an answer.
func (a *Agents) turnEnded(ctx context.Context, tx *db.Tx, rec run.Record) error {
	if err := a.Approvals.WithdrawTx(ctx, tx, rec.ID, "its turn has ended"); err != nil {
		return err
	}
	if err := a.Budget.SettleTx(ctx, tx, rec.ID); err != nil {
		return err
	}
	if rec.State == run.Completed {
		return nil
	}
	var in TurnInput
	if err := json.Unmarshal(rec.Input, &in); err != nil {
		return fault.New(fault.Internal, "input of the turn: %w", err)
	}
	conv, err := a.conversationByID(ctx, tx, in.Conversation)
	if err != nil {
		return err
	}
	text := Apology(rec)
	if in.Audience != label.OperatorOnly && rec.State != run.Cancelled {
		text = "I could not do this." // why is for the operator: an error can quote anything
	}
	told := entry{Role: roleAssistant, Body: entryBody{Text: text, Label: label.Of(label.Own, in.Audience)}}
	if err := a.addHistoryTx(ctx, tx, conv.ID, rec.ID, heard(in), told); err != nil {
		return err
	}
	err = a.outTx(ctx, tx, conv, outbox.Message{Run: rec.ID, Text: text, ReplyTo: in.Ref})
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Invalid) {
		// The channel is gone or will never take it. The turn has to end all the same.
		a.Logger.Error("tell a conversation how its turn ended", "run", rec.ID, "error", err)
		return nil
	}
	return err
}

// Apology is what a conversation is told of a turn that failed or was stopped.
func Apology(rec run.Record) string {
	why, _ := guard.CutText(guard.CleanText(rec.Error), 2*maxError)
	switch {
	case rec.State == run.Cancelled:
		return "Stopped, as asked."
	case rec.ErrorClass == fault.Timeout:
		return "I ran out of time: " + why + "."
	}
	return "I could not do this: " + why + "."
}

// OutcomeOf says how a turn's run ended; "" while it has not.
func OutcomeOf(rec run.Record) (Answer, bool) {
	var answer Answer
	switch {
	case rec.State == run.Completed:
		err := json.Unmarshal(rec.Result, &answer)
		return answer, err == nil
	case rec.State == run.Cancelled:
		return Answer{Outcome: Cancelled, Reply: Apology(rec)}, true
	case rec.State == run.Failed && rec.ErrorClass == fault.Timeout:
		return Answer{Outcome: TimedOut, Reply: Apology(rec)}, true
	case rec.State == run.Failed:
		return Answer{Outcome: FailedTurn, Reply: Apology(rec)}, true
	}
	return answer, false
}

// CallInput is what an approved call of a turn that has ended is started with.
type CallInput struct {
	Approval string `json:"approval"`
}

// CallRun is the id of the run that makes a detached call once it is approved.
func CallRun(apr approval.Approval) string { return "run_" + apr.ID[len("apr_"):] }

// approvedCall makes the one call a person approved after its turn had ended.
func (a *Agents) approvedCall(ctx context.Context, r *run.Run) ([]byte, error) {
	var in CallInput
	if err := json.Unmarshal(r.Input(), &in); err != nil {
		return nil, fault.New(fault.Internal, "input of the call: %w", err)
	}
	apr, err := a.Approvals.Get(ctx, in.Approval)
	if err != nil {
		return nil, err
	}
	turnIn, err := a.turnInputOf(ctx, apr.Run)
	if err != nil {
		return nil, err
	}
	may, err := a.authority(ctx, turnIn)
	if err != nil {
		return nil, err
	}
	may.Unattended = false // somebody has just decided
	res, err := a.Act.CallApproved(ctx, r, act.Call{
		Step: "call", Tool: apr.Tool, Input: apr.Input, Authority: may, Label: turnIn.label(),
	}, apr)
	if err != nil {
		return nil, err
	}
	result, err := json.Marshal(res)
	if err != nil {
		return nil, err
	}
	from := label.Join(apr.Label, res.Label, label.Of(label.Own, turnIn.Audience))
	text := fmt.Sprintf("Approved and done: %s\n%s", res.Summary, res.Text)
	if res.Status != act.OK {
		text = fmt.Sprintf("Approved, but %s: %s\n%s", res.Status, res.Summary, shown(res))
	}
	if a.mayTell(turnIn, from).Effect != policy.Allow {
		text, from = "What was asked for was approved and is "+string(res.Status)+".", label.Of(label.Own, turnIn.Audience)
	}
	return result, r.Finish(ctx, run.StepSpec{Name: "reply", Kind: "reply"}, result, func(ctx context.Context, tx *db.Tx) error {
		return a.SayTx(ctx, tx, turnIn.Conversation, r.ID(), text, from)
	})
}

func (a *Agents) turnInputOf(ctx context.Context, runID string) (in TurnInput, err error) {
	rec, _, err := a.Runs.Get(ctx, runID)
	if err != nil {
		return in, err
	}
	return in, json.Unmarshal(rec.Input, &in)
}

// callEnded tells the conversation of an approved call that could not be made.
func (a *Agents) callEnded(ctx context.Context, tx *db.Tx, rec run.Record) error {
	if rec.State == run.Completed {
		return nil
	}
	var in CallInput
	if err := json.Unmarshal(rec.Input, &in); err != nil {
		return fault.New(fault.Internal, "input of the call: %w", err)
	}
	apr, err := a.Approvals.GetTx(ctx, tx, in.Approval)
	if err != nil || apr.Conversation == "" {
		return err
	}
	asked, err := a.Runs.RecordIn(ctx, tx, apr.Run)
	if err != nil {
		return err
	}
	var turnIn TurnInput
	if err := json.Unmarshal(asked.Input, &turnIn); err != nil {
		return fault.New(fault.Internal, "input of the turn: %w", err)
	}
	own := label.Of(label.Own, turnIn.Audience)
	if turnIn.Audience != label.OperatorOnly {
		return a.SayTx(ctx, tx, apr.Conversation, rec.ID, "What was approved could not be done.", own)
	}
	return a.SayTx(ctx, tx, apr.Conversation, rec.ID, "Approved, but not done: "+apr.Summary+"\n"+rec.Error, label.Join(apr.Label, own))
}
