package agent

import (
	"context"
	"fmt"
	"strings"

	"github.com/ombud-run/ombud/internal/act"
	"github.com/ombud-run/ombud/internal/approval"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/outbox"
	"github.com/ombud-run/ombud/internal/policy"
)

// AuthorityOf is what an agent may do now in a conversation it is talked to from
// with tier. NotFound if no agent is the subject.
func (a *Agents) AuthorityOf(ctx context.Context, subject, conversation string, tier policy.Tier) (*act.Authority, error) {
	if _, err := a.Permit(subject, policy.Held{}); err != nil {
		return nil, err
	}
	return a.authority(ctx, TurnInput{Agent: subject[len(subjectKind):], Conversation: conversation, Tier: tier})
}

// ConversationIn is Conversation in the caller's transaction or snapshot, by id.
func (a *Agents) ConversationIn(ctx context.Context, q db.Q, id string) (Conversation, error) {
	return a.conversationByID(ctx, q, id)
}

// AskTx puts a question into the conversation it came from, where a yes or no of
// the operator answers it. It is no part of the history: the turn waits meanwhile.
func (a *Agents) AskTx(ctx context.Context, tx *db.Tx, apr approval.Approval) error {
	conv, err := a.conversationByID(ctx, tx, apr.Conversation)
	if err != nil {
		return err
	}
	n, err := a.Approvals.Number(ctx, tx, apr)
	if err != nil {
		return err
	}
	err = a.outTx(ctx, tx, conv, outbox.Message{
		Run: apr.ID, Approval: apr.ID,
		Text: askedText(apr, n),
	})
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Invalid) {
		// The channel is gone or will never take it: the inbox still has the question.
		a.Logger.Error("ask in a conversation", "approval", apr.ID, "error", err)
		return nil
	}
	return err
}

// askedText is a question as a chat shows it.
func askedText(apr approval.Approval, n int64) string {
	text := "May I? " + apr.Summary + "\n"
	if apr.Form != nil {
		if shown := formText(apr); shown != "" {
			text += shown + "\n"
		}
	}
	if words := sample(apr); words != nil {
		return text + fmt.Sprintf("Answer here: `%s` (or: deny %d). At the machine: `ombud approve %s %s`", inWords(apr, n), n, apr.ID, strings.Join(words, " "))
	}
	return text + fmt.Sprintf("Answer yes or no here (or: approve %d, deny %d). At the machine: `ombud approve %s`", n, n, apr.ID)
}
