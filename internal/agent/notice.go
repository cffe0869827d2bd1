package agent

import (
	"context"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/outbox"
)

// mainConversation is the local one in which the operator is told what belongs to no
// other.
const mainConversation = "main"

// NoticeTx tells the operator something in the conversation main, and in the chats of theirs
// that they chose for it, once for each cause.
// It is no part of the history: whoever wrote it, no model reads it.
func (a *Agents) NoticeTx(ctx context.Context, tx *db.Tx, cause, text string) error {
	conv, err := a.openTx(ctx, tx, Local(mainConversation), Default, mainConversation)
	if err != nil {
		return err
	}
	m := outbox.Message{Run: cause, Text: text, Unasked: true}
	if err := a.outTx(ctx, tx, conv, m); err != nil {
		return err
	}
	return a.alsoTx(ctx, tx, m)
}
